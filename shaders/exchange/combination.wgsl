// Two numbers of an array of blocks combined as `comm::Op` says: params.op is 0 for their sum, 1
// for the least, 2 for the greatest.
//
// | form | array | numbers, by params.kind |
// |---|---|---|
// | narrow | words | 0 u32, 1 i32, 2 f32 |
// | wide | words, low one first | 0 u64, 1 i64, 2 f64, of which sums are the double form's |
// | double | f64 | f64 |
//
// The least and the greatest are found by bits, so that no driver flushes or drops anything: a NaN
// stays, the first of two equals stays.

const SUM: u32 = 0u;
const LEAST: u32 = 1u;

#if double
alias Number = f64;

fn load_number(at: u32) -> Number { return load_blocks(at); }

fn store_number(at: u32, number: Number) { store_blocks(at, number); }

fn combine(a: Number, b: Number) -> Number {
    if params.op == SUM { return a + b; }
    let first = select(a >= b, a <= b, params.op == LEAST);
    return select(b, a, first || a != a);
}
#else
#if wide
alias Number = vec2<u32>;

fn load_number(at: u32) -> Number { return vec2<u32>(load_blocks(2u * at), load_blocks(2u * at + 1u)); }

fn store_number(at: u32, number: Number) {
    store_blocks(2u * at, number.x);
    store_blocks(2u * at + 1u, number.y);
}

fn is_nan(a: Number) -> bool {
    let high = a.y & 0x7fffffffu;
    return params.kind == 2u && (high > 0x7ff00000u || (high == 0x7ff00000u && a.x != 0u));
}

// Words that are in the order of the numbers; both zeros of a float are one.
fn key(a: Number) -> Number {
    if params.kind == 0u { return a; }
    if params.kind == 1u { return vec2<u32>(a.x, a.y ^ 0x80000000u); }
    if (a.y & 0x7fffffffu) == 0u && a.x == 0u { return vec2<u32>(0u, 0x80000000u); }
    return select(vec2<u32>(a.x, a.y | 0x80000000u), ~a, a.y >= 0x80000000u);
}

fn at_most(a: Number, b: Number) -> bool { return a.y < b.y || (a.y == b.y && a.x <= b.x); }

fn combine(a: Number, b: Number) -> Number {
    if params.op == SUM {
        let low = a.x + b.x;
        return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
    }
    if is_nan(a) { return a; }
    if is_nan(b) { return b; }
    let first = key(a);
    let second = key(b);
    return select(b, a, select(at_most(second, first), at_most(first, second), params.op == LEAST));
}
#else
alias Number = u32;

fn load_number(at: u32) -> Number { return load_blocks(at); }

fn store_number(at: u32, number: Number) { store_blocks(at, number); }

fn is_nan(bits: u32) -> bool { return params.kind == 2u && (bits & 0x7fffffffu) > 0x7f800000u; }

// Bits that are in the order of the numbers; both zeros of a float are one.
fn key(bits: u32) -> u32 {
    if params.kind == 0u { return bits; }
    if params.kind == 1u { return bits ^ 0x80000000u; }
    if (bits & 0x7fffffffu) == 0u { return 0x80000000u; }
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn combine(a: Number, b: Number) -> Number {
    if params.op == SUM {
        if params.kind == 2u { return bitcast<u32>(bitcast<f32>(a) + bitcast<f32>(b)); }
        return a + b;
    }
    if is_nan(a) { return a; }
    if is_nan(b) { return b; }
    let first = select(key(a) >= key(b), key(a) <= key(b), params.op == LEAST);
    return select(b, a, first);
}
#endif
#endif
