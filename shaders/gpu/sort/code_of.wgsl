// The code of a key between splitters. See group_codes.wgsl.
//
// Splitters are kept as a binary search tree, level by level: node 1 is the root, and nodes 2n and
// 2n + 1 are below node n; slot 0 has the first splitter, which no key is compared with.
// Invocations that ask for different nodes of a level find them in different banks (of the sixth
// level, 32 nodes, too), where halving a sorted array would ask for words of one bank (P.-V. Khuong
// and P. Morin, ACM J. Exp. Algorithmics 22, 1.3, 2017). `splitter_at(node)` is what a node has.
//
// $ counts levels of the most splitters that there may be; where there are fewer, the last ones
// change nothing.

#import gpu::sort::two_words
#import gpu::sort::exact

// Where the codes of the first splitter begin, and where those of the last end: further keys have
// the codes of the ends.
var<private> lower_end: vec2<u32>;
var<private> upper_end: vec2<u32>;

fn least(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if precedes(a, b) { return a; }
    return b;
}

fn sampled(i: u32) -> vec2<u32> { return vec2<u32>(load_sample(i), load_sample(params.splitters + i)); }

/// Returns the number of a node's splitter in ascending order.
fn number_of(node: u32) -> u32 {
    if node == 0u { return 0u; }
    let level = 31u - countLeadingZeros(node);
    return (2u * (node - (1u << level)) + 1u) * (params.splitters >> (level + 1u));
}

/// Sets the ends as far beyond the first and last splitters as an eighth of the sample reaches on
/// their other sides, or as keys can be.
fn set_ends() {
    let eighth = (params.splitters + 6u) / 8u;
    let first = sampled(0u);
    let last = sampled(params.splitters - 1u);
    lower_end = minus(first, least(minus(sampled(eighth), first), first));
    let most = vec2<u32>(params.high_mask, 0xffffffffu);
    let free = minus(most, last);
    upper_end = minus(most, minus(free, least(minus(last, sampled(params.splitters - 1u - eighth)), free)));
}

/// One level down from `place`: the node to ask next, and the nearest ones asked so far that are
/// not above the key and that are; 0 stands for none. `first` is the first node of the level.
fn descended(key: vec2<u32>, place: vec3<u32>, first: u32) -> vec3<u32> {
    let below = !precedes(key, splitter_at(place.x));
    let next = vec3<u32>(2u * place.x + u32(below), select(place.y, place.x, below), select(place.x, place.z, below));
    return select(place, next, first < params.splitters);
}

fn code_of(key: vec2<u32>) -> u32 {
    var place = vec3<u32>(1u, 0u, 0u);
    place = descended(key, place, 1u << $u);
    // The last splitter that is not above the key; the first if there is none.
    let found = place.x - params.splitters;
    var begin = lower_end;
    if place.y > 0u { begin = splitter_at(place.y); }
    var end = upper_end;
    if place.z > 0u { end = splitter_at(place.z); }
    let span = minus(end, begin);
    let distance = least(minus(key, least(begin, key)), span);
    let bits = select(32u - countLeadingZeros(span.y), 64u - countLeadingZeros(span.x), span.x > 0u);
    let shift = max(bits, params.inner_bits) - params.inner_bits;
    let inner = 1u + min(shifted(distance, shift), (1u << params.inner_bits) - 2u);
    // A key that equals the splitter, or that lies between two so near that each key between has a
    // code of its own.
    let equals = place.y > 0u && key.x == begin.x && key.y == begin.y;
    let is_exact = equals || (place.y > 0u && place.z > 0u && bits <= params.inner_bits);
    return (found << params.inner_bits) | select(inner, 0u, equals) | select(0u, EXACT, is_exact);
}
