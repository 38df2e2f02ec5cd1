// The scalars of a step of conjugate gradients from its sums, with the bits of the host's: with
// `curvature` the length of the step, otherwise the next direction. At an event that needs the host
// the steps end. Later ones then change nothing.
//
// Layout: `words` are those of step_words.wgsl, sums those of accumulations.wgsl, whose terms have
// params.bits bits. Numbers of parameters are those of soft_double.wgsl.
// Workgroup: one invocation. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> words: array<u32>;

#import gpu::soft_double
#import inference::step_words

fn number_at(at: u32) -> Double {
    return Double(load_words(at), load_words(at + 1u), i32(load_words(at + 2u)), load_words(at + 3u));
}

fn number(words: vec4<u32>) -> Double { return Double(words.x, words.y, i32(words.z), words.w); }

fn store_number(at: u32, value: Double) {
    store_words(at, value.low);
    store_words(at + 1u, value.high);
    store_words(at + 2u, u32(value.exponent));
    store_words(at + 3u, value.sign);
}

fn sum_of(n: u32) -> Double {
    let at = SUMS_AT + params.sums + 2u * n;
    let exponent = top_of(load_words(SUMS_AT + n)) - i32(params.bits);
    return of_integer(vec2<u32>(load_words(at), load_words(at + 1u)), exponent);
}

/// Returns `true` if all terms of all sums are finite.
fn are_finite() -> bool {
    var most = 0u;
    for (var n = 0u; n < params.sums; n++) { most = max(most, load_words(SUMS_AT + n)); }
    return most < 0x7f800000u;
}

fn end(place: u32) {
    store_words(PLACE, place);
    store_words(STEP, params.step);
}

#if curvature
fn advance() {
    let curvature = sum_of(0u);
    if !are_finite() || !is_positive(curvature) {
        end(1u);
        return;
    }
    let along = single_of(quotient(number_at(GAMMA), curvature));
    store_words(ALONG, along ^ 0x80000000u);
    if along == 0u { end(1u); }
}
#else
/// Returns `true` if the step is the last one by the rules, or may be.
fn is_end(square: Double, energy: Double) -> bool {
    let fall = sum(number_at(ENERGY), opposite(energy));
    var rise = product(number(params.rise), energy);
    rise.sign = 1u;
    return params.is_last == 1u || !are_finite() || !is_less(number(params.tiny), square)
        || is_less(sum_of(params.norm), number(params.target_norm)) || is_less(fall, rise)
        || is_less(fall, number(params.least_fall));
}

fn advance() {
    for (var n = 0u; n < 3u * params.sums; n++) { store_words(LAST_AT + n, load_words(SUMS_AT + n)); }
    let square = sum_of(0u);
    let energy = times_power(sum(sum_of(1u), opposite(sum_of(2u))), -1);
    let gamma = sum_of(params.gamma);
    let conjugate = single_of(quotient(gamma, number_at(GAMMA)));
    if is_end(square, energy) || !is_positive(gamma) || conjugate == 0u {
        end(2u);
        return;
    }
    store_number(EARLIER, number_at(ENERGY));
    store_number(GAMMA, gamma);
    store_number(ENERGY, energy);
    store_words(CONJUGATE, conjugate);
}
#endif

fn each_invocation(i: u32) {
    if load_words(PLACE) == 0u { advance(); }
    for (var n = 0u; n < 3u * params.sums; n++) { store_words(SUMS_AT + n, 0u); }
}

#each_invocation 1u
