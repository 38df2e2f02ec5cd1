// A cotangent of the amplitudes (amplitude.wgsl) times their derivative.
//
// With g_j = amplitude_j cotangent_j and its sum G, the exponents have the cotangents half g_j -
// power / 2 share_j G. Those of the Wiener process go back through its two sums from the last mode
// on: Y_j is the sum of the cotangents of positions from j on, W_j that of t Y behind j.
//
// Layout: as there; `sums` are the cotangents of all modes, as accumulate.wgsl leaves them; `out`
// one number for each of `p`, `d_spectrum` for each of `spectrum`, on the way what a lane's own
// steps lead to; what `out` has for the amplitude of mode 0 is added to, the rest written.
// Workgroup: one, GROUP invocations, each a range of modes next to each other. Workgroup memory: 20
// GROUP bytes.

var<uniform> params: Params;
var<storage, read> p: array<f32>;
var<storage, read> table: array<f32>;
var<storage, read> amplitude: array<f32>;
var<storage, read> share: array<f32>;
var<storage, read> sums: array<u32>;
var<storage, read_write> out: array<f32>;
#if wiener
var<storage, read> spectrum: array<f32>;
var<storage, read_write> d_spectrum: array<f32>;
#endif

fn load_latent(at: u32) -> f32 { return load_p(at); }

#import inference::amplitude_common
#import gpu::fixed

/// Returns the cotangent of the amplitude of a mode.
fn cotangent(mode: u32) -> f32 {
    return sum_of_terms(vec2<u32>(load_sums(2u * mode + 1u), load_sums(2u * mode + 2u)), params.bits, load_sums(0u));
}

/// Writes the cotangent of the latent value of a normal number.
fn give(at: u32, prior: vec2<f32>, value: f32) {
    if at != NONE { store_out(at, prior.y * value); }
}

/// Returns the cotangent of an exponent; `sum` is that of the scale.
fn exponent(mode: u32, sum: f32) -> f32 {
    return params.half * load_amplitude(mode) * cotangent(mode) - 0.5 * params.power * load_share(mode) * sum;
}

fn each_workgroup(number: u32, lane: u32) {
    let h = hyper();
    // The lanes in reverse: what lies behind a lane's modes comes before.
    let there = part(GROUP - 1u - lane);
    var sum = 0.0;
    for (var mode = there.x; mode < there.y; mode++) { sum += load_amplitude(mode) * cotangent(mode); }
    sum = sum_of(lane, sum);
    var slope = 0.0;
#if shaped
    var shape = 0.0;
#endif
#if rough
    var rough = 0.0;
#endif
#if wiener
    var state = vec3<f32>(0.0);
#endif
    for (var next = there.y; next > there.x; next--) {
        let mode = next - 1u;
        let at = abscissa(mode);
        let e = exponent(mode, sum);
#if matern
        let ratio = at / h.flexibility;
        let square = ratio * ratio;
        slope += 0.25 * e * log(1.0 + square);
        shape -= 0.5 * e * h.slope * square / (1.0 + square);
#else
        slope += e * at;
#endif
#if wiener
        // The step back from a mode: (b, t b, t) for the cotangent b of its position.
        let t = width(mode);
        if mode > 1u { store_d_spectrum(excitation(mode) + 1u, state.y); }
        state = joined(state, vec3<f32>(e, t * e, t));
        if mode > 1u { store_d_spectrum(excitation(mode), state.x); }
#endif
    }
    slope = sum_of(lane, slope);
#if wiener
    scan(lane, state);
    state = before(lane);
    // The tilt takes `last` from the cotangent of the last position, with which all lanes but the
    // first begin.
    let last = slope / abscissa(params.bins - 1u);
    if state.z > 0.0 { state = vec3<f32>(state.x - last, state.y - last * state.z, state.z); }
    let is_first = there.y == params.bins;
    for (var mode = max(there.x, 2u); mode < there.y; mode++) {
        let at = excitation(mode);
        let t = width(mode);
        // Steps of this lane behind the mode, whose widths add up to this.
        let behind = abscissa(there.y - 1u) - abscissa(mode);
        var y = state.x + load_d_spectrum(at);
        var w = state.y + load_d_spectrum(at + 1u) + behind * state.x;
        if is_first {
            y -= last;
            w -= last * behind;
        }
        let factor = h.flexibility * sqrt(t);
        let root = sqrt(t * t / 12.0 + h.asperity);
        let first = factor * root * y;
        let second = factor * (w + 0.5 * t * y);
        store_d_spectrum(at, first);
        store_d_spectrum(at + 1u, second);
        shape += load_spectrum(at) * first + load_spectrum(at + 1u) * second;
#if rough
        rough += 0.5 * factor * load_spectrum(at) * y / root;
#endif
    }
#endif
#if shaped
    shape = sum_of(lane, shape);
#endif
#if rough
    rough = sum_of(lane, rough);
#endif
    if lane == 0u {
#if shaped
        give(params.places.x, params.shape.xy, shape);
#endif
#if rough
        give(params.places.y, params.shape.zw, h.asperity * rough);
#endif
        give(params.places.z, params.slope, slope);
        give(params.places.w, params.fluctuations, sum);
        if params.zero != NONE {
            let zero = select(h.zero * cotangent(0u), -sum, params.follows == 1u);
            store_out(params.zero, load_out(params.zero) + params.offset.y * zero);
        }
    }
}

#each_workgroup
