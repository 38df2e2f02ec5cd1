//! Puts a kernel's text together: other files that it needs, and the lines of the variant that is wanted. Pure.
//!
//! | line | meaning |
//! |---|---|
//! | `#import name` | the text of the module `name`, the first time it is asked for |
//! | `#if flag`, `#if !flag` | the lines up to `#else` or `#endif` only where the flag is on (off) |
//! | `#else`, `#endif` | end what `#if` began; conditions may stand inside of each other |
//!
//! A directive has a line to itself. What is left out leaves no trace, so texts that mean the same are the same and compile
//! once.

use std::collections::HashSet;

/// Where modules and flags come from.
pub(super) struct Parts<'a> {
    /// Names and texts of modules.
    pub modules: &'a [(&'static str, &'static str)],
    /// Names of flags, and whether they are on.
    pub flags: &'a [(&'static str, bool)],
}

/// The whole text of `body`.
///
/// # Errors
/// What is wrong: a module or flag that nobody gave, a condition without its beginning or end, an unknown directive.
pub(super) fn assemble(body: &str, parts: &Parts<'_>) -> Result<String, String> {
    let mut text = String::with_capacity(body.len());
    add(&mut text, body, parts, &mut HashSet::new())?;
    Ok(text)
}

fn add<'a>(text: &mut String, body: &'a str, parts: &Parts<'a>, seen: &mut HashSet<&'a str>) -> Result<(), String> {
    // For each condition that is open: whether it holds, and whether its `#else` has come.
    let mut open: Vec<(bool, bool)> = Vec::new();
    for line in body.lines() {
        let kept = open.iter().all(|&(holds, _)| holds);
        let Some(directive) = line.trim_start().strip_prefix('#') else {
            if kept {
                text.push_str(line);
                text.push('\n');
            }
            continue;
        };
        match directive.split_whitespace().collect::<Vec<_>>()[..] {
            ["if", condition] => open.push((holds(condition, parts)?, false)),
            ["else"] => match open.last_mut() {
                Some((holds, other @ false)) => (*holds, *other) = (!*holds, true),
                _ => return Err("#else without an #if of its own".into()),
            },
            ["endif"] => {
                open.pop().ok_or("#endif without an #if")?;
            }
            ["import", name] if kept => {
                let find = |&&(module, _): &&(&str, &str)| module == name;
                let &(name, module) = parts.modules.iter().find(find).ok_or(format!("no module `{name}`"))?;
                if seen.insert(name) {
                    add(text, module, parts, seen)?;
                }
            }
            ["import", _] => {}
            _ => return Err(format!("`{}` is no directive", line.trim())),
        }
    }
    if open.is_empty() { Ok(()) } else { Err("#if without an #endif".into()) }
}

fn holds(condition: &str, parts: &Parts<'_>) -> Result<bool, String> {
    let (flag, wanted) = condition.strip_prefix('!').map_or((condition, true), |flag| (flag, false));
    let found = parts.flags.iter().find(|(name, _)| *name == flag);
    found.map(|(_, on)| *on == wanted).ok_or(format!("no flag `{flag}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: &[(&str, &str)] = &[("a", "#import b\nfn a() {}"), ("b", "fn b() {}"), ("loop", "#import loop\nx")];

    fn with(flags: &[(&'static str, bool)], body: &str) -> Result<String, String> {
        assemble(body, &Parts { modules: MODULES, flags })
    }

    #[test]
    fn modules_come_once_and_where_they_are_asked_for() {
        assert_eq!(with(&[], "// top\n#import a\n  #import b\nmain").unwrap(), "// top\nfn b() {}\nfn a() {}\nmain\n");
        assert_eq!(with(&[], "#import loop").unwrap(), "x\n");
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
            ("#iff p", "`#iff p` is no directive"),
            ("#", "`#` is no directive"),
        ] {
            assert_eq!(with(p, body).unwrap_err(), why, "{body}");
        }
    }
}
