// Moves a block of elements from one array to another. A block has four axes.
//
// Layout: `from` and `to` are arrays of one type of elements; the block is an extent, and in each array a first element
// (`starts`: in `from`, in `to`) and strides.
// `move_cell`, which says what moving is, stands in a file of its own: replace, add_float, add_wide.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let cells = params.extent.x * params.extent.y * params.extent.z * params.extent.w;
    for (var item = 0u; item < ITEMS; item++) {
        let cell = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if cell < cells {
            let plane = cell / params.extent.w;
            let slab = plane / params.extent.z;
            let at = vec4<u32>(
                slab / params.extent.y,
                slab % params.extent.y,
                plane % params.extent.z,
                cell % params.extent.w,
            );
            move_cell(params.starts.x + dot(params.origin, at), params.starts.y + dot(params.target_, at));
        }
    }
}
