// Normal numbers of random words in integers: the f32 nearest to what the host computes in f64, on
// any device.
//
// Philox4x32-10 (Salmon et al. 2011) makes four words of a counter and a seed, these two numbers in
// (0, 1], and Box and Muller's transform a normal one: sqrt(-2 ln u) cos(2 pi v). All is in fixed
// point with 64 bits: ln by a table and 8 terms, the root by one step from that of an f32, cosine
// and sine by 10 terms over an eighth of a turn. The error is below 2^-47, that of f64 below 2^-46;
// numbers within 2^-45 of the middle between two f32 are not sure: some 15 in a million.
//
// The importing kernel declares `table`: three words for each 128th from 1 to 2: a number c of 16
// bits behind the point, at least the inverse, and -ln c times 2^63, low word first.

/// An unsigned integer of two words.
struct Wide {
    low: u32,
    high: u32,
}

fn add(a: Wide, b: Wide) -> Wide {
    let low = a.low + b.low;
    return Wide(low, a.high + b.high + select(0u, 1u, low < a.low));
}

fn subtract(a: Wide, b: Wide) -> Wide {
    return Wide(a.low - b.low, a.high - b.high - select(0u, 1u, a.low < b.low));
}

/// a 2^n, for 0 <= n < 64.
fn left(a: Wide, n: u32) -> Wide {
    let m = n & 31u;
    let within = Wide(a.low << m, (a.high << m) | ((a.low >> 1u) >> (31u - m)));
    return choose(within, Wide(0u, within.low), n >= 32u);
}

/// a / 2^n, for 0 <= n < 64.
fn right(a: Wide, n: u32) -> Wide {
    let m = n & 31u;
    let within = Wide((a.low >> m) | ((a.high << 1u) << (31u - m)), a.high >> m);
    return choose(within, Wide(within.high, 0u), n >= 32u);
}

fn leading_zeros(a: Wide) -> u32 {
    return select(countLeadingZeros(a.high), 32u + countLeadingZeros(a.low), a.high == 0u);
}

/// b where `second`, else a.
fn choose(a: Wide, b: Wide, second: bool) -> Wide {
    return Wide(select(a.low, b.low, second), select(a.high, b.high, second));
}

fn less(a: Wide, b: Wide) -> bool { return a.high < b.high || (a.high == b.high && a.low < b.low); }

/// Returns the difference, whichever is larger.
fn apart(a: Wide, b: Wide) -> Wide { return choose(subtract(a, b), subtract(b, a), less(a, b)); }

/// Returns the product of two words.
fn product(a: u32, b: u32) -> Wide {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return Wide(a * b, (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}

/// a b / 2^64, less than 3 too small.
fn scaled(a: Wide, b: Wide) -> Wide {
    let one = product(a.high, b.low);
    let other = product(a.low, b.high);
    let high = add(product(a.high, b.high), Wide(one.high, 0u));
    let carry = select(0u, 1u, one.low + other.low < one.low);
    return add(high, add(Wide(other.high, 0u), Wide(carry, 0u)));
}

/// a b / 2^n for 0 < n < 32 and a result below 2^64.
fn by_word(a: Wide, b: u32, n: u32) -> Wide {
    let low = product(a.low, b);
    let high = add(product(a.high, b), Wide(low.high, 0u));
    return Wide((low.low >> n) | (high.low << (32u - n)), (high.low >> n) | (high.high << (32u - n)));
}

/// Ten rounds of Philox.
fn philox(counter: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = seed;
    for (var round = 0u; round < 10u; round++) {
        let even = product(0xd2511f53u, c.x);
        let odd = product(0xcd9e8d57u, c.z);
        c = vec4<u32>(odd.high ^ c.y ^ k.x, odd.low, even.high ^ c.w ^ k.y, even.low);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

/// Returns the number in (0, 1] that f64 makes of two words, times 2^54: the middle of one of 2^53
/// parts, rounded to 53 bits.
fn uniform_number(high: u32, low: u32) -> Wide {
    let bits = Wide((high << 21u) | (low >> 11u), high >> 11u);
    let middle = Wide((bits.low << 1u) | 1u, (bits.high << 1u) | (bits.low >> 31u));
    let even = left(add(bits, Wide(bits.low & 1u, 0u)), 1u);
    let rounded = high >= 0x80000000u;
    return choose(middle, even, rounded);
}

/// term - x y, of numbers times 2^63 and x times 2^64.
fn horner(low: u32, high: u32, x: Wide, y: Wide) -> Wide { return subtract(Wide(low, high), scaled(x, y)); }

/// -2 ln of u 2^-54, times 2^57.
fn minus_two_ln(u: Wide) -> Wide {
    // u = 2^(9 - zeros) times a number from 1 to 2, which times c is 1 + r with 0 <= r < 2^-6.9.
    let zeros = leading_zeros(u);
    let number = left(u, zeros);
    let entry = 3u * ((number.high >> 24u) & 0x7fu);
    let c = load_table(entry);
    let low = product(number.low, c);
    let high = add(product(number.high, c), Wide(low.high, 0u));
    let r = Wide((low.low >> 15u) | (high.low << 17u), (high.low >> 15u) | ((high.high - 0x8000u) << 17u));
    var y = Wide(0u, 0x10000000u);
    y = horner(0x49249249u, 0x12492492u, r, y);
    y = horner(0x55555555u, 0x15555555u, r, y);
    y = horner(0x9999999au, 0x19999999u, r, y);
    y = horner(0u, 0x20000000u, r, y);
    y = horner(0xaaaaaaabu, 0x2aaaaaaau, r, y);
    y = horner(0u, 0x40000000u, r, y);
    y = horner(0u, 0x80000000u, r, y);
    let ln = add(scaled(r, y), Wide(load_table(entry + 1u), load_table(entry + 2u)));
    // Twos of u: ln 2 times 2^58.
    let twos = product(0xdf473de7u, zeros - 9u);
    return subtract(Wide(twos.low, twos.high + 0x02c5c85fu * (zeros - 9u)), right(ln, 5u));
}

/// Returns the root of y 2^-64, for a quarter and more, times 2^63.
fn root(y: Wide) -> Wide {
    // From an inverse root of some 20 bits: y a^2 = 1 - e, and the root of y is y a / sqrt(1 - e) =
    // y a (1 + e / 2 + 3 e^2 / 8 + ..).
    let a = u32(min(inverseSqrt(f32(y.high) * 2.3283064e-10), 2.0) * 1073741824.0);
    let near = by_word(y, a, 31u);
    let ratio = scaled(y, product(a, a));
    let one = Wide(0u, 0x10000000u);
    let above = less(one, ratio);
    let off = apart(one, ratio);
    let linear = right(scaled(near, left(off, 16u)), 13u);
    // Some 2^-41 of it, in f32.
    let e = (f32(off.high) * 4294967296.0 + f32(off.low)) * 8.6736174e-19;
    let square = Wide(u32(f32(near.high) * 4.6566129e-10 * e * e * 0.375 * 9.223372e18), 0u);
    let corrected = add(near, square);
    return choose(add(corrected, linear), subtract(corrected, linear), above);
}

/// The size of cos(2 pi v 2^-54) times 2^63, and whether it is negative.
struct Cosine {
    size: Wide,
    negative: bool,
}

fn cosine(v: Wide) -> Cosine {
    let turn = left(v, 10u);
    // The nearest quarter, and the rest of at most an eighth of a turn.
    let quarter = (turn.high + 0x20000000u) >> 30u;
    let rest = Wide(turn.low, turn.high - (quarter << 30u));
    let below = rest.high >= 0x80000000u;
    let size = choose(rest, subtract(Wide(0u, 0u), rest), below);
    // The angle, times pi / 2 for a quarter turn.
    let angle = scaled(left(size, 2u), Wide(0x2168c235u, 0xc90fdaa2u));
    let x = left(scaled(angle, angle), 2u);
    let sine = (quarter & 1u) == 1u;
    var y = Wide(select(0x5a1u, 0x4cu, sine), 0u);
    y = horner(select(0x6b9fdu, 0x654bu, sine), 0u, x, y);
    y = horner(select(0x064e5d2au, 0x006b9fd0u, sine), 0u, x, y);
    y = horner(select(0x7bb63bfeu, 0x5849184fu, sine), select(4u, 0u, sine), x, y);
    y = horner(select(0xc9f6ef14u, 0xcc8acfebu, sine), select(0x24fu, 0x35u, sine), x, y);
    y = horner(select(0x00d00d01u, 0xe3a556c7u, sine), select(0xd00du, 0x171du, sine), x, y);
    y = horner(select(0x2d82d82eu, 0x06806807u, sine), select(0x2d82d8u, 0x68068u, sine), x, y);
    y = horner(select(0x55555555u, 0x11111111u, sine), select(0x05555555u, 0x01111111u, sine), x, y);
    y = horner(select(0u, 0x55555555u, sine), select(0x40000000u, 0x15555555u, sine), x, y);
    y = horner(0u, 0x80000000u, x, y);
    let times = left(scaled(angle, y), 1u);
    // cos, -sin, -cos, sin of the rest.
    let turned = (quarter == 1u && !below) || quarter == 2u || (quarter == 3u && below);
    return Cosine(choose(y, times, sine), turned);
}

/// A normal number, and whether no error can have changed its last bit.
struct Normal {
    value: f32,
    sure: bool,
}

fn normal(words: vec4<u32>) -> Normal {
    // Times 2^56.
    let square = right(minus_two_ln(uniform_number(words.x, words.y)), 1u);
    // Also what is below 0 by an error; roots of small numbers are known too badly.
    if square.high < 0x100u || square.high >= 0x78000000u {
        return Normal(0.0, false);
    }
    // The radius is that root times 2^(4 - halves).
    let halves = leading_zeros(square) / 2u;
    let radius = root(left(square, 2u * halves));
    let direction = cosine(uniform_number(words.z, words.w));
    // Times 2^(58 + halves), below 2^62.
    let size = scaled(radius, direction.size);
    // The lowest bits that an f32 does not hold.
    let extra = 40u - min(leading_zeros(size), 40u);
    if extra < 16u + halves {
        return Normal(0.0, false);
    }
    let rounded = right(size, extra);
    let rest = subtract(size, left(rounded, extra));
    let half = left(Wide(1u, 0u), extra - 1u);
    let up = less(half, rest);
    let off = apart(half, rest);
    // 2^-45.
    let sure = less(left(Wide(1u, 0u), 13u + halves), off);
    let bits = ((extra + 91u - halves) << 23u) + rounded.low + select(0u, 1u, up);
    return Normal(bitcast<f32>(bits | select(0u, 0x80000000u, direction.negative)), sure);
}
