// Bits of cells, interleaved: (high, low) words, x in the lowest bit.

/// Bits 0 to 10 at every third place.
fn spread3(n: u32) -> u32 {
    var v = n & 0x7ffu;
    v = (v | (v << 16u)) & 0x070000ffu;
    v = (v | (v << 8u)) & 0x0700f00fu;
    v = (v | (v << 4u)) & 0x430c30c3u;
    return (v | (v << 2u)) & 0x49249249u;
}

/// Bits 0 to 15 at every second place.
fn spread2(n: u32) -> u32 {
    var v = n & 0xffffu;
    v = (v | (v << 8u)) & 0x00ff00ffu;
    v = (v | (v << 4u)) & 0x0f0f0f0fu;
    v = (v | (v << 2u)) & 0x33333333u;
    return (v | (v << 1u)) & 0x55555555u;
}

/// Cells of 21 bits. The low word holds 11 bits of x and y and 10 of z.
fn interleave3(x: u32, y: u32, z: u32) -> vec2<u32> {
    let low = spread3(x) | (spread3(y) << 1u) | (spread3(z & 0x3ffu) << 2u);
    let high = spread3(z >> 10u) | (spread3(x >> 11u) << 1u) | (spread3(y >> 11u) << 2u);
    return vec2<u32>(high, low);
}

/// Cells of 31 bits.
fn interleave2(x: u32, y: u32) -> vec2<u32> {
    return vec2<u32>(spread2(x >> 16u) | (spread2(y >> 16u) << 1u), spread2(x) | (spread2(y) << 1u));
}
