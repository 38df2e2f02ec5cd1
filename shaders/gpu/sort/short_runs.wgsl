// Puts short runs of keys with equal codes in order of the keys.
//
// Layout: `codes` holds the sorted codes, `order` the keys' indices, `high` and `low` the keys by
// index. A run is sorted by insertion, in place. With `listed`, longer runs are listed in `runs`
// for alone.wgsl: first key and number of keys; `tied` counts their keys and the runs.
// Workgroup: GROUP invocations, `params.chunk` consecutive codes each; a run belongs to the one
// that has its first code. 64 bytes of private memory, no workgroup memory.

var<uniform> params: Params;
var<storage, read> codes: array<u32>;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read> sample: array<u32>;
var<storage, read_write> order: array<u32>;
#if listed
var<storage, read_write> runs: array<u32>;
var<storage, read_write> tied: array<atomic<u32>>;
#endif

#import gpu::counted
#import gpu::sort::wide_key
#import gpu::sort::tied

const LONGEST: u32 = 2u * BLOCK - 2u;
// Runs that are found before they are sorted.
const FOUND: u32 = 16u;

var<private> found: array<u32, 16>;

#if listed
/// Lists the run that begins with `first`, and has more than LONGEST keys.
fn list(first: u32, last: u32) {
    let code = code_at(first);
    // The run has the keys before `end`, and not the one at `beyond`.
    var end = first + LONGEST;
    var beyond = last;
    while beyond - end > 1u {
        let middle = end + (beyond - end) / 2u;
        if code_at(middle) == code { end = middle; } else { beyond = middle; }
    }
    if code_at(end) == code { end++; }
    let place = add_tied(1u, 1u);
    store_runs(2u * place, first);
    store_runs(2u * place + 1u, end - first);
    add_tied(0u, end - first);
}
#endif

/// Returns the number of keys of the run that begins with `first`, 0 if it is long.
fn length_of(first: u32, last: u32) -> u32 {
    let code = code_at(first);
    var length = 1u;
    while length <= LONGEST && first + length < last {
        if code_at(first + length) != code { break; }
        length++;
    }
#if listed
    if length > LONGEST { list(first, last); }
    return select(length, 0u, length > LONGEST);
#else
    // To the next block.
    let rest = (BLOCK - first % BLOCK) % BLOCK;
    return select(length, 0u, length >= rest + BLOCK);
#endif
}

fn settle(first: u32, last: u32) {
    let length = length_of(first, last);
    for (var j = 1u; j < length; j++) {
        let index = load_order(first + j);
        let key = wide_key(index);
        var at = first + j;
        while at > first {
            let before = load_order(at - 1u);
            if !precedes(key, wide_key(before)) { break; }
            store_order(at, before);
            at--;
        }
        if at < first + j { store_order(at, index); }
    }
}

fn each_invocation(part: u32) {
    let last = counted();
    if part * params.chunk >= last { return; }
    let begin = part * params.chunk;
    let end = begin + min(params.chunk, last - begin);
    set_counting();
    var here = code_at(begin);
    var starts = true;
    if begin > 0u { starts = code_at(begin - 1u) != here; }
    var i = begin;
    while i < end {
        // The next runs are looked for first and sorted then: a software renderer executes what
        // stands in a condition, masked, for every key.
        var number = 0u;
        while i < end && number < FOUND {
            var next = ~here;
            if i + 1u < last { next = code_at(i + 1u); }
            let ties = next == here;
            found[number] = i;
            number += select(0u, 1u, starts & ties & leaves_open(here));
            starts = !ties;
            here = next;
            i++;
        }
        for (var k = 0u; k < number; k++) { settle(found[k], last); }
    }
}

#each_invocation params.parts
