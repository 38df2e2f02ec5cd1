// Which points belong to groups that a catalogue may have: those of many members here, and those that are linked with other ranks.
//
// Layout: point `i` has the label (`high[i]`, `low[i]`), ascending; `keep[i]` is 1 where `linked[i]` is not 0 or its label occurs
// `params.least` times at least, else 0.
// Workgroup: GROUP invocations, ITEMS points each; up to 32 halvings of two loads. No workgroup memory.

var<uniform> params: Params;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> linked: array<u32>;
var<storage, read_write> keep: array<u32>;

fn label(i: u32) -> vec2<u32> { return vec2<u32>(load_high(i), load_low(i)); }

fn each(i: u32) {
    let own = label(i);
    // The first point of the group.
    var first = 0u;
    var end = i;
    while first < end {
        let middle = first + (end - first) / 2u;
        if all(label(middle) == own) { end = middle; } else { first = middle + 1u; }
    }
    let many = params.least <= params.count - first && all(label(first + params.least - 1u) == own);
    store_keep(i, u32(many || load_linked(i) > 0u));
}

#each params.count
