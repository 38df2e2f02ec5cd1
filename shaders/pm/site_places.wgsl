// Finds the rows that particles arrive in, for each site of a box of a lattice.
//
// Layout: `site` as list_sites.wgsl writes it, each site of the box once; `row` receives for each
// site, C order, the number of its particle.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> site: array<vec2<u32>>;
var<storage, read_write> row: array<u32>;

fn each(i: u32) {
    let site = load_site(i);
    let at = vec3<u32>(site.x >> 16u, site.x & 0xffffu, site.y) - params.first.xyz;
    store_row((at.x * params.local.y + at.y) * params.local.z + at.z, i);
}

#each params.first.w
