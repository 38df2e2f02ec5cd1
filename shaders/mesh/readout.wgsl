// Reads a mesh of f32 at the particles' positions: out[n] = sum over nodes of weight * mesh.
//
// Layout: particles as in particle.wgsl, the mesh as in interpolate.wgsl; with `vector` the results
// along x, then those along y, then z.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
#if listed
var<storage, read> site: array<vec2<u32>>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read> mesh: array<f32>;
var<storage, read_write> out: array<f32>;

#import mesh::particle
#import mesh::each_particle
#import mesh::interpolate

fn each_particle(particle: u32) {
    let found = interpolate(locate(particle));
    if !is_there { return; }
#if vector
    store_out(particle, found.x);
    store_out(params.first.w + particle, found.y);
    store_out(2u * params.first.w + particle, found.z);
#else
    store_out(particle, found);
#endif
}

#if pairs
#each_subgroup
#else
#each params.first.w
#endif
