// The adjoint of painting particles of equal mass, by their positions: bar += factor * gradient of
// the mesh at the particle.
//
// Layout: particles as in particle.wgsl; `mesh` the cotangent of the painted mesh; `bar` that of
// the positions: all along x, then y, then z. With `in_cells` the factor of a particle's
// gradient is params.factor times its `mass`.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
#if in_cells
var<storage, read> mass: array<f32>;
#endif
var<storage, read> mesh: array<f32>;
var<storage, read_write> bar: array<f32>;

#import mesh::particle
#import mesh::each_particle
#import mesh::slopes

fn value(node: u32, by: vec3<f32>) -> f32 { return by.x * load_mesh(node); }

fn each_particle(particle: u32) {
#if in_cells
    let found = slopes(locate(particle), vec3<f32>(params.factor * load_mass(particle)));
#else
    let found = slopes(locate(particle), vec3<f32>(params.factor));
#endif
    let count = params.first.w;
    store_bar(particle, load_bar(particle) + found.x);
    store_bar(count + particle, load_bar(count + particle) + found.y);
    store_bar(2u * count + particle, load_bar(2u * count + particle) + found.z);
}

#each params.first.w
