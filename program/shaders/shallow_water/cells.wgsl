// Where the cells of the state lie, and what the coefficients are.
//
// `now` holds three fields of params.field elements each, rows from south to north with ghost cells
// where the grid is cut: the elevation of the surface over its rest, u on the east faces of cells,
// v on their north faces. A cell's (x, y) counts columns and rows of the array, ghosts included.

// Places of the coefficients: g / dx, g / dy, 1 / dx, 1 / dy, the depth at rest and half of g; what
// is added of this tendency and of the one before; of friction along x and y; the Coriolis
// parameter of the first row of the grid and its growth from row to row.
const GRAVITY_X = 0u;
const GRAVITY_Y = 1u;
const PER_DX = 2u;
const PER_DY = 3u;
const DEPTH = 4u;
const HALF_GRAVITY = 5u;
const THIS_TENDENCY = 6u;
const LAST_TENDENCY = 7u;
const FRICTION_X = 8u;
const FRICTION_Y = 9u;
const CORIOLIS = 10u;
const CORIOLIS_GROWTH = 11u;

const QUARTER = Real(0.25);
const HALF = Real(0.5);
const ZERO = Real(0.0);

/// Returns the place of a cell in a field. Rows beyond a wall are the one at the wall, so that
/// nothing flows through it. Columns go round: ghost cells, where there are some, reach farther
/// than any neighbor that is asked for, so that this happens where the x axis is not cut only.
fn cell(x: i32, y: i32) -> u32 {
    let row = clamp(y, params.walls.x, params.walls.y);
    let pitch = i32(params.pitch);
    let column = select(select(x, x - pitch, x >= pitch), x + pitch, x < 0);
    return u32(row) * params.pitch + u32(column);
}

fn elevation(x: i32, y: i32) -> Real { return load_now(cell(x, y)); }
