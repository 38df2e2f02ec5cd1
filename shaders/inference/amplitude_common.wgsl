// What the amplitude of a correlated field and its derivatives share: hyper-parameters, steps of
// the integrated Wiener process, sums of a workgroup.

/// Index of a fixed hyper-parameter, which has no latent value.
const NONE: u32 = 0xffffffffu;

/// Returns the latent value at a place; 0 for none.
fn latent(at: u32) -> f32 {
    if at == NONE { return 0.0; }
    return load_latent(at);
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

/// Returns the modes of a lane: from the first to before the second. No lane has mode 0.
fn part(lane: u32) -> vec2<u32> {
    let per = (params.bins - 1u + GROUP - 1u) / GROUP;
    let first = min(1u + lane * per, params.bins);
    return vec2<u32>(first, min(first + per, params.bins));
}

/// Returns the abscissa of a mode: the logarithm of its wavenumber in units of the least, or the
/// wavenumber itself.
fn abscissa(mode: u32) -> f32 { return load_table(mode); }

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

var<workgroup> steps: array<vec3<f32>, GROUP>;

/// Leaves in `steps` those of all lanes up to each, joined.
fn scan(lane: u32, own: vec3<f32>) {
    steps[lane] = own;
    workgroupBarrier();
    for (var reach = 1u; reach < GROUP; reach *= 2u) {
        var sum = steps[lane];
        if lane >= reach { sum = joined(steps[lane - reach], sum); }
        workgroupBarrier();
        steps[lane] = sum;
        workgroupBarrier();
    }
}

/// Returns the sum of the lanes before a lane, after `scan`.
fn before(lane: u32) -> vec3<f32> {
    if lane == 0u { return vec3<f32>(0.0); }
    return steps[lane - 1u];
}

/// Returns the position at a mode of a lane whose modes begin with `first`, from the one that the
/// lane's own steps lead to and what lies before it.
fn position(mode: u32, first: u32, own: f32, before: vec3<f32>) -> f32 {
    return before.y + own + (abscissa(mode) - abscissa(first - 1u)) * before.x;
}
#endif

var<workgroup> tree: array<f32, GROUP>;

/// Returns the sum over all lanes, in one order whatever the device does.
fn sum_of(lane: u32, own: f32) -> f32 {
    tree[lane] = own;
    workgroupBarrier();
    for (var reach = 1u; reach < GROUP; reach *= 2u) {
        if lane % (2u * reach) == 0u && lane + reach < GROUP { tree[lane] += tree[lane + reach]; }
        workgroupBarrier();
    }
    let sum = tree[0];
    workgroupBarrier();
    return sum;
}
