// Multiplies modes by the square of the cosine between wave vector and line of sight, which is
// along an axis; the mean mode becomes 0.
//
// Layout: `modes` and `along` are this rank's part of a half spectrum, C order over params.part
// modes. `squares` holds the square of the wavenumber of each index of each axis of the part, in
// some unit in which neither large nor small ones leave f32. No workgroup memory.
// Workgroup: GROUP invocations, ITEMS modes each.

var<uniform> params: Params;
var<storage, read> modes: array<vec2<f32>>;
var<storage, read> squares: array<f32>;
var<storage, read_write> along: array<vec2<f32>>;

fn each(mode: u32) {
    let rows = vec3<u32>(mode / params.part.z / params.part.y, mode / params.part.z % params.part.y, mode % params.part.z);
    let square = vec3<f32>(
        load_squares(rows.x),
        load_squares(params.part.x + rows.y),
        load_squares(params.part.x + params.part.y + rows.z),
    );
    let all = square.x + square.y + square.z;
    store_along(mode, load_modes(mode) * select(square[params.axis] / all, 0.0, all == 0.0));
}

#each params.count
