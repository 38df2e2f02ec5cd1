// Positions in the periodic box as rows: those of sites plus displacements, each sum rounded once,
// except one in some millions.
//
// A particle without a position, whose displacement is not finite, keeps that.
//
// Layout: `x`, `y`, `z` hold the displacements of this rank's sites, C order; `sites` the
// coordinates of an axis' sites in two floats each; `rows` receives the positions of `count`
// particles from `first` on, three words each, in [0, side). `side` is that of the box in two
// floats.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory. `sites` is small and
// comes from the cache.

#import gpu::two_floats

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read> y: array<f32>;
var<storage, read> z: array<f32>;
var<storage, read> sites: array<vec2<f32>>;
var<storage, read_write> rows: array<f32>;

/// Returns `true` if a sum of two floats is below another.
fn below(a: vec2<f32>, b: vec2<f32>) -> bool { return a.x < b.x || (a.x == b.x && a.y < b.y); }

/// Returns the position of a site with this displacement.
fn position(site: u32, displacement: f32) -> f32 {
    // By its bits: comparisons with NaN may be optimized away.
    if (bitcast<u32>(displacement) & 0x7f800000u) == 0x7f800000u { return displacement; }
    let at = load_sites(site);
    var place = sum2(at, vec2<f32>(displacement, 0.0));
    let nought = vec2<f32>(0.0);
    if below(place, nought) || !below(place, params.side) {
        // Boxes to go back; the quotient may be one off where the position is near a side.
        let boxes = floor(place.x / params.side.x);
        place = sum2(place, product2(vec2<f32>(-boxes, 0.0), params.side));
        if below(place, nought) { place = sum2(place, params.side); }
        if !below(place, params.side) { place = sum2(place, -params.side); }
    }
    // What rounds to the side, or is not below it in one float, is at 0.
    return select(place.x, 0.0, !below(vec2<f32>(place.x, 0.0), params.side));
}

fn each(i: u32) {
    let particle = params.first + i;
    let line = particle / params.depth;
    store_rows(3u * i, position(params.corner.x + line / params.width, load_x(particle)));
    store_rows(3u * i + 1u, position(params.corner.y + line % params.width, load_y(particle)));
    store_rows(3u * i + 2u, position(params.corner.z + particle % params.depth, load_z(particle)));
}

#each params.count
