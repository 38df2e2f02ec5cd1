// Merges runs of sorted keys two by two: run 0 with run 1, run 2 with run 3, and so on; a last run
// without a partner is copied.
//
// Layout: run `r` is elements `starts[r]..starts[r + 1]` of `high`, `low` (the words of the keys,
// ascending) and `index`; `to_high`, `to_low` and `to_index` receive the merged runs in place of
// each pair. Equal keys of a pair stay in the order of the runs. In the first pass the index of an
// element is its place.
// Workgroup: GROUP invocations, ITEMS elements each; up to 32 halvings to find the run and 32 of
// two loads in its partner. No workgroup memory.

var<uniform> params: Params;
var<storage, read> starts: array<u32>;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> index: array<u32>;
var<storage, read_write> to_high: array<u32>;
var<storage, read_write> to_low: array<u32>;
var<storage, read_write> to_index: array<u32>;

fn each(i: u32) {
    // The last run that does not begin behind the element; no run is empty.
    var run = 0u;
    var beyond = params.runs;
    while beyond - run > 1u {
        let middle = run + (beyond - run) / 2u;
        if load_starts(middle) <= i { run = middle; } else { beyond = middle; }
    }
    let own = vec2<u32>(load_high(i), load_low(i));
    let is_second = (run & 1u) == 1u;
    // Elements of the partner that come first: those with a smaller key, and for the second run
    // those with an equal one.
    let partner = min(run ^ 1u, params.runs);
    let first = load_starts(min(partner, params.runs));
    let last = load_starts(min(partner + 1u, params.runs));
    var start = first;
    var end = last;
    while start < end {
        let middle = start + (end - start) / 2u;
        let key = vec2<u32>(load_high(middle), load_low(middle));
        let is_less = key.x < own.x || (key.x == own.x && key.y < own.y);
        if is_less || (is_second && key.x == own.x && key.y == own.y) { start = middle + 1u; } else { end = middle; }
    }
    // A first run moves back by what precedes it in its partner, a second one forward to the place
    // of its pair.
    let to = select(i + (start - first), i - (last - start), is_second);
    store_to_high(to, own.x);
    store_to_low(to, own.y);
    var number = i;
    if params.is_first == 0u { number = load_index(i); }
    store_to_index(to, number);
}

#each params.count
