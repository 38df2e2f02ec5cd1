// Values of a part as blocks of 16-bit integers.
//
// Layout: `plain` holds a part of `count` words (bits of f32) from `start` on; in `coded` it begins
// at `target_start`, as blocks of 64 values: one word with the step of the block, a power of two as
// f32, then the values in steps, two per word, the first in the low half. The last block is as long
// as its values need. A block that holds a NaN or an infinity has the step NaN.
// Workgroup: 64 invocations, 8 blocks, which are read and written as they lie in memory; 2.4 KiB of
// workgroup memory, where eight words between blocks keep their banks apart. Every operation is
// exact or a rounding to the nearest integer: the same bits on all devices.

var<uniform> params: Params;
var<storage, read> plain: array<u32>;
var<storage, read_write> coded: array<u32>;

const BLOCK = 64u;
const BLOCKS = 8u;
const PARTS = 8u;
const STRIDE = BLOCK + 8u;
const NOT_FINITE = 0xffu;

var<workgroup> values: array<u32, BLOCKS * STRIDE>;
// The largest magnitude of each eighth of a block.
var<workgroup> largest: array<u32, BLOCKS * PARTS>;

/// Returns the stored exponent of the largest magnitude of a block. Magnitudes order as their bits
/// do, NaN and infinities above all.
fn exponent_of(block: u32) -> u32 {
    var most = 0u;
    for (var k = 0u; k < PARTS; k++) { most = max(most, largest[block * PARTS + k]); }
    return most >> 23u;
}

/// Returns the stored exponent of a step: the largest becomes 2^14 to 2^15 steps. The least step is
/// the least normal number.
fn step_exponent(exponent: u32) -> u32 { return max(exponent, 15u) - 14u; }

/// A value in steps. One below the normal numbers, which devices may take for 0 in arithmetic, is
/// known by its bits: it is more than half of the least step, or it rounds to 0.
fn steps(value: u32, exponent: u32) -> u32 {
    let magnitude = value & 0x7fffffffu;
    if magnitude < 0x00800000u {
        let one = select(1u, 0xffffu, (value >> 31u) == 1u);
        return select(0u, one, exponent == 1u && magnitude > 0x00400000u);
    }
    let inverse = bitcast<f32>((254u - exponent) << 23u);
    return bitcast<u32>(clamp(i32(round(bitcast<f32>(value) * inverse)), -32767, 32767)) & 0xffffu;
}

/// Word `pair` of a block: two values.
fn packed(block: u32, pair: u32) -> u32 {
    let exponent = exponent_of(block);
    if exponent == NOT_FINITE { return 0u; }
    let step = step_exponent(exponent);
    let at = block * STRIDE + 2u * pair;
    return steps(values[at], step) | (steps(values[at + 1u], step) << 16u);
}

fn each_workgroup(number: u32, lane: u32) {
    let first = min(number * BLOCKS, params.blocks);
    let held = min(params.count - min(first * BLOCK, params.count), BLOCKS * BLOCK);
    // What is not there is 0.
    for (var k = 0u; k < BLOCKS; k++) {
        let i = k * BLOCK + lane;
        var value = 0u;
        if i < held { value = load_plain(params.start + first * BLOCK + i); }
        values[k * STRIDE + lane] = value;
    }
    workgroupBarrier();
    var most = 0u;
    for (var k = lane % PARTS; k < BLOCK; k += PARTS) { most = max(most, values[lane / PARTS * STRIDE + k] & 0x7fffffffu); }
    largest[lane] = most;
    workgroupBarrier();
    let at = params.target_start + first * (1u + BLOCK / 2u);
    for (var k = lane; k < BLOCKS * BLOCK / 2u; k += GROUP) {
        let block = k / (BLOCK / 2u);
        if 2u * k < held { store_coded(at + block + 1u + k, packed(block, k % (BLOCK / 2u))); }
    }
    if lane < BLOCKS && lane * BLOCK < held {
        let exponent = exponent_of(lane);
        store_coded(at + lane * (1u + BLOCK / 2u), select(step_exponent(exponent) << 23u, 0x7fc00000u, exponent == NOT_FINITE));
    }
}

#each_workgroup
