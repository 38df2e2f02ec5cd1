// The adjoint of painting particles of equal mass, by their positions: bar += factor * gradient of
// the mesh at the particle.
//
// Layout: particles as in particle.wgsl; `mesh` the cotangent of the painted mesh; `bar` that of
// the positions: all along x, then y, then z. With `in_cells` the factor of a gradient is `mass`,
// and a fourth part of `bar` is for the weights: bar += factor * mesh at the particle.
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
#if in_cells
#import mesh::interpolate
#endif

fn value(node: u32, by: vec3<f32>) -> f32 { return by.x * load_mesh(node); }

fn each_particle(particle: u32) {
    let count = params.first.w;
#if in_cells
    let at = locate(particle);
    let found = slopes(at, vec3<f32>(load_mass(particle)));
    store_bar(3u * count + particle, fma(params.factor, interpolate(at), load_bar(3u * count + particle)));
#else
    let found = slopes(locate(particle), vec3<f32>(params.factor));
#endif
    store_bar(particle, load_bar(particle) + found.x);
    store_bar(count + particle, load_bar(count + particle) + found.y);
    store_bar(2u * count + particle, load_bar(2u * count + particle) + found.z);
}

#each params.first.w
