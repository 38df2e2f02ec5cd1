// Where the cells of the state lie, and the lateral friction of the step that made it.
//
// `now` holds three fields of params.field elements each, rows from south to north with ghost cells
// where the grid is cut: the elevation of the surface over its rest, u on the east faces of cells,
// v on their north faces, velocities as they are before friction. A cell's (x, y) counts columns
// and rows of the array, ghosts included.

const QUARTER = Real(0.25);
const HALF = Real(0.5);
const ZERO = Real(0.0);

/// Returns the place of the first cell of a row in a field. Rows beyond a wall are the one at the
/// wall, so that nothing flows through it.
fn row_start(y: i32) -> u32 { return u32(clamp(y, params.walls.x, params.walls.y)) * params.pitch; }

/// Returns the place of a column in a row. Columns go round: ghost cells, where there are some,
/// reach farther than any neighbor that is asked for, so that this happens where the x axis is not
/// cut only.
fn column_at(x: i32) -> u32 {
    let pitch = i32(params.pitch);
    return u32(select(select(x, x - pitch, x >= pitch), x + pitch, x < 0));
}

/// Returns the u after friction of a cell with `here` before, from its neighbors before friction.
/// No friction passes a wall.
fn u_after(here: Real, west: Real, east: Real, south: Real, north: Real) -> Real {
    let along_x = (east - here) - (here - west);
    let along_y = (north - here) - (here - south);
    return here + (params.friction_x * along_x + params.friction_y * along_y);
}

#if compatible
/// Returns the v after friction of a cell in row y, with a mistake that is repeated to compare with
/// programs that have it: fluxes are differences to u after friction, that of the cell, of the one
/// in the west and the one in the south. The wall's v is not set to zero again either.
fn v_after(y: i32, here: Real, east: Real, north: Real, u: Real, u_west: Real, u_south: Real) -> Real {
    let along_x = (east - u) - (here - u_west);
    let flux_north = select(north - u, ZERO, y >= params.walls.y);
    let flux_south = select(here - u_south, ZERO, y <= params.walls.x);
    let after = here + (params.friction_x * along_x + params.friction_y * (flux_north - flux_south));
    return select(after, ZERO, y < params.walls.x);
}
#else
/// Returns the v after friction of a cell in row y; v is zero on walls.
fn v_after(y: i32, here: Real, west: Real, east: Real, south: Real, north: Real) -> Real {
    let along_x = (east - here) - (here - west);
    let along_y = (north - here) - (here - south);
    let after = here + (params.friction_x * along_x + params.friction_y * along_y);
    return select(after, ZERO, y < params.walls.x || y >= params.walls.y);
}
#endif
