// A cotangent of the amplitudes (amplitude.wgsl) times their derivative.
//
// With g_j = amplitude_j cotangent_j and its sum G, the exponents have the cotangents half g_j -
// power / 2 share_j G. Those of the Wiener process go back through its two sums from the last mode
// on: Y_j is the sum of the cotangents of positions from j on, W_j that of t Y behind j.
//
// Layout: as there; `sums` are the cotangents of all modes, as accumulate.wgsl leaves them; `out`
// one number for each of `p`, `d_spectrum` for each of `spectrum`; between phases 1 and 2 it holds
// sums over a workgroup's own steps. All values are written, but that of `out` for the amplitude of
// mode 0 is added to with params.adds. Place 0 is the last mode, and the last place is mode 1.
// Phases: 0 the sum G, 1 exponents and the steps back, 2 the excitations, 3 the hyper-parameters,
// by one workgroup.
// Workgroup: GROUP invocations, params.tiles tiles. Workgroup memory: 12 TILE + 16 GROUP bytes.

var<uniform> params: Params;
var<storage, read> p: array<f32>;
var<storage, read> table: array<f32>;
var<storage, read> amplitude: array<f32>;
var<storage, read> sums: array<u32>;
var<storage, read_write> out: array<f32>;
#if wiener
var<storage, read> spectrum: array<f32>;
var<storage, read_write> d_spectrum: array<f32>;
#endif
var<storage, read_write> partials: array<f32>;

#import inference::amplitude_common
#import gpu::fixed

/// The bits of the greatest magnitude of the terms of all sums.
var<private> most: u32;

/// Returns the cotangent of the amplitude of a mode.
fn cotangent(mode: u32) -> f32 {
    return sum_of_terms(vec2<u32>(load_sums(2u * mode + 1u), load_sums(2u * mode + 2u)), params.bits, most);
}

/// Writes the cotangent of the latent value of a normal number.
fn give(at: u32, prior: vec2<f32>, value: f32) {
    if at != NONE { store_out(at, prior.y * value); }
}

/// Returns the cotangent of an exponent; `sum` is that of the scale.
fn exponent(mode: u32, sum: f32) -> f32 {
    return params.half * load_amplitude(mode) * cotangent(mode) - 0.5 * params.power * load_amplitude(share_at(mode)) * sum;
}

fn each_workgroup(number: u32, lane: u32) {
    let h = hyper();
    most = load_sums(0u);
    let tiles = tiles_of(number);
    let first = tiles.x * TILE;
    let count = params.bins - 1u;
    let end = min(tiles.y * TILE, count);
    // The sum G, and the cotangents of the slope, the shape and the roughness.
    var sums = vec4<f32>(0.0);
    if has_phase(0u) {
        for (var place = first_place(tiles.x, lane); place < end; place = next_place(place)) {
            let mode = count - place;
            sums.x += load_amplitude(mode) * cotangent(mode);
        }
        sums = sums_of(lane, sums);
        leave(number, lane, 0u, sums);
    }
    if has_phase(1u) {
        let sum = sums_of_all(lane, 1u, sums).x;
        sums = vec4<f32>(0.0);
#if wiener
        var all = vec3<f32>(0.0);
        for (var n = tiles.x; n < tiles.y; n++) {
            for (var place = first_place(n, lane); place < (n + 1u) * TILE; place = next_place(place)) {
                // The step back from a mode: (b, t b, t) for the cotangent b of its position.
                var step = vec3<f32>(0.0);
                if place < count {
                    let mode = count - place;
                    let e = exponent(mode, sum);
                    let t = width(mode);
                    sums.y += e * abscissa(mode);
                    step = vec3<f32>(e, t * e, t);
                }
                set_tile_step(place, step);
            }
            all = scan_tile(lane, all);
            for (var place = first_place(n, lane); place < (n + 1u) * TILE; place = next_place(place)) {
                if place + 1u < count {
                    let mode = count - place;
                    let step = tile_step(place);
                    store_d_spectrum(excitation(mode), step.x);
                    // Without the step of the mode itself.
                    store_d_spectrum(excitation(mode) + 1u, step.y - width(mode) * step.x);
                }
            }
        }
        if chunks() > 1u { leave_steps(number, lane, all); }
#else
        for (var place = first_place(tiles.x, lane); place < end; place = next_place(place)) {
            let mode = count - place;
            let at = abscissa(mode);
            let e = exponent(mode, sum);
#if matern
            let ratio = at / h.flexibility;
            let square = ratio * ratio;
            sums.y += 0.25 * e * log(1.0 + square);
            sums.z -= 0.5 * e * h.slope * square / (1.0 + square);
#else
            sums.y += e * at;
#endif
        }
#endif
        sums = sums_of(lane, sums);
        sums.x = sum;
        leave(number, lane, 1u, sums);
    }
#if wiener
    if has_phase(2u) {
        let found = sums_of_all(lane, 2u, sums);
        sums = vec4<f32>(0.0);
        var before = vec3<f32>(0.0);
        if chunks() > 1u { before = steps_before(number, lane); }
        // The tilt takes `last` from the cotangent of the last position.
        let last = found.y / abscissa(count);
        let chunk_end = abscissa(count - min(first, count));
        for (var place = first_place(tiles.x, lane); place < min(end, count - 1u); place = next_place(place)) {
            let mode = count - place;
            let at = excitation(mode);
            let t = width(mode);
            // Widths of the steps behind the mode: of this workgroup, and of all.
            let behind = chunk_end - abscissa(mode);
            let behind_all = abscissa(count) - abscissa(mode);
            let y = before.x + load_d_spectrum(at) - last;
            let w = before.y + load_d_spectrum(at + 1u) + behind * before.x - last * behind_all;
            let factor = h.flexibility * sqrt(t);
            let root = sqrt(t * t / 12.0 + h.asperity);
            let by_position = factor * root * y;
            let by_velocity = factor * (w + 0.5 * t * y);
            store_d_spectrum(at, by_position);
            store_d_spectrum(at + 1u, by_velocity);
            sums.z += load_spectrum(at) * by_position + load_spectrum(at + 1u) * by_velocity;
#if rough
            sums.w += 0.5 * factor * load_spectrum(at) * y / root;
#endif
        }
        sums = sums_of(lane, sums);
        sums = vec4<f32>(found.xy, sums.zw);
        leave(number, lane, 2u, sums);
    }
#endif
    if has_phase(3u) {
        sums = sums_of_all(lane, 4u, sums);
        if lane == 0u {
#if shaped
            give(params.places.x, params.shape.xy, sums.z);
#endif
#if rough
            give(params.places.y, params.shape.zw, h.asperity * sums.w);
#endif
            give(params.places.z, params.slope, sums.y);
            give(params.places.w, params.fluctuations, sums.x);
            if params.zero != NONE {
                let zero = select(h.zero * cotangent(0u), -sums.x, params.follows == 1u);
                let before = select(0.0, load_out(params.zero), params.adds == 1u);
                store_out(params.zero, before + params.offset.y * zero);
            }
        }
    }
}

#each_workgroup
