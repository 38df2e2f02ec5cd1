// Splitters of 64-bit keys: a sample of them in ascending order, and whether leading bits would
// tell it apart.
//
// Layout: one key is taken from each of `params.splitters` equal stretches, at a place without
// pattern. `sample` receives the high words of them in order, then the low ones, then 1 if two of
// them agree in their leading bits except the last CLOSE, which seldom happens unless keys are
// dense somewhere; it was 0.
// Workgroup: 64 invocations, a key of the sample each, ranked against all; 8 KiB of workgroup
// memory.

var<uniform> params: Params;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> sample: array<atomic<u32>>;

#import gpu::counted
#import gpu::sort::wide_key
#import gpu::sort::leading_bits

const CLOSE: u32 = 5u;

var<workgroup> highs: array<u32, 1024>;
var<workgroup> lows: array<u32, 1024>;

/// Bits without pattern (a multiplication and shifts, twice).
fn scrambled(i: u32) -> u32 {
    var bits = (i + 1u) * 0x9e3779b1u;
    bits = (bits ^ (bits >> 15u)) * 0x85ebca77u;
    return bits ^ (bits >> 13u);
}

fn each_workgroup(number: u32, lane: u32) {
    let last = counted();
    let stretch = max(last / params.splitters, 1u);
    for (var i = lane; i < params.splitters; i += GROUP) {
        var key = vec2<u32>(0u);
        if last > 0u { key = wide_key(min(i * stretch + scrambled(i) % stretch, last - 1u)); }
        highs[i] = key.x;
        lows[i] = key.y;
    }
    workgroupBarrier();
    let own = number * GROUP + lane;
    if own < params.splitters {
        let key = vec2<u32>(highs[own], lows[own]);
        let leading = leading_bits(key) >> CLOSE;
        var rank = 0u;
        var alike = 0u;
        for (var i = 0u; i < params.splitters; i++) {
            let other = vec2<u32>(highs[i], lows[i]);
            let equal = other.x == key.x && other.y == key.y;
            rank += select(0u, 1u, precedes(other, key) || (equal && i < own));
            alike += select(0u, 1u, leading_bits(other) >> CLOSE == leading);
        }
        store_sample(rank, key.x);
        store_sample(params.splitters + rank, key.y);
        if alike > 1u { max_sample(2u * params.splitters, 1u); }
    }
}

#each_workgroup
