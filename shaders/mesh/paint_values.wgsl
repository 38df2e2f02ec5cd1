// Paints particles with values of either sign onto a mesh of 64-bit integers: the adjoint of
// readout.wgsl, in the order of no particle.
//
// A value times the weight of a node becomes the multiple of 2^-point next to it, where 2^-point is
// the least part of the greatest value of all ranks that params.local.w bits have. Sums of integers
// do not depend on their order, so that the mesh is the same for any number of ranks.
//
// With `tangent` a particle's value is how far it moves, and what is painted is the change of the
// share that a cell gets: the movement times the gradient of the weight. With `in_cells` too, the
// movement counts in cells, times what the particle carries, and the change of that is a fourth
// value.
//
// Layout: particles as in particle.wgsl; `value` one number per particle, from params.sites.w on,
// with `tangent` three: all along x, then y, then z (and then the fourth values); `most[0]` the
// bits of the greatest magnitude of all values; `mesh` two u32 per cell, low word first. Particles
// that readout.wgsl reads 0 for are not painted. With `wide` a cell is one u64, to which the device
// adds at once; the cells are the same.
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
#if wide
var<storage, read_write> mesh: array<atomic<u64>>;
#else
var<storage, read_write> mesh: array<atomic<u32>>;
#endif

#import mesh::particle
#import mesh::each_particle
#import gpu::fixed
#if tangent
#import mesh::slope
#endif

fn each_particle(particle: u32) {
    let at = locate(particle);
    if !at.sane || !all_inside(at) { return; }
    let x = places(at.x.first, 0u);
    let y = places(at.y.first, 1u);
    let z = places(at.z.first, 2u);
#if tangent
    let count = params.first.w;
#if in_cells
    let moved = vec3<f32>(load_value(particle), load_value(count + particle), load_value(2u * count + particle));
    let own = load_value(3u * count + particle);
#else
    let moved = vec3<f32>(load_value(particle), load_value(count + particle), load_value(2u * count + particle)) * params.per_cell.xyz;
#endif
    var s_z = vec4<f32>(0.0);
    s_z[@] = slope(at.z.at, @);
#else
    let own = load_value(params.sites.w + particle);
#endif
    let point = i32(params.local.w) - top_of(load_most(0u));
    var w_z = vec4<f32>(0.0);
    w_z[@] = weight(at.z.at, @);
    for (var a = 0; a < WIDTH; a++) {
        let row_x = x[a] * params.shape.y;
        let w_x = weight(at.x.at, a);
        for (var b = 0; b < WIDTH; b++) {
            let row = (row_x + y[b]) * params.shape.z;
            let w_y = weight(at.y.at, b);
#if tangent
#if in_cells
            let across = fma(own * w_x, w_y, fma(moved.x * slope(at.x.at, a), w_y, moved.y * w_x * slope(at.y.at, b)));
#else
            let across = fma(moved.x * slope(at.x.at, a), w_y, moved.y * w_x * slope(at.y.at, b));
#endif
            let along = moved.z * w_x * w_y;
            let share@ = fixed(fma(across, w_z[@], along * s_z[@]), point);
#else
            let in_y = own * w_x * w_y;
            let share@ = fixed(in_y * w_z[@], point);
#endif
            // Additions before their carries, so that they are in flight together.
#if wide
            add_mesh(row + z[@], u64(share@.x) | (u64(share@.y) << 32u));
#else
            let before@ = add_mesh(2u * (row + z[@]), share@.x);
            let high@ = share@.y + select(0u, 1u, before@ + share@.x < before@);
            if high@ != 0u { add_mesh(2u * (row + z[@]) + 1u, high@); }
#endif
        }
    }
}

#each params.first.w
