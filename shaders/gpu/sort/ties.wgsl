// Puts short runs of keys with equal high words in order of their low words, or finds that there are long runs.
//
// Layout: `high` holds the sorted high words, `order` the keys' indices, `low` the low words in the keys' own order. A
// run of up to 32 is sorted by insertion, which is stable; a longer one sets `again[0]` to the number of keys, so that
// what is recorded next sorts them all by both words.
// Workgroup: GROUP invocations, `params.chunk` consecutive keys each; a run belongs to the one that has its first key.
// 320 bytes of private memory, no workgroup memory.

var<uniform> params: Params;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> order: array<u32>;
var<storage, read_write> again: array<atomic<u32>>;

#import gpu::counted

const MOST: u32 = 32u;
// Runs that are found before they are sorted.
const FOUND: u32 = 16u;

var<private> found: array<u32, 16>;

fn settle(first: u32, last: u32) {
    let high = load_high(first);
    var length = 1u;
    while length <= MOST && first + length < last {
        if load_high(first + length) != high { break; }
        length++;
    }
    if length > MOST {
        max_again(0u, last);
        return;
    }
    var lows: array<u32, 32>;
    var indices: array<u32, 32>;
    for (var j = 0u; j < length; j++) {
        let index = load_order(first + j);
        let low = load_low(index);
        var at = j;
        while at > 0u {
            if lows[at - 1u] <= low { break; }
            lows[at] = lows[at - 1u];
            indices[at] = indices[at - 1u];
            at--;
        }
        lows[at] = low;
        indices[at] = index;
    }
    for (var j = 0u; j < length; j++) { store_order(first + j, indices[j]); }
}

fn each_invocation(part: u32) {
    let last = counted();
    if part * params.chunk >= last { return; }
    let begin = part * params.chunk;
    let end = begin + min(params.chunk, last - begin);
    var here = load_high(begin);
    var starts = true;
    if begin > 0u { starts = load_high(begin - 1u) != here; }
    var i = begin;
    while i < end {
        // The next runs are looked for first and sorted then: a software renderer executes what stands in a
        // condition, masked, for every key.
        var number = 0u;
        while i < end && number < FOUND {
            var next = ~here;
            if i + 1u < last { next = load_high(i + 1u); }
            let ties = next == here;
            found[number] = i;
            number += select(0u, 1u, starts && ties);
            starts = !ties;
            here = next;
            i++;
        }
        for (var k = 0u; k < number; k++) { settle(found[k], last); }
    }
}

#each_invocation params.parts
