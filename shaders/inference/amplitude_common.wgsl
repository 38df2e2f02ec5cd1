// What the amplitude of a correlated field and its derivatives share: hyper-parameters, steps of
// the integrated Wiener process, sums of a workgroup, and those of all workgroups.
//
// TILE modes are a tile, and each workgroup takes params.tiles tiles in a row. A kernel has phases,
// and each phase needs sums over all modes from the phase before. Where there is one workgroup, it
// takes all phases in one dispatch. Where there are several (params.chunks), each phase is a
// dispatch, and each workgroup writes its sums to `partials` for the next phase.

/// Index of a fixed hyper-parameter, which has no latent value.
const NONE: u32 = 0xffffffffu;

/// Returns the latent value at a place; 0 for none.
fn latent(at: u32) -> f32 {
    if at == NONE { return 0.0; }
    return load_p(at);
}

/// Returns the value of a hyper-parameter: `prior` is its mean and deviation, of its logarithm
/// unless it is a slope.
fn normal(at: u32, prior: vec2<f32>) -> f32 { return prior.x + prior.y * latent(at); }

struct Hyper {
    flexibility: f32,
    asperity: f32,
    slope: f32,
    /// The logarithm of what amplitudes are multiplied by.
    scale: f32,
    /// The amplitude of mode 0.
    zero: f32,
}

fn hyper() -> Hyper {
    var h: Hyper;
#if shaped
    h.flexibility = exp(normal(params.places.x, params.shape.xy));
#endif
#if rough
    h.asperity = exp(normal(params.places.y, params.shape.zw));
#endif
    h.slope = normal(params.places.z, params.slope);
    let zero = normal(params.zero, params.offset);
    h.scale = normal(params.places.w, params.fluctuations) - select(0.0, zero, params.follows == 1u);
    h.zero = select(exp(zero), 1.0, params.follows == 1u);
    return h;
}

/// Returns the tiles of a workgroup: from the first to before the second.
fn tiles_of(number: u32) -> vec2<u32> {
    let first = number * params.tiles;
    return vec2<u32>(first, min(first + params.tiles, (params.bins + TILE - 1u) / TILE));
}

/// Returns the number of workgroups that share the modes. If it is 1, compilers know it and omit
/// half of the text.
fn chunks() -> u32 {
#if alone
    return 1u;
#else
    return params.chunks;
#endif
}

/// Returns `true` if this dispatch takes a phase.
fn has_phase(phase: u32) -> bool { return chunks() == 1u || params.phase == phase; }

/// Returns GROUP. Compilers do not know it, so that they repeat no loop with barriers once for each
/// round. lavapipe compiles a kernel when it is first dispatched, and slowly for each barrier: with
/// this and chunks() the amplitude and its derivatives take 350 ms instead of 800 ms.
fn lanes() -> u32 { return GROUP + params.opaque_zero; }

/// Returns the abscissa of a mode: the logarithm of its wavenumber in units of the least, or the
/// wavenumber itself.
fn abscissa(mode: u32) -> f32 { return load_table(mode); }

/// Returns the place of the share of a mode, behind all amplitudes.
fn share_at(mode: u32) -> u32 { return params.bins + mode; }

/// Places of a lane in a tile.
const ROW: u32 = TILE / GROUP;

/// Returns the first place of a lane in the tiles from `tile` on. With `rows` a lane takes ROW
/// places in a row of each tile, whose steps no other lane needs. Otherwise neighboring lanes take
/// neighboring places, so that accesses to arrays are contiguous.
fn first_place(tile: u32, lane: u32) -> u32 {
#if rows
    return tile * TILE + lane * ROW;
#else
    return tile * TILE + lane;
#endif
}

/// Returns the place of a lane after `place`.
fn next_place(place: u32) -> u32 {
#if rows
    let next = place + 1u;
    return next + select(0u, TILE - ROW, next % ROW == 0u);
#else
    return place + GROUP;
#endif
}

/// For each lane: the steps of all lanes up to it, or numbers of a sum over all lanes.
var<workgroup> steps: array<vec4<f32>, GROUP>;

#if wiener
/// Returns the width of the step that ends at a mode, on the logarithmic axis.
fn width(mode: u32) -> f32 { return load_table(params.bins + mode); }

/// Returns the index of the excitations of the step that ends at a mode.
fn excitation(mode: u32) -> u32 { return 2u * (mode - 2u); }

/// Two steps (v, y, t) one after the other: v is added to the velocity, y to the position, beside
/// the velocity before times t.
fn joined(a: vec3<f32>, b: vec3<f32>) -> vec3<f32> {
    return vec3<f32>(a.x + b.x, a.y + b.y + b.z * a.x, a.z + b.z);
}

/// Writes to `steps`, for each lane, the steps of all lanes up to it, joined.
fn scan(lane: u32, own: vec3<f32>) {
    steps[lane] = vec4<f32>(own, 0.0);
    workgroupBarrier();
    for (var reach = 1u; reach < lanes(); reach *= 2u) {
        var sum = steps[lane].xyz;
        if lane >= reach { sum = joined(steps[lane - reach].xyz, sum); }
        workgroupBarrier();
        steps[lane] = vec4<f32>(sum, 0.0);
        workgroupBarrier();
    }
}

/// The steps of a tile, or with `rows` of a lane's row: all v, all y, all t. Software renderers
/// reach memory of an invocation much faster than that of a workgroup.
#if rows
const CELLS: u32 = ROW;
var<private> tile: array<f32, 3u * CELLS>;
#else
const CELLS: u32 = TILE;
var<workgroup> tile: array<f32, 3u * CELLS>;
#endif

fn tile_step(place: u32) -> vec3<f32> {
    let cell = place % CELLS;
    return vec3<f32>(tile[cell], tile[CELLS + cell], tile[2u * CELLS + cell]);
}

fn set_tile_step(place: u32, step: vec3<f32>) {
    let cell = place % CELLS;
    tile[cell] = step.x;
    tile[CELLS + cell] = step.y;
    tile[2u * CELLS + cell] = step.z;
}

/// Replaces each step of the tile by `before` and all steps up to it, joined. Returns the last one.
/// Each lane takes ROW places in a row.
fn scan_tile(lane: u32, before: vec3<f32>) -> vec3<f32> {
    workgroupBarrier();
    let first = lane * ROW;
    var state = tile_step(first);
    for (var k = 1u; k < ROW; k++) { state = joined(state, tile_step(first + k)); }
    scan(lane, state);
    state = before;
    if lane > 0u { state = joined(before, steps[lane - 1u].xyz); }
    for (var k = 0u; k < ROW; k++) {
        state = joined(state, tile_step(first + k));
        set_tile_step(first + k, state);
    }
    let all = joined(before, steps[GROUP - 1u].xyz);
    workgroupBarrier();
    return all;
}

/// Writes the steps of a workgroup's modes, joined, for the next phase.
fn leave_steps(number: u32, lane: u32, all: vec3<f32>) {
    if lane < 3u { store_partials(number * PARTIALS + lane, all[lane]); }
}

/// Returns the steps of the workgroups before number `end`, joined.
fn steps_before(end: u32, lane: u32) -> vec3<f32> {
    let per = (end + GROUP - 1u) / GROUP;
    var state = vec3<f32>(0.0);
    for (var i = min(lane * per, end); i < min((lane + 1u) * per, end); i++) {
        let at = i * PARTIALS;
        state = joined(state, vec3<f32>(load_partials(at), load_partials(at + 1u), load_partials(at + 2u)));
    }
    scan(lane, state);
    state = steps[GROUP - 1u].xyz;
    workgroupBarrier();
    return state;
}
#endif

/// First place of a workgroup's sums among its PARTIALS places in `partials`; steps come before.
const SUMS = 4u;

/// Returns sums over all lanes, in one order whatever the device does.
fn sums_of(lane: u32, own: vec4<f32>) -> vec4<f32> {
    steps[lane] = own;
    workgroupBarrier();
    for (var reach = 1u; reach < lanes(); reach *= 2u) {
        if lane % (2u * reach) == 0u && lane + reach < GROUP { steps[lane] += steps[lane + reach]; }
        workgroupBarrier();
    }
    let sums = steps[0];
    workgroupBarrier();
    return sums;
}

/// Writes sums over a workgroup's modes for the next phase, from number `first` on.
fn leave(number: u32, lane: u32, first: u32, sums: vec4<f32>) {
    if chunks() > 1u && lane >= first && lane < 4u { store_partials(number * PARTIALS + SUMS + lane, sums[lane]); }
}

/// Returns the first `count` (1, 2 or 4) sums of a workgroup. This dispatch may write the others.
fn left(number: u32, count: u32) -> vec4<f32> {
    let at = number * PARTIALS + SUMS;
    var found = vec4<f32>(load_partials(at), 0.0, 0.0, 0.0);
    if count > 1u { found.y = load_partials(at + 1u); }
    if count > 2u {
        found.z = load_partials(at + 2u);
        found.w = load_partials(at + 3u);
    }
    return found;
}

/// Returns the first `count` sums over all workgroups: `own` if there is only one.
fn sums_of_all(lane: u32, count: u32, own: vec4<f32>) -> vec4<f32> {
    let workgroups = chunks();
    if workgroups == 1u { return own; }
    var sums = vec4<f32>(0.0);
    for (var i = lane; i < workgroups; i += GROUP) { sums += left(i, count); }
    return sums_of(lane, sums);
}
