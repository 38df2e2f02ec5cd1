// The derivative of the amplitudes (amplitude.wgsl) times a tangent of latent values:
// d amplitude_j = amplitude_j (d scale + half de_j - power / 2 sum share de).
//
// Layout: as there; `dp` and `d_spectrum` tangents of `p` and `spectrum`; `amplitude` as it is at
// the point; `pairs` of each amplitude and its tangent are written, which are read together.
// Phases: 0 the steps of the process, 1 exponents and their mean, 2 amplitudes.
// Workgroup: GROUP invocations, params.tiles tiles. Workgroup memory: 12 TILE + 16 GROUP bytes.

var<uniform> params: Params;
var<storage, read> p: array<f32>;
var<storage, read> dp: array<f32>;
#if wiener
var<storage, read> spectrum: array<f32>;
var<storage, read> d_spectrum: array<f32>;
#endif
var<storage, read> table: array<f32>;
var<storage, read> amplitude: array<f32>;
var<storage, read_write> pairs: array<vec2<f32>>;
var<storage, read_write> partials: array<f32>;

#import inference::amplitude_common

/// Returns the tangent of a normal number: a slope, or a logarithm.
fn tangent_of(at: u32, prior: vec2<f32>) -> f32 {
    if at == NONE { return 0.0; }
    return prior.y * load_dp(at);
}

#if wiener
struct Tangents {
    /// Tangents of the flexibility's logarithm and of the asperity.
    flexibility: f32,
    asperity: f32,
}

fn step_to(mode: u32, h: Hyper, d: Tangents) -> vec3<f32> {
    if mode < 2u || mode >= params.bins { return vec3<f32>(0.0); }
    let t = width(mode);
    let at = excitation(mode);
    let factor = h.flexibility * sqrt(t);
    let root = sqrt(t * t / 12.0 + h.asperity);
    let v = factor * (load_d_spectrum(at + 1u) + d.flexibility * load_spectrum(at + 1u));
    let x = load_spectrum(at);
    let y = factor * (root * (load_d_spectrum(at) + d.flexibility * x) + 0.5 * d.asperity * x / root);
    return vec3<f32>(v, y + 0.5 * t * v, t);
}
#endif

fn each_workgroup(number: u32, lane: u32) {
    let h = hyper();
    let tiles = tiles_of(number);
    let slope = tangent_of(params.places.z, params.slope);
    let zero = tangent_of(params.zero, params.offset);
    let scale = tangent_of(params.places.w, params.fluctuations) - select(0.0, zero, params.follows == 1u);
#if matern
    let cutoff = tangent_of(params.places.x, params.shape.xy);
#endif
#if wiener
    var d: Tangents;
    d.flexibility = tangent_of(params.places.x, params.shape.xy);
#if rough
    d.asperity = h.asperity * tangent_of(params.places.y, params.shape.zw);
#endif
    var all = vec3<f32>(0.0);
    var before = vec3<f32>(0.0);
    if has_phase(0u) {
        for (var n = tiles.x; n < tiles.y; n++) {
            for (var mode = first_place(n, lane); mode < (n + 1u) * TILE; mode = next_place(mode)) {
                set_tile_step(mode, step_to(mode, h, d));
            }
            all = scan_tile(lane, all);
            for (var mode = first_place(n, lane); mode < (n + 1u) * TILE; mode = next_place(mode)) {
                if mode < params.bins { store_pairs(mode, vec2<f32>(0.0, tile_step(mode).y)); }
            }
        }
        if chunks() > 1u { leave_steps(number, lane, all); }
    }
#endif
    var mean = 0.0;
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
            let square = ratio * ratio;
            let e = 0.25 * slope * log(1.0 + square) - 0.5 * h.slope * square / (1.0 + square) * cutoff;
#else
#if wiener
            let position = before.y + load_pairs(mode).y + (at - start) * before.x;
            let e = slope * at + position - tilt * at;
#else
            let e = slope * at;
#endif
#endif
            store_pairs(mode, vec2<f32>(0.0, e));
            mean += load_amplitude(share_at(mode)) * e;
        }
        mean = sums_of(lane, vec4<f32>(mean, 0.0, 0.0, 0.0)).x;
        leave(number, lane, 0u, vec4<f32>(mean, 0.0, 0.0, 0.0));
    }
    if has_phase(2u) {
        mean = sums_of_all(lane, 1u, vec4<f32>(mean, 0.0, 0.0, 0.0)).x;
        for (var mode = first_place(tiles.x, lane); mode < min(tiles.y * TILE, params.bins); mode = next_place(mode)) {
            let e = params.half * load_pairs(mode).y - 0.5 * params.power * mean;
            let of_zero = select(h.zero * zero, 0.0, params.follows == 1u);
            let own = load_amplitude(mode);
            store_pairs(mode, vec2<f32>(own, select(own * (scale + e), of_zero, mode == 0u)));
        }
    }
}

#each_workgroup
