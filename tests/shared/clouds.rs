//! Points of all kinds, and brute force over them in `f64`.

use meshloom::points::Domain;

/// Arrangement of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Uniform,
    /// A halo with a cusp: half the mass within a tenth, outliers beyond everything.
    Hernquist,
    /// A lattice with many equal distances.
    Lattice,
    Line,
    /// All in one place.
    Same,
    /// Two dense clumps far from each other.
    Two,
}

/// Returns a number in [0, 1) that depends on nothing but the seed and the index (splitmix64).
pub fn uniform(seed: u64, index: u64) -> f64 {
    let mut z = (seed << 40 ^ index).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// `n` points of `dims` coordinates, most of them in the unit box.
pub fn points(kind: Kind, n: usize, dims: usize, seed: u64) -> Vec<f32> {
    let mut out = Vec::with_capacity(n * dims);
    let side = (n as f64).powf(1.0 / dims as f64).ceil().max(1.0) as usize;
    for i in 0..n {
        let u = |c: usize| uniform(seed, (4 * i + c) as u64);
        let at: [f64; 3] = match kind {
            Kind::Uniform => [u(0), u(1), u(2)],
            Kind::Hernquist => {
                let root = u(0).min(0.9999).sqrt();
                let r = 0.02 * root / (1.0 - root);
                let (cos, phi) = (2.0 * u(1) - 1.0, std::f64::consts::TAU * u(2));
                let sin = (1.0 - cos * cos).sqrt();
                [0.5 + r * sin * phi.cos(), 0.5 + r * sin * phi.sin(), 0.5 + r * cos]
            }
            Kind::Lattice => {
                let along = [i % side, i / side % side, i / side / side];
                along.map(|j| j as f64 / side as f64)
            }
            Kind::Line => [i as f64 / n as f64, 0.25, 0.25],
            Kind::Same => [0.375; 3],
            Kind::Two => {
                let center = if i % 2 == 0 { 0.1 } else { 0.9 };
                [0, 1, 2].map(|c| center + 1e-3 * (u(c) - 0.5))
            }
        };
        out.extend(at[..dims].iter().map(|&x| x as f32));
    }
    out
}

/// Returns the square of the distance of two points, or of their nearest images: in `f64`, and by a
/// rule of its own.
pub fn square(domain: &Domain, a: &[f32], b: &[f32]) -> f64 {
    let along = |axis: usize| {
        let d = f64::from(a[axis]) - f64::from(b[axis]);
        let side = domain.side(axis).map_or(f64::INFINITY, f64::from);
        d.abs().min((d.abs() - side).abs())
    };
    (0..domain.dims()).map(|axis| along(axis).powi(2)).sum()
}

/// Returns the distance as `f32`, which is what counts.
pub fn distance(domain: &Domain, a: &[f32], b: &[f32]) -> f32 {
    square(domain, a, b).sqrt() as f32
}

type Found = Vec<Vec<(u32, f32)>>;

/// Returns the `k` nearest sources of each query, in the order of (square, index); missing ones are
/// (u32::MAX, infinity).
pub fn brute_nearest(
    domain: &Domain,
    sources: &[f32],
    queries: &[f32],
    k: usize,
    within: f32,
    without_self: bool,
) -> Found {
    let dims = domain.dims();
    let row = |(q, at): (usize, &[f32])| {
        let mut all: Vec<(f64, u32)> = sources
            .chunks(dims)
            .enumerate()
            .filter(|(s, _)| !(without_self && *s == q))
            .map(|(s, source)| (square(domain, at, source), s as u32))
            .filter(|(d, _)| d.sqrt() as f32 <= within)
            .collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all.truncate(k);
        let mut row: Vec<(u32, f32)> = all.into_iter().map(|(d, s)| (s, d.sqrt() as f32)).collect();
        row.resize(k, (u32::MAX, f32::INFINITY));
        row
    };
    queries.chunks(dims).enumerate().map(row).collect()
}

/// Returns the sources within `radius` of each query in ascending order; `kept` says which pairs of
/// numbers (query, source) count.
pub fn brute_within(
    domain: &Domain,
    sources: &[f32],
    queries: &[f32],
    radius: f32,
    kept: impl Fn(usize, usize) -> bool,
) -> Found {
    let dims = domain.dims();
    let row = |(q, at): (usize, &[f32])| {
        let all = sources.chunks(dims).enumerate().filter(|(s, _)| kept(q, *s));
        let near = all.map(|(s, source)| (s as u32, distance(domain, at, source)));
        near.filter(|(_, d)| *d <= radius).collect()
    };
    queries.chunks(dims).enumerate().map(row).collect()
}

/// Pairs by distance.
pub fn brute_pairs(
    domain: &Domain,
    sources: &[f32],
    queries: &[f32],
    edges: &[f32],
    kept: impl Fn(usize, usize) -> bool,
) -> Vec<u64> {
    let mut counts = vec![0; edges.len() - 1];
    for row in brute_within(domain, sources, queries, edges[edges.len() - 1], kept) {
        for (_, d) in row {
            if let Some(bin) = edges.windows(2).position(|pair| pair[0] <= d && d < pair[1]) {
                counts[bin] += 1;
            }
        }
    }
    counts
}
