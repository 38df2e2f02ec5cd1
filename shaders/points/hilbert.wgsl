// The Hilbert curve by J. Skilling's transposition (AIP Conf. Proc. 707, 381, 2004): rotations
// undone from the highest bit down, then a Gray code; the bits of the result, interleaved, are the
// place on the curve. x has the highest bit.

#import points::interleave

/// One level of two axes: where `other` has the bit, the bits of `first` below it are inverted,
/// else the two exchange theirs.
fn undo(first: u32, other: u32, bit: u32) -> vec2<u32> {
    let below = bit - 1u;
    let exchange = (first ^ other) & below;
    let inverts = (other & bit) != 0u;
    return vec2<u32>(first ^ select(exchange, below, inverts), other ^ select(exchange, 0u, inverts));
}

/// At each bit the parity of the bits above it.
fn parity_above(n: u32) -> u32 {
    var p = n >> 1u;
    p ^= p >> 1u;
    p ^= p >> 2u;
    p ^= p >> 4u;
    p ^= p >> 8u;
    return p ^ (p >> 16u);
}

/// Returns the key of a cell of 21 bits per axis.
fn key3(x0: u32, y0: u32, z0: u32) -> vec2<u32> {
    var x = x0;
    var y = y0;
    var z = z0;
    for (var bit = 1u << 20u; bit > 1u; bit = bit >> 1u) {
        x ^= select(0u, bit - 1u, (x & bit) != 0u);
        let xy = undo(x, y, bit);
        let xz = undo(xy.x, z, bit);
        x = xz.x;
        y = xy.y;
        z = xz.y;
    }
    y ^= x;
    z ^= y;
    let t = parity_above(z);
    return interleave3(z ^ t, y ^ t, x ^ t);
}

/// Returns the key of a cell of 31 bits per axis.
fn key2(x0: u32, y0: u32) -> vec2<u32> {
    var x = x0;
    var y = y0;
    for (var bit = 1u << 30u; bit > 1u; bit = bit >> 1u) {
        x ^= select(0u, bit - 1u, (x & bit) != 0u);
        let xy = undo(x, y, bit);
        x = xy.x;
        y = xy.y;
    }
    y ^= x;
    let t = parity_above(y);
    return interleave2(y ^ t, x ^ t);
}
