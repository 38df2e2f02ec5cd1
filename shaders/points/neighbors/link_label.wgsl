// Labels in the order of the input, from the least indices at roots.
//
// Layout: `parent`, `order`, `least` as in link_least.wgsl; `label` one word per point, by index.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> parent: array<u32>;
var<storage, read> order: array<u32>;
var<storage, read> least: array<u32>;
var<storage, read_write> label: array<u32>;

fn each(i: u32) {
    store_label(load_order(i), ~load_least(load_parent(i)));
}

#each params.count
