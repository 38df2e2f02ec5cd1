//! The nearest sources of a query, as WGSL: a list in registers.
//!
//! An entry is a squared distance and an index; entries are in the order of (distance, index), which makes the list unique.
//! Nothing is indexed dynamically: a new entry is compared with all and moves those behind it by selection.

use std::fmt::Write as _;

/// Entries that a list can have; larger ones take several walks.
pub const LENGTHS: [u32; 7] = [1, 2, 4, 8, 16, 24, 32];

/// The shortest list that holds `k` entries, at most the longest there is.
pub fn length(k: u32) -> u32 {
    LENGTHS.into_iter().find(|&length| length >= k).unwrap_or(LENGTHS[LENGTHS.len() - 1])
}

/// Declaration of the lists, `empty#`, and `offer#`, which puts an entry into the list of a slot; `#` is for the slot.
pub fn wgsl(length: u32) -> String {
    let mut text = String::new();
    let entries = |text: &mut String, line: &dyn Fn(u32) -> String| {
        (0..length).for_each(|i| {
            let _ = writeln!(text, "{}", line(i));
        });
    };
    for i in 0..length {
        let _ = writeln!(text, "var<private> distance#_{i}: f32;\nvar<private> index#_{i}: u32;");
    }
    text.push_str("fn empty#(reach: f32) {\n");
    entries(&mut text, &|i| format!("    distance#_{i} = reach;\n    index#_{i} = NONE;"));
    text.push_str("    worst# = NONE;\n}\nfn offer#(d: f32, s: u32) {\n");
    entries(&mut text, &|i| {
        format!("    let before{i} = d < distance#_{i} || (d == distance#_{i} && s < index#_{i});")
    });
    for i in (0..length).rev() {
        let (d, s) = match i {
            0 => ("d".into(), "s".into()),
            _ => {
                let previous = i - 1;
                (
                    format!("select(d, distance#_{previous}, before{previous})"),
                    format!("select(s, index#_{previous}, before{previous})"),
                )
            }
        };
        let _ = writeln!(
            text,
            "    distance#_{i} = select(distance#_{i}, {d}, before{i});\n    index#_{i} = select(index#_{i}, {s}, before{i});"
        );
    }
    let last = length - 1;
    let _ = writeln!(text, "    reach# = distance#_{last};\n    worst# = index#_{last};\n}}");
    text
}

/// `close#`, which calls `put` with each entry that is to be written.
pub fn storing(length: u32) -> String {
    let mut text = String::from("fn close#(line: u32) {\n");
    for i in 0..length {
        let _ = writeln!(text, "    if {i}u < params.write {{ put(line, {i}u, distance#_{i}, index#_{i}); }}");
    }
    text.push_str("}\n");
    text
}

/// `restore#`, which takes up a list where an earlier dispatch has left it.
pub fn restoring(length: u32) -> String {
    let mut text = String::from("fn restore#(line: u32) {\n    let first = line * params.k + params.done;\n");
    for i in 0..length {
        let at = format!("first + min({i}u, params.write - 1u)");
        let _ = writeln!(text, "    distance#_{i} = load_distance({at});");
        let _ = writeln!(text, "    index#_{i} = select(NONE, load_index({at}), {i}u < params.write);");
    }
    let last = length - 1;
    let _ = writeln!(text, "    reach# = distance#_{last};\n    worst# = index#_{last};\n}}");
    text
}

/// `close#`, which calls the callback for each entry.
pub fn folding(length: u32) -> String {
    let mut text = String::from("fn close#(line: u32) {\n    var reach = 0.0;\n");
    let kept = |i: u32| format!("{i}u < params.k && index#_{i} != NONE");
    for i in 0..length {
        let _ = writeln!(text, "    if {} {{ reach = distance#_{i}; }}", kept(i));
    }
    text.push_str("    var state = begin(line, params.unit * sqrt(reach));\n");
    for i in 0..length {
        let near = format!("Neighbor(index#_{i}, params.unit * sqrt(distance#_{i}))");
        let _ = writeln!(text, "    if {} {{ state = each(state, {near}); }}", kept(i));
    }
    text.push_str("    end(line, state);\n}\n");
    text
}
