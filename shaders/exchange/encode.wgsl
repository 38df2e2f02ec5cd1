// Values of a part as blocks of 16-bit integers.
//
// Layout: `plain` holds a part of `count` words (bits of f32) from `start` on; in `coded` it begins at `target_start`, as blocks
// of 64 values: one word with the step of the block, a power of two as f32, then the values in steps, two per word, the
// first in the low half. The last block is as long as its values need.
// A block that holds a NaN or an infinity has the step NaN.
// Workgroup: GROUP invocations, one block each. No workgroup memory. Every operation is exact or a rounding to the nearest
// integer: the same bits on all devices.

var<uniform> params: Params;
var<storage, read> plain: array<u32>;
var<storage, read_write> coded: array<u32>;

const BLOCK = 64u;
const NOT_FINITE = 0xffu;

fn magnitude(i: u32) -> u32 { return load_plain(i) & 0x7fffffffu; }

// A value in steps.
fn steps(i: u32, inverse: f32) -> u32 {
    return bitcast<u32>(clamp(i32(round(bitcast<f32>(load_plain(i)) * inverse)), -32767, 32767));
}

fn each_invocation(block: u32) {
    let first = params.start + block * BLOCK;
    let values = min(params.count - block * BLOCK, BLOCK);
    let at = params.target_start + block * (1u + BLOCK / 2u);

    // Magnitudes order as their bits do, NaN and infinities above all.
    var largest = 0u;
    for (var i = 0u; i < values; i++) {
        largest = max(largest, magnitude(first + i));
    }
    let exponent = largest >> 23u;
    if exponent == NOT_FINITE {
        store_coded(at, 0x7fc00000u);
        for (var i = 0u; i < values; i += 2u) {
            store_coded(at + 1u + i / 2u, 0u);
        }
        return;
    }
    // The largest becomes 2^14 to 2^15 steps. The least step is the least normal number.
    let e = max(exponent, 15u) - 14u;
    let inverse = bitcast<f32>((254u - e) << 23u);
    store_coded(at, e << 23u);
    for (var i = 0u; i < values; i += 2u) {
        var word = steps(first + i, inverse) & 0xffffu;
        if i + 1u < values {
            word |= steps(first + i + 1u, inverse) << 16u;
        }
        store_coded(at + 1u + i / 2u, word);
    }
}

#each_invocation params.blocks
