// Particles as kernels over points in cells take them, from their places in the whole mesh.
//
// Layout: `placed` as place.wgsl leaves it, for cells of this rank; `cell` receives the index of
// the cell in this rank's array, ghosts included, `x`, `y`, `z` the offsets in cells, and `mass`
// params.unit times the weight in `weight`, or params.unit without `weighted`.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> placed: array<u32>;
#if weighted
var<storage, read> weight: array<f32>;
#endif
var<storage, read_write> cell: array<u32>;
var<storage, read_write> x: array<f32>;
var<storage, read_write> y: array<f32>;
var<storage, read_write> z: array<f32>;
var<storage, read_write> mass: array<f32>;

fn each(i: u32) {
    let at = vec3<u32>(load_placed(6u * i), load_placed(6u * i + 1u), load_placed(6u * i + 2u));
    let steps = (at - params.start.xyz) * params.strides.xyz;
    store_cell(i, params.origin + steps.x + steps.y + steps.z);
    store_x(i, bitcast<f32>(load_placed(6u * i + 3u)));
    store_y(i, bitcast<f32>(load_placed(6u * i + 4u)));
    store_z(i, bitcast<f32>(load_placed(6u * i + 5u)));
#if weighted
    store_mass(i, params.unit * load_weight(i));
#else
    store_mass(i, params.unit);
#endif
}

#each params.count
