// Reads a mesh of f32 at the particles' positions: out[n] = sum over nodes of weight * mesh.
//
// Layout: particles as in particle.wgsl, the mesh as in interpolate.wgsl.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read> mesh: array<f32>;
var<storage, read_write> out: array<f32>;

#import mesh::particle
#import mesh::interpolate

fn each(particle: u32) { store_out(particle, interpolate(locate(particle))); }

#each params.first.w
