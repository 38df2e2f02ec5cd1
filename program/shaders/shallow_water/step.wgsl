// One step of the shallow-water equations on an Arakawa C grid: the friction of the step before,
// tendencies, and second-order Adams-Bashforth.
//
//   d eta / dt = - d(h u)/dx - d(h v)/dy
//   d u / dt = - g d(eta)/dx + q h v - d(ke)/dx   q = (f + dv/dx - du/dy) / h   at NE corners
//   d v / dt = - g d(eta)/dy - q h u - d(ke)/dy          ke = (u^2 + v^2) / 2           at centers
//
// Layout: `now` and `next` as in cells.wgsl. `tendencies` those of eta, u and v, own cells only:
// those of the step before come in, those of this one stand there after. All in Real, f32 or f64.
// Each number is read from and written to device memory once, 12 of them per cell: friction is
// applied here instead of in a pass of its own.
//
// An invocation takes a column of TILE_Y cells from south to north. A round loads one row: u and v
// of row y + 1 and eta of row y, from which it makes the velocities after friction, kinetic
// energies and fluxes to the east of row y, and vorticities and fluxes to the north between rows
// y - 1 and y. With these and what it has kept from the round before it advances the cell of row
// y - 1. The first rounds only fill what is kept, so that all rows of all columns come from the
// same instructions: bits do not depend on the row with which a column begins. 13 loads a round (14
// if `compatible`), 3 more and 6 stores a cell.
// Workgroup: one for each tile of TILE_X columns, GROUP = TILE_X invocations. No workgroup memory.

var<uniform> params: Params;
var<storage, read> now: array<Real>;
var<storage, read_write> tendencies: array<Real>;
var<storage, read_write> next: array<Real>;

#import shallow_water::cells

/// Rounds before the one that advances the first cell; friction that takes u of the south needs one
/// more.
#if compatible
const ROUNDS_BEFORE = 3;
#else
const ROUNDS_BEFORE = 2;
#endif

/// Numbers around a column, from the west to the east.
struct Around {
#if compatible
    www: Real,
#endif
    ww: Real,
    w: Real,
    here: Real,
    e: Real,
    ee: Real,
}

/// Places of the columns around a column.
struct Columns {
#if compatible
    www: u32,
#endif
    ww: u32,
    w: u32,
    here: u32,
    e: u32,
    ee: u32,
}

/// Returns u (field 1) or v (field 2) of a row.
fn around(field: u32, y: i32, at: Columns) -> Around {
    let row = field * params.field + row_start(y);
    var found: Around;
#if compatible
    // Of v nothing is needed there.
    if field == 1u {
        found.www = load_now(row + at.www);
        found.ww = load_now(row + at.ww);
    }
#else
    found.ww = load_now(row + at.ww);
#endif
    found.w = load_now(row + at.w);
    found.here = load_now(row + at.here);
    found.e = load_now(row + at.e);
    found.ee = load_now(row + at.ee);
    return found;
}

/// Advances own cells of a column, from the own row `first` on.
fn march(column: u32, first: u32) {
    let x = i32(column + params.ghosts.x);
    var at: Columns;
#if compatible
    at.www = column_at(x - 3);
#endif
    at.ww = column_at(x - 2);
    at.w = column_at(x - 1);
    at.here = column_at(x);
    at.e = column_at(x + 1);
    at.ee = column_at(x + 2);
    let south = i32(first + params.ghosts.y);
    let end = i32(min(first + TILE_Y, params.own.y) + params.ghosts.y);
    let cells = params.own.x * params.own.y;
#if compatible
    let is_first = column + params.first.x == 0u;
    let is_last = column + params.first.x + 1u == params.first.z;
#endif

    // Velocities before friction, of rows y - 1 and y.
    let start = south + 1 - ROUNDS_BEFORE;
    var u_below = around(1u, start - 1, at);
    var v_below = around(2u, start - 1, at);
    var u_here = around(1u, start, at);
    var v_here = around(2u, start, at);
    // Kept from the round before, of row y - 1: eta, velocities after friction (west, here, east),
    // kinetic energies, fluxes to the east; and of its south: the flux to the north, and that times
    // the vorticity.
    var eta_s = vec3<Real>(ZERO);
    var u_s = vec3<Real>(ZERO);
    var v_s = vec3<Real>(ZERO);
    var ke_s = ZERO;
    var ke_se = ZERO;
    var east_s = ZERO;
    var east_sw = ZERO;
    var north_s = ZERO;
    var corner_s = ZERO;

    for (var y = start; y <= end; y++) {
        let u_above = around(1u, y + 1, at);
        let v_above = around(2u, y + 1, at);
        let row = row_start(y);
        let eta = vec3<Real>(load_now(row + at.w), load_now(row + at.here), load_now(row + at.e));
        let is_own = y > south;
        let own = u32(max(y - 1, south) - i32(params.ghosts.y)) * params.own.x + column;
        var last = vec3<Real>(ZERO);
        if is_own {
            last = vec3<Real>(load_tendencies(own), load_tendencies(cells + own), load_tendencies(2u * cells + own));
        }

        // Velocities after friction.
        let u = vec3<Real>(
            u_after(u_here.w, u_here.ww, u_here.here, u_below.w, u_above.w),
            u_after(u_here.here, u_here.w, u_here.e, u_below.here, u_above.here),
            u_after(u_here.e, u_here.here, u_here.ee, u_below.e, u_above.e),
        );
#if compatible
        let u_ww = u_after(u_here.ww, u_here.www, u_here.w, u_below.ww, u_above.ww);
        let v = vec3<Real>(
            v_after(y, v_here.w, v_here.here, v_above.w, u.x, u_ww, u_s.x),
            v_after(y, v_here.here, v_here.e, v_above.here, u.y, u.x, u_s.y),
            v_after(y, v_here.e, v_here.ee, v_above.e, u.z, u.y, u_s.z),
        );
#else
        let v = vec3<Real>(
            v_after(y, v_here.w, v_here.ww, v_here.here, v_below.w, v_above.w),
            v_after(y, v_here.here, v_here.w, v_here.e, v_below.here, v_above.here),
            v_after(y, v_here.e, v_here.here, v_here.ee, v_below.e, v_above.e),
        );
#endif

        // What vorticities take of the corner's east, and kinetic energies of the center's west.
        var corner_v = v_s.z;
        var corner_v_w = v_s.y;
        var center_u = u.x;
        var center_u_e = u.y;
#if compatible
        // Programs with a ghost column on either side that is not filled again after friction see
        // there what was before.
        if is_last {
            corner_v = v_below.e;
            center_u_e = u_here.here;
        }
        if is_first {
            corner_v_w = v_below.here;
            center_u = u_here.w;
        }
#endif

        // Kinetic energies and mass through the east faces of row y.
        let ke = QUARTER * ((u.y * u.y + center_u * center_u) + (v.y * v.y + v_s.y * v_s.y));
        let ke_e = QUARTER * ((u.z * u.z + center_u_e * center_u_e) + (v.z * v.z + v_s.z * v_s.z));
        let east = (params.depth + HALF * (eta.y + eta.z)) * u.y;
        let east_w = (params.depth + HALF * (eta.x + eta.y)) * u.x;

        // Mass through the north faces of row y - 1, none through the walls, and potential
        // vorticities there.
        let wall = y > params.walls.y;
        let north = select((params.depth + HALF * (eta_s.y + eta.y)) * v_s.y, ZERO, wall);
        let north_e = select((params.depth + HALF * (eta_s.z + eta.z)) * v_s.z, ZERO, wall);
        let f = params.coriolis + params.coriolis_growth * Real(y - 1 - i32(params.ghosts.y) + i32(params.first.y));
        let q = (f + (corner_v - v_s.y) * params.per_dx - (u.y - u_s.y) * params.per_dy)
            / (params.depth + QUARTER * ((eta_s.y + eta_s.z) + (eta.y + eta.z)));
        let q_w = (f + (corner_v_w - v_s.x) * params.per_dx - (u.x - u_s.x) * params.per_dy)
            / (params.depth + QUARTER * ((eta_s.x + eta_s.y) + (eta.x + eta.y)));
        let corner = q * (north + north_e);

        if is_own {
            let tendency = vec3<Real>(
                -((east_s - east_sw) * params.per_dx + (north - north_s) * params.per_dy),
                QUARTER * (corner + corner_s)
                    - (params.gravity_x * (eta_s.z - eta_s.y) + (ke_se - ke_s) * params.per_dx),
                -(QUARTER * (q * (east_s + east) + q_w * (east_sw + east_w)))
                    - (params.gravity_y * (eta.y - eta_s.y) + (ke - ke_s) * params.per_dy),
            );
            let change = params.this_tendency * tendency + params.last_tendency * last;
            let place = row_start(y - 1) + at.here;
            store_tendencies(own, tendency.x);
            store_tendencies(cells + own, tendency.y);
            store_tendencies(2u * cells + own, tendency.z);
            store_next(place, eta_s.y + change.x);
            store_next(params.field + place, u_s.y + change.y);
            store_next(2u * params.field + place, select(v_s.y + change.z, ZERO, wall));
        }

        u_below = u_here;
        u_here = u_above;
        v_below = v_here;
        v_here = v_above;
        eta_s = eta;
        u_s = u;
        v_s = v;
        ke_s = ke;
        ke_se = ke_e;
        east_s = east;
        east_sw = east_w;
        north_s = north;
        corner_s = corner;
    }
}

fn each_workgroup(number: u32, lane: u32) {
    let column = TILE_X * (number % params.tiles.x) + lane;
    if column < params.own.x { march(column, TILE_Y * (number / params.tiles.x)); }
}

#each_workgroup
