// Codes for GPUs: words of `params.code_bits` bits in the order of 64-bit keys, for as many
// different ones as can be, and the histogram of their digits.
//
// Layout: `codes[i]` belongs to key i. Unless the sample is crowded (splitters.wgsl), a code is the
// leading bits of its key. Otherwise its upper bits say between which splitters the key lies and
// the `params.inner_bits` lower ones where there: 0 for a key that equals the splitter, else 1 and
// more, proportional to the distance. Keys are dense where splitters are, and distances small. The
// highest bit, which codes do not use, says of these whether the code is exact. `table` as in
// sweep.wgsl; its histogram was 0.
// Workgroup: 256 invocations, `params.chunk` keys; 12 KiB of workgroup memory for the splitters and
// the histogram.

var<uniform> params: Params;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read> sample: array<u32>;
var<storage, read_write> codes: array<u32>;
var<storage, read_write> table: array<atomic<u32>>;

#import gpu::counted
#import gpu::sort::wide_key
#import gpu::sort::leading_bits
#import gpu::sort::code_of
#import gpu::sort::histogram

var<workgroup> highs: array<u32, SPLITTERS>;
var<workgroup> lows: array<u32, SPLITTERS>;

fn splitter_at(node: u32) -> vec2<u32> { return vec2<u32>(highs[node], lows[node]); }

fn write(i: u32, code: u32) {
    store_codes(i, code);
    tally(code & ((1u << params.code_bits) - 1u));
}

fn each_workgroup(number: u32, lane: u32) {
    let last = counted();
    let begin = min(number * params.chunk, last);
    let end = begin + min(params.chunk, last - begin);
    let crowded = load_sample(2u * params.splitters) > 0u;
    clear_histogram(lane);
    if crowded && begin < end {
        for (var i = lane; i < params.splitters; i += GROUP) {
            let splitter = sampled(number_of(i));
            highs[i] = splitter.x;
            lows[i] = splitter.y;
        }
    }
    workgroupBarrier();
    if crowded {
        set_ends();
        for (var i = begin + lane; i < end; i += GROUP) { write(i, code_of(wide_key(i))); }
    } else {
        for (var i = begin + lane; i < end; i += GROUP) { write(i, leading_bits_of(i)); }
    }
    workgroupBarrier();
    add_histogram(lane);
}

#each_workgroup
