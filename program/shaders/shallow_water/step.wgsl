// One step of the shallow-water equations on an Arakawa C grid: the friction of the step before,
// tendencies, and second-order Adams-Bashforth.
//
//   d eta / dt = - d(h u)/dx - d(h v)/dy
//   d u / dt = - g d(eta)/dx + q h v - d(ke)/dx   q = (f + dv/dx - du/dy) / h   at NE corners
//   d v / dt = - g d(eta)/dy - q h u - d(ke)/dy          ke = (u^2 + v^2) / 2           at centers
//
// Layout: `now` and `next` as in cells.wgsl, with velocities before friction; `tendencies` those of
// eta, u and v, own cells only: those of the step before come in, those of this one stand there
// after. All in Real, f32 or f64. A cell needs 15 values of u and v each and 8 elevations, two
// cells away at most. With friction here instead of in a pass of its own each number is read from
// and written to device memory once, 12 of them per cell, and neighbors come from caches: 38 loads,
// for compilers make one of equal loads of an array that nothing writes. A workgroup takes a tile
// of TILE_X by TILE_Y cells, so that neighboring rows are shared; its rows are TILE_X neighboring
// numbers.
// Workgroup: GROUP invocations, TILE_X * TILE_Y / GROUP cells each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> coefficients: array<Real>;
var<storage, read> now: array<Real>;
var<storage, read_write> tendencies: array<Real>;
var<storage, read_write> next: array<Real>;

#import shallow_water::cells
#import shallow_water::friction

/// Returns the value after a step of the cell `own` of a field: `here` and the tendencies of this
/// step and the last.
fn stepped(own: u32, here: Real, tendency: Real) -> Real {
    let last = load_tendencies(own);
    store_tendencies(own, tendency);
    return here + (load_coefficients(THIS_TENDENCY) * tendency + load_coefficients(LAST_TENDENCY) * last);
}

fn advance(column: u32, row: u32) {
    let x = i32(column + params.ghosts.x);
    let y = i32(row + params.ghosts.y);
    let depth = load_coefficients(DEPTH);
    let per_dx = load_coefficients(PER_DX);
    let per_dy = load_coefficients(PER_DY);

    let eta = elevation(x, y);
    let eta_w = elevation(x - 1, y);
    let eta_e = elevation(x + 1, y);
    let eta_s = elevation(x, y - 1);
    let eta_se = elevation(x + 1, y - 1);
    let eta_n = elevation(x, y + 1);
    let eta_nw = elevation(x - 1, y + 1);
    let eta_ne = elevation(x + 1, y + 1);
    let u = u_after(x, y);
    let u_w = u_after(x - 1, y);
    let u_e = u_after(x + 1, y);
    let u_s = u_after(x, y - 1);
    let u_n = u_after(x, y + 1);
    let u_nw = u_after(x - 1, y + 1);
    let v = v_after(x, y);
    let v_w = v_after(x - 1, y);
    let v_e = v_after(x + 1, y);
    let v_s = v_after(x, y - 1);
    let v_se = v_after(x + 1, y - 1);
    let v_n = v_after(x, y + 1);

    // What vorticities take of the corner's east, and kinetic energies of the center's west.
    var corner_v = v_e;
    var corner_v_s = v_se;
    var corner_v_w = v;
    var center_u = u_w;
    var center_u_e = u;
    var center_u_n = u_nw;
#if compatible
    // Programs with a ghost column on either side that is not filled again after friction see there
    // what was before.
    if column + params.first.x + 1u == params.first.z {
        corner_v = v_before(x + 1, y);
        corner_v_s = v_before(x + 1, y - 1);
        center_u_e = u_before(x, y);
    }
    if column + params.first.x == 0u {
        corner_v_w = v_before(x, y);
        center_u = u_before(x - 1, y);
        center_u_n = u_before(x - 1, y + 1);
    }
#endif

    // Mass through faces. None passes the walls.
    let wall = y >= params.walls.y;
    let east = (depth + HALF * (eta + eta_e)) * u;
    let east_w = (depth + HALF * (eta_w + eta)) * u_w;
    let east_n = (depth + HALF * (eta_n + eta_ne)) * u_n;
    let east_nw = (depth + HALF * (eta_nw + eta_n)) * u_nw;
    let north = select((depth + HALF * (eta + eta_n)) * v, ZERO, wall);
    let north_e = select((depth + HALF * (eta_e + eta_ne)) * v_e, ZERO, wall);
    let north_s = (depth + HALF * (eta_s + eta)) * v_s;
    let north_se = (depth + HALF * (eta_se + eta_e)) * v_se;

    // Potential vorticity, and kinetic energy.
    let f = load_coefficients(CORIOLIS) + load_coefficients(CORIOLIS_GROWTH) * Real(i32(row + params.first.y));
    let f_s = f - load_coefficients(CORIOLIS_GROWTH);
    let q = (f + (corner_v - v) * per_dx - (u_n - u) * per_dy) / (depth + QUARTER * ((eta + eta_e) + (eta_n + eta_ne)));
    let q_s = (f_s + (corner_v_s - v_s) * per_dx - (u - u_s) * per_dy) / (depth + QUARTER * ((eta_s + eta_se) + (eta + eta_e)));
    let q_w = (f + (corner_v_w - v_w) * per_dx - (u_nw - u_w) * per_dy) / (depth + QUARTER * ((eta_w + eta) + (eta_nw + eta_n)));
    let ke = QUARTER * ((u * u + center_u * center_u) + (v * v + v_s * v_s));
    let ke_e = QUARTER * ((u_e * u_e + center_u_e * center_u_e) + (v_e * v_e + v_se * v_se));
    let ke_n = QUARTER * ((u_n * u_n + center_u_n * center_u_n) + (v_n * v_n + v * v));

    let eta_t = -((east - east_w) * per_dx + (north - north_s) * per_dy);
    let u_t = QUARTER * (q * (north + north_e) + q_s * (north_s + north_se))
        - (load_coefficients(GRAVITY_X) * (eta_e - eta) + (ke_e - ke) * per_dx);
    let v_t = -(QUARTER * (q * (east + east_n) + q_w * (east_w + east_nw)))
        - (load_coefficients(GRAVITY_Y) * (eta_n - eta) + (ke_n - ke) * per_dy);

    let own = row * params.own.x + column;
    let cells = params.own.x * params.own.y;
    let at = cell(x, y);
    store_next(at, stepped(own, eta, eta_t));
    store_next(params.field + at, stepped(cells + own, u, u_t));
    store_next(2u * params.field + at, select(stepped(2u * cells + own, v, v_t), ZERO, wall));
}

fn each_workgroup(number: u32, lane: u32) {
    let tile = vec2<u32>(TILE_X, TILE_Y) * vec2<u32>(number % params.tiles.x, number / params.tiles.x);
    for (var i = lane; i < TILE_X * TILE_Y; i += GROUP) {
        let at = tile + vec2<u32>(i % TILE_X, i / TILE_X);
        if at.x < params.own.x && at.y < params.own.y { advance(at.x, at.y); }
    }
}

#each_workgroup
