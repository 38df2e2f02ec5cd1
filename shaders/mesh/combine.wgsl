// Elementwise combinations of fields: y = a * y + b * x (+ c * x * z with `product`).
//
// Layout: x, y (and z) of one length. `product` reads z too: y = a * y + b * x + c * x * z.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

#if product
fn term(i: u32, x: f32) -> f32 { return params.b * x + params.c * (x * load_z(i)); }
#else
fn term(i: u32, x: f32) -> f32 { return params.b * x; }
#endif

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i < params.count {
            // A factor of 0 writes y without reading what it held, which may be anything.
            let old = select(params.a * load_y(i), 0.0, params.a == 0.0);
            store_y(i, old + term(i, load_x(i)));
        }
    }
}
