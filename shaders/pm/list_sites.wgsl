// Lists the sites of a box of a lattice, C order: 16 bits along x, 16 along y, a word along z.
//
// Layout: `site` receives the site of each particle.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> site: array<vec2<u32>>;

fn each(i: u32) {
    let line = i / params.local.z;
    let at = params.first.xyz + vec3<u32>(line / params.local.y, line % params.local.y, i % params.local.z);
    store_site(i, vec2<u32>((at.x << 16u) | at.y, at.z));
}

#each params.first.w
