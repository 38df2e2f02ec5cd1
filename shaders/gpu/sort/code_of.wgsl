// The code of a key between splitters: `splitter(i)` is number i of `params.splitters` in ascending order. See group_codes.wgsl.
//
// $ counts halvings of the most splitters that there may be; where there are fewer, the last steps are 0 and change nothing.

#import gpu::sort::two_words
#import gpu::sort::exact

// Where the codes of the first splitter begin, and where those of the last end: further keys have the codes of the ends.
var<private> lower_end: vec2<u32>;
var<private> upper_end: vec2<u32>;

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

/// The splitter a step behind `found`, if it is not above the key.
fn further(key: vec2<u32>, found: u32, step: u32) -> u32 { return select(found, found + step, !precedes(key, splitter(found + step))); }

/// The last splitter that is not above the key; the first if there is none.
fn splitter_of(key: vec2<u32>) -> u32 {
    var found = 0u;
    found = further(key, found, params.splitters >> ($u + 1u));
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
    // A key that equals the splitter, or that lies between two so near that each key between has a code of its own.
    let equals = key.x == begin.x && key.y == begin.y;
    let is_exact = found > 0u && (equals || (found + 1u < params.splitters && bits <= params.inner_bits));
    let code = (found << params.inner_bits) | select(inner, 0u, equals && found > 0u);
    return code | select(0u, EXACT, is_exact);
}
