// Finds the ranks that own sites of a lattice.
//
// Layout: `site` as list_sites.wgsl writes it; `rank_of` the part of each site along axis 0, then
// of each along axis 1; `owner` receives the rank of each particle's site.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> site: array<vec2<u32>>;
var<storage, read> rank_of: array<u32>;
var<storage, read_write> owner: array<u32>;

fn each(i: u32) {
    let line = load_site(i).x;
    store_owner(i, load_rank_of(line >> 16u) * params.parts + load_rank_of(params.sites + (line & 0xffffu)));
}

#each params.count
