// Values of a part from blocks of 16-bit integers.
//
// Layout: as in encode.wgsl; `plain` is written, `coded` read.
// Workgroup: GROUP invocations, ITEMS words of two values each. No workgroup memory. Every
// operation is exact.

var<uniform> params: Params;
var<storage, read_write> plain: array<u32>;
var<storage, read> coded: array<u32>;

const BLOCK = 64u;

/// Returns the value that the upper half of a word says, in steps.
fn value_of(upper: u32, step: u32) -> u32 {
    let value = bitcast<u32>(f32(bitcast<i32>(upper) >> 16u) * bitcast<f32>(step));
    // A step that is NaN is passed on as it is: products of NaN need not be NaN on every device.
    return select(value, step, (step >> 23u) == 0xffu);
}

fn each(word: u32) {
    // The first of two values.
    let i = 2u * word;
    let block = i / BLOCK;
    if i >= params.count { return; }
    let step = load_coded(params.target_start + block * (1u + BLOCK / 2u));
    let both = load_coded(params.target_start + block + 1u + word);
    store_plain(params.start + i, value_of(both << 16u, step));
    if i + 1u < params.count { store_plain(params.start + i + 1u, value_of(both, step)); }
}

#each params.blocks * (BLOCK / 2u)
