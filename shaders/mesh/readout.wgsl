// Reads a mesh at the particles' positions: out[n] = sum over nodes of weight * mesh.
//
// Layout: particles as in particle.wgsl, the mesh as in interpolate.wgsl; `out` has a value
// for each particle, with `vector` for each component from params.components.x to
// params.components.y - 1, one component after the other.
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
#if vector
var<storage, read> mesh: array<vec4<f32>>;
#else
var<storage, read> mesh: array<f32>;
#endif
var<storage, read_write> out: array<f32>;

#import mesh::particle
#import mesh::each_particle
#import mesh::interpolate

fn each_particle(particle: u32) {
    let found = interpolate(locate(particle));
    if !is_there { return; }
#if vector
    for (var n = params.components.x; n < params.components.y; n++) {
        let component = select(select(found.z, found.y, n == 1u), found.x, n == 0u);
        store_out((n - params.components.x) * params.first.w + particle, component);
    }
#else
    store_out(particle, found);
#endif
}

#if pairs
#each_subgroup
#else
#each params.first.w
#endif
