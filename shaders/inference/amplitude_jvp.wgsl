// The derivative of the amplitudes (amplitude.wgsl) times a tangent of latent values:
// d amplitude_j = amplitude_j (d scale + half de_j - power / 2 sum share de).
//
// Layout: as there; `dp` and `d_spectrum` tangents of `p` and `spectrum`; `amplitude` and `share`
// as they are at the point; `tangent` is written.
// Workgroup: one, GROUP invocations, each a range of modes next to each other. Workgroup memory: 20
// GROUP bytes.

var<uniform> params: Params;
var<storage, read> p: array<f32>;
var<storage, read> dp: array<f32>;
#if wiener
var<storage, read> spectrum: array<f32>;
var<storage, read> d_spectrum: array<f32>;
#endif
var<storage, read> table: array<f32>;
var<storage, read> amplitude: array<f32>;
var<storage, read> share: array<f32>;
var<storage, read_write> tangent: array<f32>;

fn load_latent(at: u32) -> f32 { return load_p(at); }

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
    if mode < 2u { return vec3<f32>(0.0); }
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
    let own = part(lane);
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
    var state = vec3<f32>(0.0);
    for (var mode = own.x; mode < own.y; mode++) {
        state = joined(state, step_to(mode, h, d));
        store_tangent(mode, state.y);
    }
    scan(lane, state);
    let tilt = steps[GROUP - 1u].y / abscissa(params.bins - 1u);
    state = before(lane);
#endif
    var mean = 0.0;
    for (var mode = own.x; mode < own.y; mode++) {
        let at = abscissa(mode);
#if matern
        let ratio = at / h.flexibility;
        let square = ratio * ratio;
        let e = 0.25 * slope * log(1.0 + square) - 0.5 * h.slope * square / (1.0 + square) * cutoff;
#else
#if wiener
        let e = slope * at + position(mode, own.x, load_tangent(mode), state) - tilt * at;
#else
        let e = slope * at;
#endif
#endif
        store_tangent(mode, e);
        mean += load_share(mode) * e;
    }
    mean = sum_of(lane, mean);
    for (var mode = own.x; mode < own.y; mode++) {
        let e = params.half * load_tangent(mode) - 0.5 * params.power * mean;
        store_tangent(mode, load_amplitude(mode) * (scale + e));
    }
    if lane == 0u { store_tangent(0u, select(h.zero * zero, 0.0, params.follows == 1u)); }
}

#each_workgroup
