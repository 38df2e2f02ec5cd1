// Changes of particles in the units in which they are painted: how many cells they move times what
// they weigh, and by how much that changes.
//
// Layout: `mass` what each particle adds to the mesh; `change` first the movements: all along x,
// then y, then z, in box units; then the changes of the weights, of which a unit adds params.unit.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> mass: array<f32>;
var<storage, read_write> change: array<f32>;

fn each(i: u32) {
    let own = load_mass(i);
    store_change(i, load_change(i) * (own * params.per_cell.x));
    store_change(params.count + i, load_change(params.count + i) * (own * params.per_cell.y));
    store_change(2u * params.count + i, load_change(2u * params.count + i) * (own * params.per_cell.z));
    store_change(3u * params.count + i, load_change(3u * params.count + i) * params.unit);
}

#each params.count
