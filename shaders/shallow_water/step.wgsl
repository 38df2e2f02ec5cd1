// One step of the shallow-water equations on an Arakawa C grid: the friction of the step before, tendencies, and second-order Adams-Bashforth.
//
//   d eta / dt = - d(h u)/dx - d(h v)/dy
//   d u / dt = - g d(eta)/dx + q h v - d(ke)/dx          q = (f + dv/dx - du/dy) / h    at north-east corners
//   d v / dt = - g d(eta)/dy - q h u - d(ke)/dy          ke = (u^2 + v^2) / 2           at centers
//
// Layout: `now` and `next` as in cells.wgsl, with velocities before friction; `tendencies` those of eta, u and v, own cells only: those of the
// step before come in, those of this one stand there after. All in Real, f32 or f64.
// A workgroup takes a tile of TILE_X by TILE_Y cells: it brings these and one cell around them to workgroup memory, with friction already, for which
// it reads 5 values of u and v each where caches have 4 of them; then cells take 8 elevations, 6 values of u and 6 of v from there. With friction
// here instead of in a pass of its own 12 numbers per cell are read from and written to device memory. Rows of tiles are neighbouring numbers, in
// device memory and in banks.
// Workgroup: GROUP invocations, TILE_X * TILE_Y / GROUP cells each. Memory: 3 (TILE_X + 2) (TILE_Y + 2) numbers.

var<uniform> params: Params;
var<storage, read> coefficients: array<Real>;
var<storage, read> now: array<Real>;
var<storage, read_write> tendencies: array<Real>;
var<storage, read_write> next: array<Real>;

#import shallow_water::cells
#import shallow_water::friction

/// The value after a step of the cell `own` of a field: `here` and the tendencies of this step and the last.
fn stepped(own: u32, here: Real, tendency: Real) -> Real {
    let last = load_tendencies(own);
    store_tendencies(own, tendency);
    return here + (load_coefficients(THIS_TENDENCY) * tendency + load_coefficients(LAST_TENDENCY) * last);
}

const TILE_PITCH = TILE_X + 2u;
const TILE_CELLS = TILE_PITCH * (TILE_Y + 2u);

var<workgroup> tile_eta: array<Real, TILE_CELLS>;
var<workgroup> tile_u: array<Real, TILE_CELLS>;
var<workgroup> tile_v: array<Real, TILE_CELLS>;

/// Brings the cells of a tile and around it to workgroup memory.
fn bring(tile: vec2<u32>, lane: u32) {
    for (var i = lane; i < TILE_CELLS; i += GROUP) {
        // Counted from the cell south-west of the own ones.
        let at = tile + vec2<u32>(i % TILE_PITCH, i / TILE_PITCH);
        if at.x < params.own.x + 2u && at.y < params.own.y + 2u {
            let x = i32(at.x + params.ghosts.x) - 1;
            let y = i32(at.y + params.ghosts.y) - 1;
            tile_eta[i] = elevation(x, y);
            tile_u[i] = u_after(x, y);
            tile_v[i] = v_after(x, y);
        }
    }
}

/// Does the step of an own cell, which is number `here` of the tile.
fn advance(column: u32, row: u32, here: u32) {
    let x = i32(column + params.ghosts.x);
    let y = i32(row + params.ghosts.y);
    let depth = load_coefficients(DEPTH);
    let per_dx = load_coefficients(PER_DX);
    let per_dy = load_coefficients(PER_DY);

    let south_of = here - TILE_PITCH;
    let north_of = here + TILE_PITCH;
    let eta = tile_eta[here];
    let eta_w = tile_eta[here - 1u];
    let eta_e = tile_eta[here + 1u];
    let eta_s = tile_eta[south_of];
    let eta_se = tile_eta[south_of + 1u];
    let eta_n = tile_eta[north_of];
    let eta_nw = tile_eta[north_of - 1u];
    let eta_ne = tile_eta[north_of + 1u];
    let u = tile_u[here];
    let u_w = tile_u[here - 1u];
    let u_e = tile_u[here + 1u];
    let u_s = tile_u[south_of];
    let u_n = tile_u[north_of];
    let u_nw = tile_u[north_of - 1u];
    let v = tile_v[here];
    let v_w = tile_v[here - 1u];
    let v_e = tile_v[here + 1u];
    let v_s = tile_v[south_of];
    let v_se = tile_v[south_of + 1u];
    let v_n = tile_v[north_of];

    // What vorticities take of the corner's east, and kinetic energies of the center's west.
    var corner_v = v_e;
    var corner_v_s = v_se;
    var corner_v_w = v;
    var center_u = u_w;
    var center_u_e = u;
    var center_u_n = u_nw;
#if compatible
    // Programs with a ghost column on either side that is not filled again after friction see there what was before.
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
    bring(tile, lane);
    workgroupBarrier();
    for (var i = lane; i < TILE_X * TILE_Y; i += GROUP) {
        let in_tile = vec2<u32>(i % TILE_X, i / TILE_X);
        let at = tile + in_tile;
        if at.x < params.own.x && at.y < params.own.y {
            advance(at.x, at.y, (in_tile.y + 1u) * TILE_PITCH + in_tile.x + 1u);
        }
    }
}

#each_workgroup
