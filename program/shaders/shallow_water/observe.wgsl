// What is shown of a state, and what its diagnostics are made of: velocities after friction, the
// energy of each cell, and extremes.
//
// Layout: `now` as in cells.wgsl. `shown` elevation, u and v of own cells, C order. `terms`
// elevation and energy of own cells as f32 to be summed and, with `double`, what these lack of the
// f64. `extremes` four numbers for each workgroup: the greatest of -eta, eta, |u| and |v|.
// Workgroup: GROUP invocations, every params.groups-th tile of TILE_X by TILE_Y cells. Memory: 4
// numbers per invocation.

var<uniform> params: Params;
var<storage, read> now: array<Real>;
var<storage, read_write> shown: array<Real>;
var<storage, read_write> terms: array<f32>;
var<storage, read_write> extremes: array<Real>;

#import shallow_water::cells

fn u_before(x: i32, y: i32) -> Real { return load_now(params.field + row_start(y) + column_at(x)); }

fn v_before(x: i32, y: i32) -> Real { return load_now(2u * params.field + row_start(y) + column_at(x)); }

fn u_at(x: i32, y: i32) -> Real {
    return u_after(u_before(x, y), u_before(x - 1, y), u_before(x + 1, y), u_before(x, y - 1), u_before(x, y + 1));
}

fn v_at(x: i32, y: i32) -> Real {
    let here = v_before(x, y);
    let east = v_before(x + 1, y);
    let north = v_before(x, y + 1);
#if compatible
    return v_after(y, here, east, north, u_at(x, y), u_at(x - 1, y), u_at(x, y - 1));
#else
    return v_after(y, here, v_before(x - 1, y), east, v_before(x, y - 1), north);
#endif
}

var<workgroup> greatest: array<vec4<Real>, GROUP>;

fn store_term(place: u32, value: Real) {
    let term = f32(value);
    store_terms(place, term);
#if double
    // Compilers take a number for the f64 that it was rounded from, and what it lacks for 0, where
    // they see how it was made: Mesa's do from some version after 22 on. The grid is not that wide,
    // but none of them knows.
    let rounded = bitcast<f32>(bitcast<u32>(term) + (params.own.x >> 31u));
    store_terms(place + 2u * params.own.x * params.own.y, f32(value - Real(rounded)));
#endif
}

/// Writes what there is of a cell and returns its part in the extremes.
fn observe(column: u32, row: u32) -> vec4<Real> {
    let x = i32(column + params.ghosts.x);
    let y = i32(row + params.ghosts.y);
    let eta = load_now(row_start(y) + column_at(x));
    let u = u_at(x, y);
    let v = v_at(x, y);
    let own = row * params.own.x + column;
    let cells = params.own.x * params.own.y;
    store_shown(own, eta);
    store_shown(cells + own, u);
    store_shown(2u * cells + own, v);
    let height = params.depth + eta;
    store_term(own, eta);
    store_term(cells + own, HALF * (height * (u * u + v * v)) + params.half_gravity * (eta * eta));
    return vec4<Real>(-eta, eta, abs(u), abs(v));
}

fn fold(lane: u32, half: u32) {
    if lane < half { greatest[lane] = max(greatest[lane], greatest[lane + half]); }
}

fn each_workgroup(number: u32, lane: u32) {
    var most = vec4<Real>(Real(-3.0e38));
    for (var n = number; n < params.tiles.x * params.tiles.y; n += params.groups) {
        let tile = vec2<u32>(TILE_X, TILE_Y) * vec2<u32>(n % params.tiles.x, n / params.tiles.x);
        for (var i = lane; i < TILE_X * TILE_Y; i += GROUP) {
            let at = tile + vec2<u32>(i % TILE_X, i / TILE_X);
            if at.x < params.own.x && at.y < params.own.y { most = max(most, observe(at.x, at.y)); }
        }
    }
    greatest[lane] = most;
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        fold(lane, half);
        workgroupBarrier();
    }
    if lane < 4u && number < params.groups { store_extremes(4u * number + lane, greatest[0][lane]); }
}

#each_workgroup
