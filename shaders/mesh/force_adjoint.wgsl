// The adjoint of a force that particles exert on each other through a mesh, by their positions:
// what they read changes where they read it, and what they paint where they paint it.
//
//     bar += sum over nodes of gradient of weight
//            * (sum over axes of by * force + factor * density)
//
// Layout: particles as in particle.wgsl; `mesh` the components of the force in a vector for each
// cell; `density` the cotangent of the painted density; `by` the cotangent of the accelerations and
// `bar` that of the positions: all along x, then y, then z. Each node's four values are read once
// for a particle.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read> mesh: array<vec4<f32>>;
var<storage, read> density: array<f32>;
var<storage, read> by: array<f32>;
var<storage, read_write> bar: array<f32>;

#import mesh::particle
#import mesh::each_particle
#import mesh::slopes

fn value(node: u32, by: vec3<f32>) -> f32 {
    let force = load_mesh(node).xyz;
    return fma(by.z, force.z, fma(by.y, force.y, fma(by.x, force.x, params.factor * load_density(node))));
}

fn each_particle(particle: u32) {
    let count = params.first.w;
    let own = vec3<f32>(load_by(particle), load_by(count + particle), load_by(2u * count + particle));
    let found = slopes(locate(particle), own);
    store_bar(particle, load_bar(particle) + found.x);
    store_bar(count + particle, load_bar(count + particle) + found.y);
    store_bar(2u * count + particle, load_bar(2u * count + particle) + found.z);
}

#each params.first.w
