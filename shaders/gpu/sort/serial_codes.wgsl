// Codes for software renderers. See group_codes.wgsl.
//
// Layout: as there, with `params.chunk` consecutive keys for each invocation.
// Workgroup: GROUP invocations, which keep the splitters in private memory: there a word costs a
// tenth of one of a storage buffer or of workgroup memory. No workgroup memory, no barriers.

var<uniform> params: Params;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read> sample: array<u32>;
var<storage, read_write> codes: array<u32>;

#import gpu::counted
#import gpu::sort::wide_key
#import gpu::sort::leading_bits
#import gpu::sort::code_of

var<private> highs: array<u32, SPLITTERS>;
var<private> lows: array<u32, SPLITTERS>;

fn splitter_at(node: u32) -> vec2<u32> { return vec2<u32>(highs[node], lows[node]); }

fn each_invocation(part: u32) {
    let last = counted();
    let begin = min(part * params.chunk, last);
    let end = begin + min(params.chunk, last - begin);
    if load_sample(2u * params.splitters) > 0u {
        for (var i = 0u; i < params.splitters; i++) {
            let splitter = sampled(number_of(i));
            highs[i] = splitter.x;
            lows[i] = splitter.y;
        }
        set_ends();
        for (var i = begin; i < end; i++) { store_codes(i, code_of(wide_key(i))); }
    } else if params.bits - params.code_bits != 32u {
        for (var i = begin; i < end; i++) { store_codes(i, leading_bits_of(i)); }
    }
}

#each_invocation (params.count + params.chunk - 1u) / params.chunk
