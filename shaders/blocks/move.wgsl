// Copies a block of cells between an array and a message, or adds a message to a block.
//
// Layout: `from` and `to` are arrays of 32-bit words; a block is an extent, a first index and strides in each.
// Features: `add_float` adds words as f32; `add_wide` adds 64-bit integers, two words a cell, low word first (the last
// extent and stride then count cells); with neither, words are copied whatever they hold.
// Workgroup: GROUP invocations, ITEMS words each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let cells = params.extent.x * params.extent.y * params.extent.z;
    for (var item = 0u; item < ITEMS; item++) {
        let cell = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if cell < cells {
            let k = cell % params.extent.z;
            let j = cell / params.extent.z % params.extent.y;
            let i = cell / params.extent.z / params.extent.y;
            let at = vec4<u32>(1u, i, j, k);
            move_cell(dot(params.origin, at), dot(params.target_, at));
        }
    }
}

@if(add_wide)
fn move_cell(source: u32, destination: u32) {
    let low = load_from(2u * source);
    let sum = load_to(2u * destination) + low;
    let carry = select(0u, 1u, sum < low);
    store_to(2u * destination, sum);
    store_to(2u * destination + 1u, load_to(2u * destination + 1u) + load_from(2u * source + 1u) + carry);
}

@if(add_float && !add_wide)
fn move_cell(source: u32, destination: u32) {
    store_to(destination, bitcast<u32>(bitcast<f32>(load_to(destination)) + bitcast<f32>(load_from(source))));
}

@if(!add_float && !add_wide)
fn move_cell(source: u32, destination: u32) {
    store_to(destination, load_from(source));
}
