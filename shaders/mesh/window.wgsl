// Where a particle lies and how its mass is shared among mesh nodes, one axis at a time.
//
// Sums of products say which product is rounded (`fma`), here and where weights are used: the same
// particle is placed by many kernels, which compilers would round each in their own way.
//
// Windows (Hockney & Eastwood 1981, chapter 5): cloud in cell (WIDTH 2, the default), triangular
// shaped cloud (`tsc`, 3), piecewise cubic spline (`pcs`, 4).

#if pcs
const WIDTH: i32 = 4;
#else
#if tsc
const WIDTH: i32 = 3;
#else
const WIDTH: i32 = 2;
#endif
#endif

/// The first of WIDTH nodes along an axis, and the distance that fixes their weights.
struct Nodes {
    first: i32,
    at: f32,
}

/// Nodes of a particle displaced by `shift` cells from site `site` of a lattice of `sites` over a
/// mesh of `mesh` cells. The site's position is split into a cell and a remainder in integers, so
/// that precision does not depend on the box.
fn nodes_of_site(site: u32, sites: u32, per_site: f32, mesh: u32, shift: f32) -> Nodes {
    let at = cell_of_site(site, sites, mesh);
    return nodes_near(i32(at.x), fma(f32(at.y), per_site, shift));
}

/// Quotient and remainder of site * mesh by sites, for site < sites <= 2^31. From 65,536 cells per
/// axis on the product takes two words.
fn cell_of_site(site: u32, sites: u32, mesh: u32) -> vec2<u32> {
    let low = site * mesh;
    // The high word, by halves of words.
    let middle = (site >> 16u) * (mesh & 0xffffu) + (((site & 0xffffu) * (mesh & 0xffffu)) >> 16u);
    let other = (site & 0xffffu) * (mesh >> 16u) + (middle & 0xffffu);
    let high = (site >> 16u) * (mesh >> 16u) + (middle >> 16u) + (other >> 16u);
    let wide = high > 0u;
    var quotient = select(low / sites, 0u, wide);
    var rest = select(low % sites, high, wide);
    // Long division, from the high word on, which is less than `sites`.
    for (var bit = select(0u, 32u, wide); bit > 0u; bit--) {
        rest = (rest << 1u) | ((low >> (bit - 1u)) & 1u);
        let more = rest >= sites;
        quotient = (quotient << 1u) | select(0u, 1u, more);
        rest -= select(0u, sites, more);
    }
    return vec2<u32>(quotient, rest);
}

/// Nodes of a particle at `offset` cells above cell `cell`.
#if !tsc
fn nodes_near(cell: i32, offset: f32) -> Nodes {
    let whole = floor(offset);
    return Nodes(cell + i32(whole) - (WIDTH / 2 - 1), offset - whole);
}
#else
fn nodes_near(cell: i32, offset: f32) -> Nodes {
    let whole = floor(offset + 0.5);
    return Nodes(cell + i32(whole) - 1, offset - whole);
}
#endif

/// Weight of node `n` of WIDTH.
#if !tsc
#if !pcs
fn weight(at: f32, n: i32) -> f32 {
    return select(at, 1.0 - at, n == 0);
}
#endif
#endif
#if tsc
fn weight(at: f32, n: i32) -> f32 {
    let far = 0.5 + select(at, -at, n == 0);
    return select(0.5 * far * far, fma(-at, at, 0.75), n == 1);
}
#endif
#if pcs
fn weight(at: f32, n: i32) -> f32 {
    let x = select(1.0 - at, at, n == 1 || n == 3);
    let outer = x * x * x / 6.0;
    let inner = fma(x * x, fma(3.0, x, -6.0), 4.0) / 6.0;
    return select(outer, inner, n == 1 || n == 2);
}
#endif

/// Returns the node that takes the remainder of the rounding: one whose weight is never small.
fn heaviest(at: f32) -> i32 {
    return select(0, select(1, 2, WIDTH == 4 && at >= 0.5), WIDTH > 2);
}

/// A position that f32 resolves: not NaN, not infinite, less than 2^22 cells (0x4a800000). By its
/// bits: a compiler that takes no number for NaN may leave out what a comparison of floats says of
/// one.
fn sane(shift: vec3<f32>) -> bool {
    return all((bitcast<vec3<u32>>(shift) & vec3<u32>(0x7fffffffu)) < vec3<u32>(0x4a800000u));
}
