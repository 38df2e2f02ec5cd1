// Codes: words of `params.code_bits` bits in the order of 64-bit keys, for as many different ones as can be.
//
// Layout: `codes[i]` belongs to key i. Unless the sample is crowded (splitters.wgsl), a code is the leading bits of its key. Otherwise its upper
// bits say between which splitters the key lies and the `params.inner_bits` lower ones where there: 0 for a key that equals
// the splitter, else 1 and more, proportional to the distance. Keys are dense where splitters are, and distances small.
// Workgroup: 256 invocations, `params.chunk` keys; 8 KiB of workgroup memory for the splitters.

var<uniform> params: Params;
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read> sample: array<u32>;
var<storage, read_write> codes: array<u32>;

#import gpu::counted
#import gpu::sort::wide_key
#import gpu::sort::leading_bits

var<workgroup> highs: array<u32, 1024>;
var<workgroup> lows: array<u32, 1024>;

// Where the codes of the first splitter begin, and where those of the last end: further keys have the codes of the ends.
var<private> lower_end: vec2<u32>;
var<private> upper_end: vec2<u32>;

fn splitter(i: u32) -> vec2<u32> { return vec2<u32>(highs[i], lows[i]); }

fn least(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if precedes(a, b) { return a; }
    return b;
}

/// As far beyond the first and last splitters as an eighth of the sample reaches on their other sides, or as keys can be.
fn set_ends() {
    let eighth = (params.splitters + 6u) / 8u;
    let first = splitter(0u);
    let last = splitter(params.splitters - 1u);
    lower_end = minus(first, least(minus(splitter(eighth), first), first));
    let most = vec2<u32>(params.high_mask, 0xffffffffu);
    let free = minus(most, last);
    upper_end = minus(most, minus(free, least(minus(last, splitter(params.splitters - 1u - eighth)), free)));
}

/// The last splitter that is not above the key; the first if there is none.
fn splitter_of(key: vec2<u32>) -> u32 {
    var found = 0u;
    for (var step = params.splitters >> 1u; step > 0u; step = step >> 1u) {
        let next = found + step;
        if !precedes(key, splitter(next)) { found = next; }
    }
    return found;
}

fn code_of(key: vec2<u32>) -> u32 {
    let found = splitter_of(key);
    var begin = lower_end;
    if found > 0u { begin = splitter(found); }
    var end = upper_end;
    if found + 1u < params.splitters { end = splitter(found + 1u); }
    let span = minus(end, begin);
    let distance = least(minus(key, least(begin, key)), span);
    let bits = select(32u - countLeadingZeros(span.y), 64u - countLeadingZeros(span.x), span.x > 0u);
    let shift = max(bits, params.inner_bits) - params.inner_bits;
    let inner = 1u + min(shifted(distance, shift), (1u << params.inner_bits) - 2u);
    let equals = found > 0u && key.x == begin.x && key.y == begin.y;
    return (found << params.inner_bits) | select(inner, 0u, equals);
}

fn each_workgroup(number: u32, lane: u32) {
    let last = counted();
    let begin = min(number * params.chunk, last);
    let end = begin + min(params.chunk, last - begin);
    let dense = load_sample(2u * params.splitters) > 0u;
    if dense && begin < end {
        for (var i = lane; i < params.splitters; i += GROUP) {
            highs[i] = load_sample(i);
            lows[i] = load_sample(params.splitters + i);
        }
    }
    workgroupBarrier();
    if dense {
        set_ends();
        for (var i = begin + lane; i < end; i += GROUP) { store_codes(i, code_of(wide_key(i))); }
    } else {
        for (var i = begin + lane; i < end; i += GROUP) { store_codes(i, leading_bits(wide_key(i))); }
    }
}

#each_workgroup
