// Paints particles with values of either sign onto a mesh of 64-bit integers: the adjoint of readout.wgsl, in the order of no particle.
//
// A value times the weight of a node becomes the multiple of 2^-point next to it, where 2^-point is the least part of the greatest value of all
// ranks that params.local.w bits have. Sums of integers do not depend on their order, so that the mesh is the same for any number of ranks.
//
// Layout: particles as in particle.wgsl; `value` one number per particle, from params.sites.w on; `most[0]` the bits of the greatest magnitude
// of all values; `mesh` two u32 per cell, low word first. Particles that readout.wgsl reads 0 for are not painted.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read> value: array<f32>;
var<storage, read> most: array<u32>;
var<storage, read_write> mesh: array<atomic<u32>>;

#import mesh::particle
#import gpu::fixed

fn each(particle: u32) {
    let at = locate(particle);
    if !at.sane || !all_inside(at) { return; }
    let x = places(at.x.first, 0u);
    let y = places(at.y.first, 1u);
    let z = places(at.z.first, 2u);
    let own = load_value(params.sites.w + particle);
    let point = i32(params.local.w) - top_of(load_most(0u));
    var w_z = vec4<f32>(0.0);
    w_z[@] = weight(at.z.at, @);
    for (var a = 0; a < WIDTH; a++) {
        let row_x = x[a] * params.shape.y;
        let in_x = own * weight(at.x.at, a);
        for (var b = 0; b < WIDTH; b++) {
            let row = (row_x + y[b]) * params.shape.z;
            let in_y = in_x * weight(at.y.at, b);
            // Additions before their carries, so that they are in flight together.
            let share@ = fixed(in_y * w_z[@], point);
            let before@ = add_mesh(2u * (row + z[@]), share@.x);
            let high@ = share@.y + select(0u, 1u, before@ + share@.x < before@);
            if high@ != 0u { add_mesh(2u * (row + z[@]) + 1u, high@); }
        }
    }
}

#each params.first.w
