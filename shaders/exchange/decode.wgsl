// Values of a part from blocks of 16-bit integers.
//
// Layout: as in encode.wgsl; `plain` is written, `coded` read.
// Workgroup: GROUP invocations, one block each. No workgroup memory. Every operation is exact.

var<uniform> params: Params;
var<storage, read_write> plain: array<u32>;
var<storage, read> coded: array<u32>;

const BLOCK = 64u;

fn each_invocation(block: u32) {
    let first = params.start + block * BLOCK;
    let values = min(params.count - block * BLOCK, BLOCK);
    let at = params.target_start + block * (1u + BLOCK / 2u);
    let step = load_coded(at);
    for (var i = 0u; i < values; i++) {
        // The half word goes to the top of a word, and down again with its sign.
        let top = load_coded(at + 1u + i / 2u) << (16u - 16u * (i % 2u));
        let value = bitcast<u32>(f32(bitcast<i32>(top) >> 16u) * bitcast<f32>(step));
        // A step that is NaN is passed on as it is: products of NaN need not be NaN on every device.
        store_plain(first + i, select(value, step, (step >> 23u) == 0xffu));
    }
}

#each_invocation params.blocks
