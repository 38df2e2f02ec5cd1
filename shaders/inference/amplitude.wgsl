// The amplitude of each wavenumber of a correlated field, and each wavenumber's share of the
// variance.
//
// The exponent e of mode j > 0 is slope l_j + d_j with `wiener`, an integrated Wiener process d
// over l, the logarithm of the wavenumber, without its end-to-end slope; without, the power law
// slope l_j; with `matern` slope / 4 log(1 + (k_j / cutoff)^2). Amplitudes are scale exp(half e_j)
// / sqrt(sum c exp(power e)) with multiplicities c, and shares the terms of that sum over the sum;
// with power = 0 sum and share are absent.
//
// Layout: `p` hyper-parameters, places of which are in params; `spectrum` the excitations of the
// Wiener process, two for each step; `table` abscissae of all modes, then widths of steps;
// `amplitude` those of all modes, then their shares. Mode 0 stands for the mean.
// Phases: 0 the steps of the process, 1 exponents and their sum, 2 amplitudes.
// Workgroup: GROUP invocations, params.tiles tiles. Workgroup memory: 12 TILE + 16 GROUP bytes.

var<uniform> params: Params;
var<storage, read> p: array<f32>;
#if wiener
var<storage, read> spectrum: array<f32>;
#endif
var<storage, read> table: array<f32>;
var<storage, read> multiplicity: array<f32>;
var<storage, read_write> amplitude: array<f32>;
var<storage, read_write> partials: array<f32>;

#import inference::amplitude_common

#if wiener
fn step_to(mode: u32, h: Hyper) -> vec3<f32> {
    if mode < 2u || mode >= params.bins { return vec3<f32>(0.0); }
    let t = width(mode);
    let at = excitation(mode);
    let v = h.flexibility * sqrt(t) * load_spectrum(at + 1u);
    return vec3<f32>(v, h.flexibility * sqrt(t) * load_spectrum(at) * sqrt(t * t / 12.0 + h.asperity) + 0.5 * t * v, t);
}
#endif

/// Less than any exponent.
const LEAST = -1.0e30;

/// Joins two pairs (m, s) of the greatest exponent m and the sum s of terms c exp(power (e - m)).
fn joined_sums(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let most = max(a.x, b.x);
    return vec2<f32>(most, a.y * exp(params.power * (a.x - most)) + b.y * exp(params.power * (b.x - most)));
}

/// Returns the pairs of all lanes joined.
fn sums_by_greatest(lane: u32, own: vec2<f32>) -> vec2<f32> {
    steps[lane] = vec4<f32>(own, 0.0, 0.0);
    workgroupBarrier();
    for (var reach = 1u; reach < lanes(); reach *= 2u) {
        if lane % (2u * reach) == 0u && lane + reach < GROUP {
            steps[lane] = vec4<f32>(joined_sums(steps[lane].xy, steps[lane + reach].xy), 0.0, 0.0);
        }
        workgroupBarrier();
    }
    let all = steps[0].xy;
    workgroupBarrier();
    return all;
}

fn each_workgroup(number: u32, lane: u32) {
    let h = hyper();
    let tiles = tiles_of(number);
#if wiener
    var all = vec3<f32>(0.0);
    var before = vec3<f32>(0.0);
    if has_phase(0u) {
        for (var n = tiles.x; n < tiles.y; n++) {
            for (var mode = first_place(n, lane); mode < (n + 1u) * TILE; mode = next_place(mode)) {
                set_tile_step(mode, step_to(mode, h));
            }
            all = scan_tile(lane, all);
            for (var mode = first_place(n, lane); mode < (n + 1u) * TILE; mode = next_place(mode)) {
                if mode < params.bins { store_amplitude(mode, tile_step(mode).y); }
            }
        }
        if chunks() > 1u { leave_steps(number, lane, all); }
    }
#endif
    var found = vec2<f32>(LEAST, 0.0);
    if has_phase(1u) {
#if wiener
        if chunks() > 1u {
            before = steps_before(number, lane);
            all = steps_before(chunks(), lane);
        }
        let tilt = all.y / abscissa(params.bins - 1u);
        let start = abscissa(max(tiles.x * TILE, 1u) - 1u);
#endif
        for (var mode = first_place(tiles.x, lane); mode < min(tiles.y * TILE, params.bins); mode = next_place(mode)) {
            let at = abscissa(mode);
#if matern
            let ratio = at / h.flexibility;
            let e = 0.25 * h.slope * log(1.0 + ratio * ratio);
#else
#if wiener
            let position = before.y + load_amplitude(mode) + (at - start) * before.x;
            let e = h.slope * at + position - tilt * at;
#else
            let e = h.slope * at;
#endif
#endif
            store_amplitude(mode, e);
            if mode > 0u { found = joined_sums(found, vec2<f32>(e, load_multiplicity(mode))); }
        }
        found = sums_by_greatest(lane, found);
        leave(number, lane, 0u, vec4<f32>(found, 0.0, 0.0));
    }
    if has_phase(2u) {
        let workgroups = chunks();
        if workgroups > 1u {
            found = vec2<f32>(LEAST, 0.0);
            for (var i = lane; i < workgroups; i += GROUP) { found = joined_sums(found, left(i, 2u).xy); }
            found = sums_by_greatest(lane, found);
        }
        let is_normal = params.power > 0.0;
        let scale = h.scale + select(0.0, -0.5 * (log(found.y) + params.power * found.x), is_normal);
        for (var mode = first_place(tiles.x, lane); mode < min(tiles.y * TILE, params.bins); mode = next_place(mode)) {
            let e = load_amplitude(mode);
            let term = load_multiplicity(mode) * exp(params.power * (e - found.x));
            store_amplitude(mode, select(exp(scale + params.half * e), h.zero, mode == 0u));
            store_amplitude(share_at(mode), select(0.0, term / found.y, is_normal && mode > 0u));
        }
    }
}

#each_workgroup
