//! Puts the text of a kernel together: modules that it imports, the lines of the variant that is
//! wanted, what is repeated for each slot of an invocation, and the entry point. Pure.
//!
//! | line | meaning |
//! |---|---|
//! | `#import name` | the text of the module `name`, the first time it is asked for |
//! | `#if flag`, `#if !flag` | the lines up to `#else` or `#endif` only where the flag is on (off) |
//! | `#else`, `#endif` | end what `#if` began; conditions may stand inside of each other |
//! | `#each COUNT` | the entry point of a kernel over elements: calls `each(i: u32)` for every i below COUNT, [`ITEMS`](super::KernelSource) per invocation |
//! | `#each_invocation COUNT` | calls `each_invocation(i: u32)` for every i below COUNT, one per invocation |
//! | `#each_workgroup` | calls `each_workgroup(number: u32, lane: u32)` in all invocations of every workgroup |
//! | `#each_subgroup` | the same for `each_subgroup(number, lane, size, place)`: the size of the subgroup, and the place in it |
//!
//! A directive has a line to itself. What is left out leaves no trace, so texts that mean the same
//! are the same and compile once.
//!
//! A *mark* is a character that stands for a number. A function with a mark in its name, and any
//! other line with one outside of such functions, is repeated as often as the mark says, with the
//! numbers from 0 instead of the mark. Directives and comments are not repeated.

use std::collections::HashSet;

/// A text that may be imported.
#[derive(Clone, Debug)]
pub(super) struct Module {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: std::borrow::Cow<'static, str>,
    /// Whether it is a caller's: it is taken as it is, without directives and marks.
    pub verbatim: bool,
}

/// Names that the directives of a kernel may use.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    /// Modules that may be imported.
    pub modules: &'a [Module],
    /// Names of flags, and whether they are on.
    pub flags: &'a [(&'static str, bool)],
    /// Marks, and how often what has one is repeated.
    pub marks: &'a [(char, u32)],
}

/// The place where an author wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The module of the line; `None` for the kernel's own text.
    pub module: Option<&'static str>,
    /// The number of the line, from 1 on.
    pub line: u32,
}

/// A kernel's text after all directives.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    /// The lines, each with a line break.
    pub text: String,
    /// The origin of each line; `None` for generated lines and for texts with marks.
    pub origins: Vec<Option<Origin>>,
    /// Whether an invocation calls `each` for several elements.
    pub is_elementwise: bool,
    /// Whether a directive has written the entry point.
    has_entry: bool,
}

impl Text {
    fn push(&mut self, lines: &str, origin: Option<Origin>) {
        for line in lines.lines() {
            self.text.push_str(line);
            self.text.push('\n');
            self.origins.push(origin);
        }
    }
}

/// Assembles the whole text of `body`.
///
/// # Errors
/// A message if a module, a flag or the entry point is missing, a flag is set on and off, a
/// condition has no beginning or no end, or a directive is unknown.
pub(super) fn assemble(body: &str, parts: Parts<'_>) -> Result<Text, String> {
    if let Some((name, _)) = parts.flags.iter().find(|&&(name, on)| parts.flags.contains(&(name, !on))) {
        return Err(format!("flag `{name}` is set on and off"));
    }
    let mut assembly = Assembly { parts, text: Text::default(), imported: HashSet::new() };
    assembly.add(body, None)?;
    let text = assembly.text;
    if text.has_entry || text.text.contains("@compute") {
        return Ok(text);
    }
    Err("the text has no `#each COUNT` line; end it with `#each`, `#each_invocation`, `#each_workgroup` or \
         `#each_subgroup`, which write the entry point"
        .into())
}

struct Assembly<'a> {
    parts: Parts<'a>,
    text: Text,
    imported: HashSet<&'a str>,
}

impl Assembly<'_> {
    /// Adds the text of `module`, or the kernel's own text.
    fn add(&mut self, body: &str, module: Option<&'static str>) -> Result<(), String> {
        let marks = self.parts.marks;
        let body = marks.iter().fold(format!("{body}\n"), |body, &(mark, times)| repeat(&body, mark, times));
        // For each condition that is open: whether it holds, and whether its `#else` has come.
        let mut open: Vec<(bool, bool)> = Vec::new();
        for (line, number) in body.trim_end_matches('\n').lines().zip(1..) {
            let kept = open.iter().all(|&(holds, _)| holds);
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                if kept {
                    // Marks repeat lines, which changes their numbers.
                    let origin = marks.is_empty().then_some(Origin { module, line: number });
                    self.text.push(if line.is_empty() { "\n" } else { line }, origin);
                }
                continue;
            };
            let (word, rest) = directive.split_once(char::is_whitespace).unwrap_or((directive, ""));
            match (word, rest.trim()) {
                ("if", condition) => open.push((self.holds(condition)?, false)),
                ("else", "") => match open.last_mut() {
                    Some((holds, other @ false)) => (*holds, *other) = (!*holds, true),
                    _ => return Err("#else without an #if of its own".into()),
                },
                ("endif", "") => {
                    open.pop().ok_or("#endif without an #if")?;
                }
                _ if !kept => {}
                ("import", name) => self.import(name)?,
                (word, count) => {
                    let entry = entry_point(word, count).ok_or_else(|| {
                        format!("unknown directive `{}`; the documentation of `KernelSource` lists them", line.trim())
                    })?;
                    self.text.push(&entry, None);
                    self.text.has_entry = true;
                    self.text.is_elementwise = word == "each";
                }
            }
        }
        if open.is_empty() { Ok(()) } else { Err("#if without an #endif".into()) }
    }

    fn import(&mut self, name: &str) -> Result<(), String> {
        let modules = self.parts.modules;
        let module = modules.iter().find(|module| module.name == name).ok_or(format!("no module `{name}`"))?;
        match self.imported.insert(module.name) {
            false => Ok(()),
            true if module.verbatim => {
                // The declarations before the caller's own lines are generated.
                let own = module.text.lines().skip_while(|line| line.starts_with("var<storage")).count();
                let generated = module.text.lines().count() - own;
                for (line, number) in module.text.lines().zip(0..) {
                    let origin = (number >= generated)
                        .then(|| Origin { module: Some(module.name), line: (number - generated + 1) as u32 });
                    self.text.push(if line.is_empty() { "\n" } else { line }, origin);
                }
                Ok(())
            }
            true => self.add(&module.text, Some(module.name)),
        }
    }

    fn holds(&self, condition: &str) -> Result<bool, String> {
        let (flag, wanted) = condition.strip_prefix('!').map_or((condition, true), |flag| (flag, false));
        let found = self.parts.flags.iter().find(|(name, _)| *name == flag);
        found.map(|(_, on)| *on == wanted).ok_or(format!("no flag `{flag}`"))
    }
}

/// Returns the entry point that a directive stands for.
fn entry_point(directive: &str, count: &str) -> Option<String> {
    let body = match (directive, count) {
        // The loop ends behind the last element: a software renderer executes the body of a
        // condition whether it holds or not. The end is not a constant, because compilers unroll
        // loops of few rounds, and a software renderer's compiler takes as many times as long then.
        ("each", count) if !count.is_empty() => format!(
            "    let first = group_number(workgroup, workgroups) * (ITEMS * GROUP);\n    \
             let end = min(first + ITEMS * GROUP, {count});\n    \
             for (var i = first + lane; i < end; i += GROUP) {{ each(i); }}\n"
        ),
        ("each_invocation", count) if !count.is_empty() => format!(
            "    let i = group_number(workgroup, workgroups) * GROUP + lane;\n    if i < {count} {{ each_invocation(i); }}\n"
        ),
        ("each_workgroup", "") => "    each_workgroup(group_number(workgroup, workgroups), lane);\n".to_string(),
        ("each_subgroup", "") => {
            "    each_subgroup(group_number(workgroup, workgroups), lane, subgroup_size, subgroup_lane);\n".to_string()
        }
        _ => return None,
    };
    let more = match directive {
        "each_subgroup" => {
            "    @builtin(subgroup_size) subgroup_size: u32,\n    @builtin(subgroup_invocation_id) subgroup_lane: u32,\n"
        }
        _ => "",
    };
    Some(format!(
        "@compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) workgroup: vec3<u32>,\n    \
         @builtin(num_workgroups) workgroups: vec3<u32>,\n    @builtin(local_invocation_index) lane: u32,\n{more}) {{\n{body}}}\n"
    ))
}

/// Repeats functions with `mark` in their name, and other lines with it, `times` times.
fn repeat(text: &str, mark: char, times: u32) -> String {
    let mut out = String::with_capacity(2 * text.len());
    let directive = |line: &str| line.trim_start().starts_with('#');
    let comment = |item: &str| item.trim_start().starts_with("//");
    let mut write = |item: &str| {
        let marked = |line: &str| !directive(line) && line.contains(mark);
        if comment(item) || !item.split_inclusive('\n').any(marked) {
            return out.push_str(item);
        }
        for n in 0..times {
            for line in item.split_inclusive('\n') {
                if directive(line) { out.push_str(line) } else { out.push_str(&line.replace(mark, &n.to_string())) }
            }
        }
    };
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let named = line.starts_with("fn ") && line.split('(').next().is_some_and(|name| name.contains(mark));
        let mut item = line.to_string();
        // To the brace in the first column, unless it is all on one line.
        if named && !line.trim_end().ends_with('}') {
            for line in lines.by_ref() {
                item.push_str(line);
                if line.starts_with('}') {
                    break;
                }
            }
        }
        write(&item);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Vec<Module> {
        let module = |name, text: &'static str, verbatim| Module { name, text: text.into(), verbatim };
        vec![
            module("a", "#import b\nfn a() {}", false),
            module("b", "fn b() {}", false),
            module("loop", "#import loop\nx", false),
            module("user", "#if x# stays", true),
            module("slots", "var s#: u32;", false),
        ]
    }

    /// Returns the text of `body` before the entry point, which is added.
    fn with(flags: &[(&'static str, bool)], body: &str) -> Result<String, String> {
        const MAIN: &str = "@compute @workgroup_size(1) fn main() {}";
        let parts = Parts { modules: &modules(), flags, marks: &[('#', 2)] };
        let text = assemble(&format!("{}\n{MAIN}", body.trim_end_matches('\n')), parts)?.text;
        Ok(text.strip_suffix(&format!("{MAIN}\n")).unwrap().to_string())
    }

    #[test]
    fn a_text_without_an_entry_point_is_refused() {
        let plain = |body: &str| assemble(body, Parts { modules: &[], flags: &[], marks: &[] });
        let why = plain("fn each(i: u32) {}").unwrap_err();
        assert!(why.starts_with("the text has no `#each COUNT` line"), "{why}");
        assert!(plain("fn each(i: u32) {}\n#each 3u").unwrap().is_elementwise);
        assert!(!plain("fn each_invocation(i: u32) {}\n#each_invocation 3u").unwrap().is_elementwise);
    }

    #[test]
    fn lines_know_where_they_were_written() {
        let parts = Parts { modules: &modules(), flags: &[("p", true)], marks: &[] };
        let body = "// top\n#if p\n\nfn one() {}\n#endif\n#import a\n#import user\nfn each(i: u32) {}\n#each 1u";
        let text = assemble(body, parts).unwrap();
        let at = |needle: &str| text.text.lines().position(|line| line == needle).and_then(|at| text.origins[at]);
        let origin = |module, line| Some(Origin { module, line });
        assert_eq!(text.text.lines().count(), text.origins.len());
        assert_eq!(at("fn one() {}"), origin(None, 4));
        assert_eq!(at("fn a() {}"), origin(Some("a"), 2));
        assert_eq!(at("#if x# stays"), origin(Some("user"), 1));
        assert_eq!(at("fn each(i: u32) {}"), origin(None, 8));
        assert_eq!(text.origins.last(), Some(&None), "the entry point is generated");
    }

    #[test]
    fn modules_come_once_and_where_they_are_asked_for() {
        assert_eq!(with(&[], "// top\n#import a\n  #import b\nmain").unwrap(), "// top\nfn b() {}\nfn a() {}\nmain\n");
        assert_eq!(with(&[], "#import loop").unwrap(), "x\n");
        assert_eq!(with(&[], "#import slots").unwrap(), "var s0: u32;\nvar s1: u32;\n");
        assert_eq!(with(&[], "#import user\nend").unwrap(), "#if x# stays\nend\n");
        assert_eq!(with(&[], "#import c").unwrap_err(), "no module `c`");
    }

    #[test]
    fn conditions_choose_lines() {
        let body = "#if p\np\n#if !q\nnot q\n#else\nq\n#endif\n#else\n#import a\n#if q\nonly q\n#endif\n#endif\nend";
        let text = |p: bool, q: bool| with(&[("p", p), ("q", q)], body).unwrap();
        assert_eq!(text(true, false), "p\nnot q\nend\n");
        assert_eq!(text(true, true), "p\nq\nend\n");
        assert_eq!(text(false, true), "fn b() {}\nfn a() {}\nonly q\nend\n");
        assert_eq!(text(false, false), "fn b() {}\nfn a() {}\nend\n");
    }

    #[test]
    fn mistakes_are_told() {
        let p = &[("p", false)];
        for (body, why) in [
            ("#if q\n#endif", "no flag `q`"),
            ("#if p\nx", "#if without an #endif"),
            ("x\n#endif", "#endif without an #if"),
            ("#else", "#else without an #if of its own"),
            ("#if p\n#else\n#else\n#endif", "#else without an #if of its own"),
            ("#iff p", "unknown directive `#iff p`"),
            ("#each", "unknown directive `#each`"),
            ("#each_workgroup 3", "unknown directive `#each_workgroup 3`"),
            ("#", "unknown directive `#`"),
        ] {
            let error = with(p, body).unwrap_err();
            assert!(error.starts_with(why), "{body}: {error}");
        }
        assert_eq!(with(&[("p", true), ("p", true)], "#if p\nx\n#endif").unwrap(), "x\n");
        assert_eq!(with(&[("p", true), ("q", true), ("p", false)], "x").unwrap_err(), "flag `p` is set on and off");
    }

    #[test]
    fn marked_lines_and_functions_are_repeated() {
        let text = "// a# is not\nvar a#: u32;\nfn f#(x: u32) {\n    if x { return; }\n#if p\n    y# = x;\n#endif\n}\nfn g() {\n    f#(1u);\n    h();\n}\n";
        let want = "// a# is not\nvar a0: u32;\nvar a1: u32;\nfn f0(x: u32) {\n    if x { return; }\n    y0 = x;\n}\nfn f1(x: u32) {\n    \
                    if x { return; }\n    y1 = x;\n}\nfn g() {\n    f0(1u);\n    f1(1u);\n    h();\n}\n";
        assert_eq!(with(&[("p", true)], text).unwrap(), want);
        assert_eq!(with(&[], "fn f#() { g(); }").unwrap(), "fn f0() { g(); }\nfn f1() { g(); }\n");
    }

    #[test]
    fn entry_points_are_written() {
        let each = with(&[], "fn each(i: u32) {}\n#each params.count").unwrap();
        assert!(
            each.contains("let end = min(first + ITEMS * GROUP, params.count);") && each.contains("each(i)"),
            "{each}"
        );
        let invocation = with(&[], "#each_invocation f(2u)").unwrap();
        assert!(invocation.contains("if i < f(2u) { each_invocation(i); }"), "{invocation}");
        assert!(with(&[], "#each_workgroup").unwrap().contains("each_workgroup(group_number("));
        let subgroup = with(&[], "#each_subgroup").unwrap();
        assert!(subgroup.contains("@builtin(subgroup_size)") && subgroup.contains("each_subgroup(group_number("));
    }
}
