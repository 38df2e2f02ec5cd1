// Computes one value for each own cell of a mesh from fields on the same mesh.
//
// The generated module `field::inputs` declares the input arrays and, for a field `x`, the
// functions `x(c)` and `x_at(c, di, dj, dk)`. The module `field::cell` is the caller's `cell(c:
// Cell)`.

var<uniform> params: Params;

/// The cell that an invocation computes.
struct Cell {
    /// Index in the mesh.
    index: vec3<u32>,
    /// The point that the cell stands for.
    position: vec3<f32>,
    /// Place in the arrays of this rank.
    place: u32,
}

#import field::cell
#import field::inputs

var<storage, read_write> stencil_result: array<Value>;

fn each(i: u32) {
    let own = params.stencil_own;
    let at = vec3<u32>(i / (own.y * own.z), i / own.z % own.y, i % own.z);
    let strides = params.stencil_strides;
    let index = params.stencil_first.xyz + at;
    let place = params.stencil_first.w + at.x * strides.x + at.y * strides.y + at.z;
    let value = cell(Cell(index, vec3<f32>(index) * params.stencil_cell.xyz, place));
#if single
    store_stencil_result(place, value);
#else
    for (var component = 0u; component < COMPONENTS; component++) {
        store_stencil_result(place + component * params.stencil_own.w, value[component]);
    }
#endif
}

#each params.stencil_strides.w
