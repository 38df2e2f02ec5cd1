// Computes the factors of the directions of a preconditioner from the sums of products with them,
// with the same bits as the host. With `first` the factors are products of the sums over fields and
// over others with the matrices of the preconditioner. Otherwise they are the differences of the
// wanted sums over others and the sums that the first update has reached.
//
// Layout: the layout of `words` is in direction_words.wgsl. `matrices` holds the inverses over
// others and over all parts, params.directions rows each, of numbers of four words as in
// soft_double.wgsl.
// Workgroup: one, of DIRECTIONS invocations, one direction each. Workgroup memory: nine words for
// each direction.

var<uniform> params: Params;
#if first
var<storage, read> matrices: array<u32>;
#endif
var<storage, read_write> words: array<u32>;

#import gpu::soft_double
#import inference::direction_words

var<workgroup> greatest: array<u32, DIRECTIONS>;
#if first
var<workgroup> of_others: array<Double, DIRECTIONS>;
var<workgroup> of_all: array<Double, DIRECTIONS>;
#endif

fn sum_of(kind: u32, n: u32, bits: u32) -> Double {
    let at = SUMS + 2u * (kind * DIRECTIONS + n);
    let exponent = top_of(load_words(MOST + kind * DIRECTIONS + n)) - i32(bits);
    return of_integer(vec2<u32>(load_words(at), load_words(at + 1u)), exponent);
}

#if first
/// Returns a row of a matrix times the sums over others, or over all parts.
fn row(matrix: u32, n: u32) -> Double {
    var found = Double(0u, 0u, 0, 0u);
    for (var k = 0u; k < params.directions; k++) {
        let at = 4u * ((matrix * params.directions + n) * params.directions + k);
        let words = vec4<u32>(load_matrices(at), load_matrices(at + 1u), load_matrices(at + 2u), load_matrices(at + 3u));
        var x = of_others[k];
        if matrix == 1u { x = of_all[k]; }
        found = sum(found, product(Double(words.x, words.y, i32(words.z), words.w), x));
    }
    return found;
}
#endif

/// Returns the bits of the f32 next to `a`, whatever its magnitude is.
fn single_near(a: Double) -> u32 {
    let normal = single_of(a);
    if normal != 0u || (a.low | a.high) == 0u { return normal; }
    let sign = a.sign << 31u;
    if a.exponent > 0 { return sign | 0x7f800000u; }
    // In fourths of the least number.
    let fourths = down(vec2<u32>(a.low, a.high), u32(min(-151 - a.exponent, 64))).x;
    let rest = fourths & 3u;
    let kept = fourths >> 2u;
    return sign | (kept + select(0u, 1u, rest == 3u || (rest == 2u && (kept & 1u) == 1u)));
}

fn store_factor(kind: u32, n: u32, value: Double, is_finite: bool) {
    store_words(FACTORS + kind * DIRECTIONS + n, select(0x7fc00000u, single_near(value), is_finite));
}

fn clear(kind: u32, n: u32) {
    store_words(MOST + kind * DIRECTIONS + n, 0u);
    store_words(SUMS + 2u * (kind * DIRECTIONS + n), 0u);
    store_words(SUMS + 2u * (kind * DIRECTIONS + n) + 1u, 0u);
}

fn each_workgroup(number: u32, lane: u32) {
    greatest[lane] = max(load_words(MOST + FIELDS * DIRECTIONS + lane), load_words(MOST + OTHERS * DIRECTIONS + lane));
    let own = sum_of(OTHERS, lane, params.other_bits);
#if first
    of_others[lane] = own;
    of_all[lane] = sum(own, sum_of(FIELDS, lane, params.field_bits));
#endif
    workgroupBarrier();
    // A product that is not finite makes all factors NaN.
    var most = 0u;
    for (var n = 0u; n < DIRECTIONS; n++) { most = max(most, greatest[n]); }
    let is_finite = most < 0x7f800000u;
    let wanted_at = WANTED + 4u * lane;
#if first
    if lane < params.directions {
        let coarse = row(1u, lane);
        let wanted = sum(row(0u, lane), coarse);
        let scale = Double(params.scale.x, params.scale.y, i32(params.scale.z), params.scale.w);
        store_words(wanted_at, wanted.low);
        store_words(wanted_at + 1u, wanted.high);
        store_words(wanted_at + 2u, u32(wanted.exponent));
        store_words(wanted_at + 3u, wanted.sign);
        store_factor(OTHERS, lane, sum(wanted, opposite(quotient(own, scale))), is_finite);
        store_factor(FIELDS, lane, coarse, is_finite);
    }
#else
    if lane < params.directions {
        let exponent = i32(load_words(wanted_at + 2u));
        let wanted = Double(load_words(wanted_at), load_words(wanted_at + 1u), exponent, load_words(wanted_at + 3u));
        store_factor(OTHERS, lane, sum(wanted, opposite(own)), is_finite);
    }
#endif
    clear(FIELDS, lane);
    clear(OTHERS, lane);
}

#each_workgroup
