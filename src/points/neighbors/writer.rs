//! Writes the kernels of searches: pieces of `shaders/neighbors`, once for each query of an invocation.

use super::group_shape::GroupShape;
use crate::gpu::{Access, Element, KernelSource};

/// What is compiled into a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub form: GroupShape,
    /// Coordinates a point.
    pub dims: usize,
    /// Queries are the tree's own points, in its order.
    pub own: bool,
    pub walk: Traversal,
    /// Differences are brought to the unit of squares one by one.
    pub wide: bool,
}

/// In which order a walk goes, and whether it can stop and go on in another dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Traversal {
    /// The nearest leaves first, to the end.
    Near,
    /// The nearest first; marks groups that it had to stop for.
    NearOrMark,
    /// The nearest first; tells how many leaves each group has looked at, if it came to the end.
    NearCounted,
    /// Leaves in their order, to the end.
    Ordered,
    /// Leaves in their order, from where the last dispatch has stopped, for groups that are not done.
    Onward,
    /// Leaves in their order from a group's own on, to the end: each pair of points once.
    Later,
    /// The same from where the last dispatch has stopped.
    LaterOnward,
    /// As [`LaterOnward`](Traversal::LaterOnward); `order` is changed on the way.
    Links,
}

impl Traversal {
    /// Whether it keeps a word a group, in the array `cursor`.
    pub fn keeps(self) -> bool {
        matches!(
            self,
            Traversal::NearOrMark
                | Traversal::NearCounted
                | Traversal::Onward
                | Traversal::LaterOnward
                | Traversal::Links
        )
    }

    /// Whether it offers sources only to the queries before them.
    fn once(self) -> bool {
        matches!(self, Traversal::Later | Traversal::LaterOnward | Traversal::Links)
    }
}

/// The uniform of every search.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Params {
    /// Sides as coordinates are loaded; far beyond any difference along open axes.
    pub side: [f32; 4],
    pub half_side: [f32; 4],
    /// First node of each level.
    pub starts: [u32; 12],
    pub levels: u32,
    pub sources: u32,
    pub queries: u32,
    /// First group of queries of the dispatch.
    pub first: u32,
    /// Squared, in the unit of squares.
    pub reach: f32,
    /// What roots of squares are multiplied by.
    pub unit: f32,
    pub infinity: f32,
    /// Neighbours wanted.
    pub k: u32,
    /// Entries of a row that are there already, and that are to be written.
    pub done: u32,
    pub write: u32,
    /// Rows by the number of the query (1) or along the curve (0).
    pub by_number: u32,
    /// Leaves out: nothing (0), the source with the number of the query (1), those up to that number (2).
    pub skip: u32,
    /// Rows along the curve are counted from this one.
    pub base: u32,
    /// A radius as it was asked for.
    pub radius: f32,
    /// Rounds of loops after which a walk stops, and those that a leaf takes.
    pub rounds: u32,
    pub leaf_rounds: u32,
    /// See `Units`.
    pub load_unit: f32,
    pub zoom: f32,
    pub farthest: f32,
    pub pad: u32,
}

pub(super) const PARAMS: &str = "side: vec4<f32>, half_side: vec4<f32>, starts: array<vec4<u32>, 3>, levels: u32, \
     sources: u32, queries: u32, first: u32, reach: f32, unit: f32, infinity: f32, k: u32, done: u32, write: u32, \
     by_number: u32, skip: u32, base: u32, radius: f32, rounds: u32, leaf_rounds: u32, load_unit: f32, zoom: f32, farthest: f32, pad: u32";

/// Writes functions with a `mark` in their name, and other lines with one, `times` times, the mark replaced by a number.
fn repeat(text: &str, mark: char, times: u32) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut write = |item: &str| {
        if item.contains(mark) {
            (0..times).for_each(|n| out.push_str(&item.replace(mark, &n.to_string())));
        } else {
            out.push_str(item);
        }
    };
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let named = line.starts_with("fn ") && line.split('(').next().is_some_and(|name| name.contains(mark));
        if !named {
            write(line);
            continue;
        }
        let mut item = line.to_string();
        // To the brace in the first column, unless it is all on one line.
        if !line.trim_end().ends_with('}') {
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

/// A piece without its opening comment, for kernels are compared and kept by their text.
fn piece(text: &str) -> &str {
    let head = text.lines().take_while(|line| line.starts_with("//")).map(|line| line.len() + 1).sum::<usize>();
    &text[head.min(text.len())..]
}

/// How a kernel measures.
pub(super) fn measure(wide: bool) -> String {
    let apart = if wide { "clamp(d, -farthest, farthest) * zoom" } else { "d" };
    let text = piece(include_str!("../../../shaders/points/neighbors/measure.wgsl"));
    format!("{text}\nfn apart(d: f32) -> f32 {{ return {apart}; }}\n")
}

/// A search called `name`, in which `visit` says what is done with sources in reach: `start#`, `admit#`, `finish#` for each
/// slot. `callback` is a caller's text, which is not touched. Arrays of the tree and of the queries are bound first.
pub(super) fn search(name: &str, shape: Shape, visit: &str, callback: &str) -> KernelSource {
    let Shape { form, dims, own, walk, wide } = shape;
    let together = include_str!("../../../shaders/points/neighbors/together.wgsl");
    let alone = include_str!("../../../shaders/points/neighbors/alone.wgsl");
    let mut lanes = if form.lanes > 1 { piece(together) } else { piece(alone) }.to_string();
    for word in 0..8 {
        let part = format!("subgroupShuffle(word{}, {}u)", word / form.lanes, word % form.lanes);
        lanes = lanes.replace(&format!("WORD_{word}"), &part);
    }
    let point = |array: &str| {
        let word = |axis: usize| match axis < dims {
            true => format!("load_{array}({dims}u * i + {axis}u)"),
            false => "0.0".into(),
        };
        format!("load_unit * vec3<f32>({}, {}, {})", word(0), word(1), word(2))
    };
    let own_leaf = match own && matches!(walk, Traversal::Near | Traversal::NearOrMark | Traversal::NearCounted) {
        true => format!("group_of_queries * {}u / LEAF", form.queries()),
        false => "NONE".into(),
    };
    let first_leaf = match walk {
        Traversal::Onward => "load_cursor(number)".into(),
        Traversal::Later => format!("number * {}u / LEAF", form.queries()),
        Traversal::LaterOnward | Traversal::Links => {
            format!("max(load_cursor(number), number * {}u / LEAF)", form.queries())
        }
        _ => "0u".into(),
    };
    let leave = match walk {
        Traversal::NearOrMark => "store_cursor(number, select(NONE, 0u, stopped));",
        Traversal::Onward | Traversal::LaterOnward | Traversal::Links => {
            "store_cursor(number, select(NONE, begin_at, stopped));"
        }
        Traversal::NearCounted => "store_cursor(number, select(leaves, NONE, stopped));",
        Traversal::Near | Traversal::Ordered | Traversal::Later => "",
    };
    let order = match walk {
        Traversal::Near | Traversal::NearOrMark | Traversal::NearCounted => {
            include_str!("../../../shaders/points/neighbors/nearest_first.wgsl")
        }
        _ => include_str!("../../../shaders/points/neighbors/in_order.wgsl"),
    };
    let wanted = match walk.once() {
        true => "extractBits(hits, 0u, u32(clamp(i32(j) - i32(first_row), 0, 32)))",
        false => "hits",
    };
    let constants = format!(
        "const LANES: u32 = {}u;\nconst SLOTS: u32 = {}u;\n\
         fn source_at(i: u32) -> vec3<f32> {{ return {}; }}\n\
         fn query_at(i: u32) -> vec3<f32> {{ return {}; }}\n\
         fn number_of(i: u32) -> u32 {{ return load_{}(i); }}\n\
         fn own_leaf(group_of_queries: u32) -> u32 {{ return {own_leaf}; }}\n\
         fn first_leaf(number: u32) -> u32 {{ return {first_leaf}; }}\n\
         fn leave(number: u32) {{ {leave} }}\n\
         fn wanted_hits(j: u32) -> u32 {{ return {wanted}; }}\n\
         const BOUNDED: bool = {};\n",
        form.lanes,
        form.slots,
        point("source"),
        point(if own { "source" } else { "query" }),
        if own { "order" } else { "number" },
        walk.keeps(),
    );
    let main = if form.lanes > 1 {
        "    lane = local;\n    search(params.first + group_number(id, count));\n"
    } else {
        "    lane = 0u;\n    search(params.first + group_number(id, count) * GROUP + local);\n"
    };
    let search = piece(include_str!("../../../shaders/points/neighbors/search.wgsl"));
    let reach = if walk == Traversal::Links {
        ""
    } else {
        piece(include_str!("../../../shaders/points/neighbors/own_reach.wgsl"))
    };
    let body = format!("{}{search}{}{lanes}{reach}{visit}", measure(wide), piece(order));
    let body = repeat(&repeat(&body, '#', form.slots), '%', form.children());
    let text = format!(
        "{constants}{body}\n{callback}\n@compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) id: vec3<u32>,\n    \
         @builtin(num_workgroups) count: vec3<u32>,\n    @builtin(local_invocation_index) local: u32,\n) {{\n{main}}}\n"
    );
    let access = if walk == Traversal::Links { Access::Atomic } else { Access::Read };
    let source = KernelSource::new(format!("neighbors::{name}"), text)
        .fields(PARAMS)
        .group(form.group())
        .array("source", Element::F32, Access::Read)
        .array("order", Element::U32, access)
        .array("box", Element::U32, Access::Read);
    let source = match own {
        true => source,
        false => source.array("query", Element::F32, Access::Read).array("number", Element::U32, Access::Read),
    };
    if walk.keeps() { source.array("cursor", Element::U32, Access::ReadWrite) } else { source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_lines_and_functions_are_repeated() {
        let text =
            "var a#: u32;\nfn f#(x: u32) {\n    if x { return; }\n    y# = x;\n}\nfn g() {\n    f#(1u);\n    h();\n}\n";
        let want = "var a0: u32;\nvar a1: u32;\nfn f0(x: u32) {\n    if x { return; }\n    y0 = x;\n}\nfn f1(x: u32) {\n    \
                    if x { return; }\n    y1 = x;\n}\n\
                    fn g() {\n    f0(1u);\n    f1(1u);\n    h();\n}\n";
        assert_eq!(repeat(text, '#', 2), want);
        assert_eq!(repeat("fn f#() { g(); }\n", '#', 2), "fn f0() { g(); }\nfn f1() { g(); }\n");
    }
}
