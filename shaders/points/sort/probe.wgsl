// How many sorted keys are at most each of some others, the probes, found by halving.
//
// Layout: `high` and `low` are the words of the keys, ascending; `probe_high` and `probe_low` those
// of the probes, in any order; `places` gets a number per probe.
// Workgroup: GROUP invocations, ITEMS probes each; up to 32 halvings of two loads. No workgroup
// memory.

var<uniform> params: Params;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> probe_high: array<u32>;
var<storage, read> probe_low: array<u32>;
var<storage, read_write> places: array<u32>;

fn each(i: u32) {
    let probe = vec2<u32>(load_probe_high(i), load_probe_low(i));
    var start = 0u;
    var end = params.keys;
    while start < end {
        let middle = start + (end - start) / 2u;
        let key = load_high(middle);
        if key < probe.x || (key == probe.x && load_low(middle) <= probe.y) { start = middle + 1u; } else { end = middle; }
    }
    store_places(i, start);
}

#each params.probes
