//! Spheres about queries in which points are as dense as asked for: spherical overdensities.

use super::radius::WithinSearch;
use super::{NeighborError, Overdense, Predicate, Queries, Search};
use crate::comm::Op;
use crate::gpu::{Kernel, KernelSource, Recorder};
use crate::host_memory;
use crate::points::Cloud;
use crate::rank::Rank;
use std::ops::Range;

crate::gpu::kernel_params! {
    struct SparseParams {
        /// Entries of all lists, and lists.
        entries: u32,
        rows: u32,
        /// Smaller spheres are not looked at.
        least: u32,
        /// Axes.
        dims: u32,
        /// Points that a sphere has at the density asked for whose radius is 1 / `scale`.
        points: f32,
        /// Lists reach as far.
        radius: f32,
        /// Lengths are multiplied by it before they are raised to a power.
        scale: f32,
    }
}

impl SparseParams {
    /// Creates the parameters of lists with this `radius`. Lengths are measured in a power of two
    /// near it, which changes no digit: volumes in the caller's unit may be too large or too small
    /// for `f32`.
    fn new(dims: usize, least: u32, density: f64, radius: f32) -> Self {
        let exponent = ((radius.to_bits() >> 23) as i32 - 127).clamp(-126, 126);
        let points = unit_volume(dims) * density * 2f64.powi(exponent * dims as i32);
        SparseParams {
            entries: 0,
            rows: 0,
            least: least.max(1),
            dims: dims as u32,
            // Neither none nor without limit, whatever the density: what a sphere has grows with
            // its radius.
            points: (points as f32).clamp(f32::MIN_POSITIVE, f32::MAX),
            radius,
            scale: f32::from_bits(((127 - exponent) as u32) << 23),
        }
    }
}

/// Kernels that find the first sphere of a list: the one that reaches its end, and those that end
/// at an entry.
pub(super) fn kernels() -> [KernelSource; 2] {
    let common = include_str!("../../../shaders/points/neighbors/sphere.wgsl");
    let kernel = |label: &str, text: &'static str| {
        KernelSource::new(label, text).params::<SparseParams>().module("neighbors::sphere", common)
    };
    [
        kernel("neighbors::sparse_rows", include_str!("../../../shaders/points/neighbors/sparse_rows.wgsl")),
        kernel("neighbors::sparse_entries", include_str!("../../../shaders/points/neighbors/sparse_entries.wgsl")),
    ]
}

/// Entries of lists that are sorted at a time.
pub(super) const ENTRIES: u64 = 1 << 26;

/// Queries one after another, of which each takes with those that follow as long lists as `most`
/// entries hold, or its own.
fn turns(lengths: &[u32], most: u64) -> Vec<Range<u64>> {
    let (mut turns, mut entries) = (Vec::<Range<u64>>::new(), 0);
    for (query, &length) in (0..).zip(lengths) {
        entries += u64::from(length);
        match turns.last_mut() {
            Some(turn) if entries <= most => turn.end = query + 1,
            _ => {
                turns.push(query..query + 1);
                entries = length.into();
            }
        }
    }
    turns
}

/// No sphere was found within the radius.
const UNKNOWN: u32 = u32::MAX;

impl Overdense {
    fn check(&self) -> Result<(), NeighborError> {
        match self.densities.iter().find(|density| !(**density > 0.0 && density.is_finite())) {
            Some(&density) => Err(NeighborError::Density { density }),
            None => Ok(()),
        }
    }

    /// Returns the radius of the sphere that has `points` points at `density`.
    fn radius(dims: usize, points: f64, density: f64) -> f64 {
        (points / (unit_volume(dims) * density)).powf(1.0 / dims as f64)
    }
}

/// Returns the volume of a sphere of radius 1, or the area of a circle.
fn unit_volume(dims: usize) -> f64 {
    if dims == 2 { std::f64::consts::PI } else { 4.0 / 3.0 * std::f64::consts::PI }
}

impl Search {
    /// Returns the spheres of [`Predicate::overdensity`](crate::points::Predicate::overdensity)
    /// about the rows of `queries`, from lists of at most `most` entries at a time, or of one
    /// query.
    ///
    /// # Errors
    /// [`NeighborError::Density`]; those of lists within a radius.
    pub(super) fn overdense(
        &self,
        rank: &mut Rank,
        queries: &Cloud,
        spheres: &Overdense,
        most: u64,
    ) -> Result<Vec<u64>, NeighborError> {
        self.agree("overdensities", Some(queries), &[("query", spheres)])?;
        spheres.check()?;
        let (dims, width) = (queries.domain().dims(), spheres.densities.len());
        let positions = rank.recorder.download(queries.positions(), 0, queries.positions().len())?;
        let mut found = host_memory::zeros("members of spheres", queries.len() as usize * width)?;
        let Some(sparsest) = spheres.densities.iter().copied().reduce(f64::min) else { return Ok(found) };
        let mut left = host_memory::collect("spheres", 0..queries.len() as usize)?;
        let mut radius = Overdense::radius(dims, 64f64.max(2.0 * f64::from(spheres.least)), sparsest);
        loop {
            if self.points.comm.reduced([left.len() as u64], Op::Sum)? == [0] {
                return Ok(found);
            }
            let mut at = host_memory::reserve("centers of spheres", left.len() * dims)?;
            left.iter().for_each(|&row| at.extend_from_slice(&positions[row * dims..(row + 1) * dims]));
            let cloud = Cloud::from_host(&mut rank.recorder, queries.domain(), &at)?;
            let within = self.first_within(rank, &cloud, spheres, (radius as f32, most))?;
            let mut next = Vec::new();
            for (number, &row) in left.iter().enumerate() {
                for (which, counts) in within.iter().enumerate() {
                    found[row * width + which] = counts[number].into();
                }
                if within.iter().any(|counts| counts[number] == UNKNOWN) {
                    next.push(row);
                }
            }
            (left, radius) = (next, 1.5 * radius);
        }
    }

    /// Returns the spheres of [`overdense`](Self::overdense) as far as they lie within a radius:
    /// for each density one number per query, or [`UNKNOWN`].
    fn first_within(
        &self,
        rank: &mut Rank,
        queries: &Cloud,
        spheres: &Overdense,
        (radius, most): (f32, u64),
    ) -> Result<Vec<Vec<u32>>, NeighborError> {
        let local = self.arrange_queries(rank, Some(queries))?;
        let (joint, _) = self.points_within(rank, &local, radius)?;
        let (points, targets) = self.scope(&local, joint.as_ref());
        let recorder = &mut rank.recorder;
        let rows = targets.len(&points.tree);
        let search = WithinSearch::new(&points.tree, targets, &Predicate::within(radius)).along_curve();
        let array = |recorder: &Recorder, rows: u64| recorder.gpu().array::<u32>("neighbors::first_sparse", rows);
        let along_curve = spheres.densities.iter().map(|_| array(recorder, rows)).collect::<Result<Vec<_>, _>>()?;
        let [of_rows, of_entries] = kernels().map(Kernel::trusted);
        let dims = queries.domain().dims();
        let counts = self.radius.counts_of(recorder, search)?;
        let lengths = recorder.download(&counts, 0, rows)?;
        for part in turns(&lengths, most) {
            let rows = part.end - part.start;
            let counts_of_part = array(recorder, rows)?;
            recorder.copy(&counts, part.start, &counts_of_part, 0, rows)?;
            let targets = targets.part(recorder, &points.tree, part.clone())?;
            let search = WithinSearch { queries: Queries::At(&targets), ..search };
            let (lists, _) = self.radius.unordered(recorder, search, counts_of_part)?;
            let (offset, distance) = self.radius.order.distances(recorder, lists, rows)?;
            for (density, first) in spheres.densities.iter().zip(&along_curve) {
                let of_part = array(recorder, rows)?;
                let params = SparseParams {
                    entries: distance.len() as u32,
                    rows: rows as u32,
                    ..SparseParams::new(dims, spheres.least, *density, radius)
                };
                recorder.each(&of_rows, &[offset.raw(), of_part.raw()], &params, rows)?;
                let arrays = [offset.raw(), distance.raw(), of_part.raw()];
                recorder.each(&of_entries, &arrays, &params, distance.len())?;
                recorder.copy(&of_part, 0, first, part.start, rows)?;
            }
        }
        let mut first = Vec::new();
        for counts in along_curve {
            let (permute, numbers) = (&self.points.permute, self.numbers(&local));
            let counts = permute.scattered(&mut rank.recorder, "neighbors::first_sparse", &counts, numbers, 1)?;
            let counts = self.home(rank, &local, &counts, 1)?;
            first.push(rank.recorder.download(&counts, 0, counts.len())?);
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Options;
    use crate::points::Domain;
    use crate::{Error, Launch, launch};

    #[test]
    fn queries_take_turns_by_their_lists() {
        for (lengths, most, want) in [
            (vec![], 4, vec![]),
            (vec![0, 0], 0, vec![[0, 2]]),
            (vec![2, 2, 1, 9, 0, 3], 4, vec![[0, 2], [2, 3], [3, 4], [4, 6]]),
            (vec![u32::MAX; 3], 1 << 33, vec![[0, 2], [2, 3]]),
        ] {
            let found: Vec<[u64; 2]> = turns(&lengths, most).iter().map(|turn| [turn.start, turn.end]).collect();
            assert_eq!(found, want, "{lengths:?}");
        }
    }

    #[test]
    fn volumes_fit_f32_in_any_unit() {
        // The same spheres in units of 2^k have the same points, except beyond the range of f32.
        for dims in [2, 3] {
            let of = |k: i32| SparseParams::new(dims, 1, 0.3 * 2f64.powi(-k * dims as i32), 1.5 * 2f32.powi(k));
            for k in [-126, -80, -1, 1, 80, 126] {
                assert_eq!((of(k).points, of(k).radius * of(k).scale), (of(0).points, 1.5), "{dims} {k}");
            }
            let whole = SparseParams::new(dims, 1, 1e-300, f32::INFINITY);
            assert!(whole.points > 0.0 && whole.scale > 0.0);
        }
    }

    #[test]
    fn spheres_do_not_depend_on_turns() {
        launch(Launch::Threads(2), &Options::from_env().unwrap(), |rank| {
            let domain = Domain::new(&[0.0, 0.0])?;
            let points: Vec<f32> =
                (0..150).flat_map(|i| [0.1 * (i * i % 97) as f32, 0.1 * (i * 7 % 83) as f32]).collect();
            let cloud = Cloud::from_host(&mut rank.recorder, &domain, &points)?;
            let search = rank.search(&cloud.clone().into())?;
            let spheres = Overdense { densities: vec![3.0, 1.0], least: 2 };
            let at_once = search.overdense(rank, &cloud, &spheres, ENTRIES)?;
            assert!(at_once.iter().any(|&count| count > 0));
            for most in [1, 1000] {
                assert_eq!(search.overdense(rank, &cloud, &spheres, most)?, at_once, "{most}");
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    }
}
