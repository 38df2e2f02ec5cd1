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
// Wiener process, two for each step; `table` abscissae of all modes, then widths of steps. Mode 0
// stands for the mean.
// Workgroup: one, GROUP invocations, each a range of modes next to each other. Workgroup memory: 20
// GROUP bytes.

var<uniform> params: Params;
var<storage, read> p: array<f32>;
#if wiener
var<storage, read> spectrum: array<f32>;
#endif
var<storage, read> table: array<f32>;
var<storage, read> multiplicity: array<f32>;
var<storage, read_write> amplitude: array<f32>;
var<storage, read_write> share: array<f32>;

fn load_latent(at: u32) -> f32 { return load_p(at); }

#import inference::amplitude_common

#if wiener
fn step_to(mode: u32, h: Hyper) -> vec3<f32> {
    if mode < 2u { return vec3<f32>(0.0); }
    let t = width(mode);
    let at = excitation(mode);
    let v = h.flexibility * sqrt(t) * load_spectrum(at + 1u);
    return vec3<f32>(v, h.flexibility * sqrt(t) * load_spectrum(at) * sqrt(t * t / 12.0 + h.asperity) + 0.5 * t * v, t);
}
#endif

/// Returns the greatest of all lanes.
fn greatest_of(lane: u32, own: f32) -> f32 {
    tree[lane] = own;
    workgroupBarrier();
    for (var reach = 1u; reach < GROUP; reach *= 2u) {
        if lane % (2u * reach) == 0u && lane + reach < GROUP { tree[lane] = max(tree[lane], tree[lane + reach]); }
        workgroupBarrier();
    }
    let most = tree[0];
    workgroupBarrier();
    return most;
}

fn each_workgroup(number: u32, lane: u32) {
    let h = hyper();
    let own = part(lane);
    var most = -3.0e38;
#if wiener
    var state = vec3<f32>(0.0);
    for (var mode = own.x; mode < own.y; mode++) {
        state = joined(state, step_to(mode, h));
        store_amplitude(mode, state.y);
    }
    scan(lane, state);
    let tilt = steps[GROUP - 1u].y / abscissa(params.bins - 1u);
    state = before(lane);
#endif
    for (var mode = own.x; mode < own.y; mode++) {
        let at = abscissa(mode);
#if matern
        let ratio = at / h.flexibility;
        let e = 0.25 * h.slope * log(1.0 + ratio * ratio);
#else
#if wiener
        let e = h.slope * at + position(mode, own.x, load_amplitude(mode), state) - tilt * at;
#else
        let e = h.slope * at;
#endif
#endif
        store_amplitude(mode, e);
        most = max(most, e);
    }
    most = greatest_of(lane, most);
    var sum = 0.0;
    for (var mode = own.x; mode < own.y; mode++) {
        let term = load_multiplicity(mode) * exp(params.power * (load_amplitude(mode) - most));
        store_share(mode, term);
        sum += term;
    }
    sum = sum_of(lane, sum);
    let is_normal = params.power > 0.0;
    let scale = h.scale + select(0.0, -0.5 * (log(sum) + params.power * most), is_normal);
    for (var mode = own.x; mode < own.y; mode++) {
        store_amplitude(mode, exp(scale + params.half * load_amplitude(mode)));
        store_share(mode, select(0.0, load_share(mode) / sum, is_normal));
    }
    if lane == 0u {
        store_amplitude(0u, h.zero);
        store_share(0u, 0.0);
    }
}

#each_workgroup
