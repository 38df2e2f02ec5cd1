//! Search for the particles that cross the light cone in a step, on the device.

use std::ops::Range;

use super::cone::{Shell, images, images_at_once};
use super::particles::ROW;
use super::{Cone, ConeParticles};
use crate::comm::Op;
use crate::exchange::ExactSum;
use crate::gpu::primitives::{Count, Scan};
use crate::gpu::{Array, Kernel, KernelSource, LONGEST, Recorder};
use crate::grid::{Box3, volume};
use crate::host_memory::{self, HostMemoryError};
use crate::pm::gradient::pack;
use crate::pm::moves::box_words;
use crate::pm::{Config, Result, Simulation, SimulationError};
use crate::points::sort::route_by_key;
use crate::points::upload_u32;
use crate::rank::Rank;

crate::gpu::kernel_params! {
    #[derive(Default)]
    struct LightConeParams {
        /// First site, and number of sites of this rank.
        first: [u32; 4],
        /// Sites of this rank along each axis.
        local: [u32; 4],
        /// The observer's site.
        observer: [i32; 4],
        /// Minus the rest of the observer's place in spacings; spacings of a unit of length.
        rest: [f32; 4],
        /// Unit vector to the middle of the sky that is seen, and the cosine of the angle to its
        /// rim.
        opening: [f32; 4],
        /// Scale factor of the beginning, the step's length, the root of the former, the inverse
        /// change of the root.
        epoch: [f32; 4],
        /// The distance in spacings as a polynomial.
        distance: [[f32; 4]; 2],
        /// Squared distances at both ends.
        squares: [f32; 2],
        /// Factors of the momenta at both ends.
        slopes: [f32; 2],
        /// First of the replicas, and the one after the last.
        images: [u32; 2],
        /// First row that is written, and how many.
        piece: [u32; 2],
        /// Sites along an axis.
        sites: u32,
        /// Length of a spacing.
        spacing: f32,
        /// Part of the step at which the cone begins.
        cut: f32,
        /// 1 to write rows, 0 to count them.
        writes: u32,
    }
}

/// Returns the kernel.
pub(in crate::pm) fn kernel() -> KernelSource {
    KernelSource::new("pm::light_cone", include_str!("../../../shaders/pm/light_cone.wgsl")).params::<LightConeParams>()
}

/// The particles of one rank that have crossed the past light cone of an observer, in the course of
/// a run.
///
/// ```
/// use meshloom::gpu::Options;
/// use meshloom::pm::{Cone, Config, LightCone, Noise, Simulation};
/// use meshloom::{Error, Launch, launch};
///
/// let config = Config { particles: 8, mesh: 8, box_size: 200.0, a_start: 0.5, steps: 3, ..Config::default() };
/// let cone = Cone { observer: [100.0; 3], distance: 300.0, opening: None };
/// let expected = cone.forecast(&config, 1)?.particles;
/// let found = launch(Launch::Threads(1), &Options::from_env()?, |rank| {
///     let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
///     let mut cone = LightCone::new(&config, cone.clone())?;
///     simulation.run(rank, |simulation, rank, _| cone.advance(rank, simulation))?;
///     Ok::<_, Error>(cone.particles(rank)?.total())
/// })?;
/// assert!(found[0].abs_diff(expected) < expected / 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LightCone {
    cone: Cone,
    kernel: Kernel,
    scan: Scan,
    before: Option<State>,
    /// Rows in the order in which they were found.
    rows: Vec<u32>,
}

impl LightCone {
    /// Creates an empty cone, for a run of `config` from its start. Makes nothing on a device.
    ///
    /// # Errors
    /// Same as [`Cone::validate`].
    pub fn new(config: &Config, cone: Cone) -> Result<Self> {
        cone.validate(config)?;
        Ok(LightCone { cone, kernel: Kernel::trusted(kernel()), scan: Scan::new(), before: None, rows: Vec::new() })
    }

    /// Creates the cone of a resumed run, with this rank's part of the particles that had crossed
    /// at the interruption.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn resume(config: &Config, cone: Cone, crossed: ConeParticles) -> Result<Self> {
        Ok(LightCone { rows: crossed.words, ..Self::new(config, cone)? })
    }

    /// Returns what it covers.
    pub fn cone(&self) -> &Cone {
        &self.cone
    }

    /// Adds the particles that have crossed since the last call. Call it where the run begins or is
    /// resumed and after each step: from what [`Simulation::run`] calls. [Collective](Rank); blocks
    /// in steps that the cone reaches.
    ///
    /// # Errors
    /// [`SimulationError`](crate::pm::SimulationError) of the device and the ranks.
    pub fn advance(&mut self, rank: &mut Rank, simulation: &mut Simulation) -> Result<()> {
        let a = simulation.scale_factor();
        let next = simulation.next_epoch();
        let leaves = next.map(|next| Shell::new(&simulation.config, &self.cone, [a, next])).transpose()?;
        let leaves = leaves.is_some_and(|shell| shell.is_reached());
        if self.before.as_ref().is_some_and(|before| before.a == a) || !(leaves || self.before.is_some()) {
            return Ok(());
        }
        let way = simulation.way_to_sites(rank)?;
        let displacement = way.columns(rank, &simulation.displacement)?;
        let momentum = way.columns(rank, &simulation.momentum)?;
        let after = State::new(&mut rank.recorder, a, [&displacement, &momentum])?;
        drop((way, displacement, momentum));
        if let Some(before) = self.before.take() {
            let (config, own) = (&simulation.config, &simulation.lattice.own);
            self.cross(&mut rank.recorder, config, own, [&before, &after])?;
        }
        self.before = leaves.then_some(after);
        Ok(())
    }

    /// Adds the particles of `own` sites that cross in the step between two states.
    fn cross(&mut self, recorder: &mut Recorder, config: &Config, own: &Box3, states: [&State; 2]) -> Result<()> {
        let shell = Shell::new(config, &self.cone, states.map(|state| state.a))?;
        let spacing = config.box_size / config.particles as f64;
        let most = |which: usize| states.iter().fold(0.0f64, |most, state| most.max(state.most[which])) / spacing;
        let (reach, slope) = (most(0), shell.slopes[0].max(shell.slopes[1]));
        // The cubic stays within the displacement of the step plus 4/27 of the velocities of both
        // ends.
        let motion = 3f64.sqrt() * (2.0 * reach + 8.0 / 27.0 * most(1) * slope);
        let images = images(config, &self.cone, &shell, own, [reach, motion]);
        let count = volume(own);
        if images.is_empty() || count == 0 {
            return Ok(());
        }
        let gpu = recorder.gpu().clone();
        let codes = recorder.uploaded("pm::cone_images", &images)?;
        let params = self.params(config, own, &shell);
        let counts = gpu.array::<u32>("pm::cone_counts", count)?;
        let offsets = gpu.array::<u32>("pm::cone_offsets", count + 1)?;
        let no_rows = gpu.array::<u32>("pm::cone_no_rows", 1)?;
        let [before, after] = states;
        let inputs = [&before.position, &after.position, &before.momentum, &after.momentum].map(Array::raw);
        let at_once = images_at_once(count);
        for first in (0..images.len()).step_by(at_once) {
            let part = [first as u32, (first + at_once).min(images.len()) as u32];
            let arrays = [inputs.as_slice(), &[codes.raw(), offsets.raw(), counts.raw(), no_rows.raw()]].concat();
            recorder.each(&self.kernel, &arrays, &LightConeParams { images: part, ..params }, count)?;
            self.scan.exclusive(recorder, &counts, &offsets, Count::All)?;
            let found = recorder.download(&offsets, count, 1)?[0];
            let piece = rows_at_once(count) as u32;
            let mut written = 0;
            while written < found {
                let rows = piece.min(found - written);
                let words = gpu.array::<u32>("pm::cone_rows", u64::from(rows) * ROW as u64)?;
                let arrays = [inputs.as_slice(), &[codes.raw(), offsets.raw(), counts.raw(), words.raw()]].concat();
                let writing = LightConeParams { images: part, piece: [written, rows], writes: 1, ..params };
                recorder.each(&self.kernel, &arrays, &writing, count)?;
                let begin = self.rows.len();
                let more = words.len() as usize;
                host_memory::make_room("particles on the light cone", &mut self.rows, more)?;
                self.rows.resize(begin + more, 0);
                recorder.download_into(&words, 0, &mut self.rows[begin..])?;
                written += rows;
            }
        }
        Ok(())
    }

    /// Returns the parameters of the kernel, without replicas and rows.
    fn params(&self, config: &Config, own: &Box3, shell: &Shell) -> LightConeParams {
        let spacing = config.box_size / config.particles as f64;
        let [first, local] = box_words(own, volume(own));
        let place = self.cone.observer.map(|x| x / spacing);
        let [ox, oy, oz] = place.map(|x| x.floor() as i32);
        let [rx, ry, rz] = place.map(|x| (x.floor() - x) as f32);
        let (unit, cosine) = match &self.cone.opening {
            Some(opening) if opening.angle < 180.0 => (opening.unit(), opening.angle.to_radians().cos()),
            // All directions have a component of at least -2 lengths; one of -1 may be rounded to
            // less.
            _ => ([0.0; 3], -2.0),
        };
        let [a0, a1] = shell.a;
        let roots = shell.a.map(f64::sqrt);
        let term = |n: usize| (shell.polynomial[n] / spacing) as f32;
        LightConeParams {
            first,
            local,
            observer: [ox, oy, oz, 0],
            rest: [rx, ry, rz, (1.0 / spacing) as f32],
            opening: [unit[0] as f32, unit[1] as f32, unit[2] as f32, cosine as f32],
            epoch: [a0, a1 - a0, roots[0], 1.0 / (roots[1] - roots[0])].map(|x| x as f32),
            distance: [[0, 1, 2, 3].map(term), [4, 5, 6, 7].map(term)],
            squares: shell.distance.map(|distance| (distance / spacing).powi(2) as f32),
            slopes: shell.slopes.map(|slope| (slope / spacing) as f32),
            sites: config.particles as u32,
            spacing: spacing as f32,
            cut: shell.cut as f32,
            ..Default::default()
        }
    }

    /// All particles that have crossed so far, each rank's share of them in their order. They are
    /// the same on any number of ranks, to the last bit. Collective. Waits for the device
    /// and the other ranks.
    ///
    /// # Errors
    /// [`SimulationError`](crate::pm::SimulationError) of the device and the ranks.
    pub fn particles(&self, rank: &mut Rank) -> Result<ConeParticles> {
        self.in_order(rank, AT_ONCE)
    }

    /// Same as [`particles`](Self::particles), with arrays of rows of at most `most` words, unless
    /// one word of each row takes more.
    fn in_order(&self, rank: &mut Rank, most: u64) -> Result<ConeParticles> {
        let words = |part: Range<usize>| -> Result<Vec<u32>, HostMemoryError> {
            let rows = self.rows.chunks_exact(ROW);
            let mut words = host_memory::reserve("particles on the light cone", rows.len() * part.len())?;
            rows.for_each(|row| words.extend_from_slice(&row[part.clone()]));
            Ok(words)
        };
        let high = upload_u32(&mut rank.recorder, &words(8..9)?)?;
        let low = upload_u32(&mut rank.recorder, &words(7..8)?)?;
        let route = route_by_key(rank, [&high, &low])?;
        drop((high, low));
        // All ranks send the same words of their rows.
        let [rows] = rank.comm.reduced([(self.rows.len() / ROW) as u64], Op::Max)?;
        let width = words_at_once(rows, most);
        let mut sorted = Vec::new();
        for first in (0..ROW).step_by(width) {
            let part = first..(first + width).min(ROW);
            let array = upload_u32(&mut rank.recorder, &words(part.clone())?)?;
            let moved = route.forward(rank, &array, part.len() as u64)?;
            drop(array);
            let moved = rank.recorder.download(&moved, 0, moved.len())?;
            if sorted.is_empty() {
                sorted = host_memory::zeros("particles on the light cone", moved.len() / part.len() * ROW)?;
            }
            for (row, moved) in sorted.chunks_exact_mut(ROW).zip(moved.chunks_exact(part.len())) {
                row[part.clone()].copy_from_slice(moved);
            }
        }
        ConeParticles::new(&rank.comm, sorted)
    }
}

/// Rows that a pass over `count` particles writes at a time: no more than there are particles, nor
/// than an array holds.
pub(super) fn rows_at_once(count: u64) -> u64 {
    count.clamp(1 << 16, LONGEST / ROW as u64)
}

/// Words of an array of rows that are sorted, about: 4 GiB of device memory.
pub(super) const AT_ONCE: u64 = 1 << 30;

/// Words of each of `rows` rows that are sorted at a time, in arrays of `most` words.
pub(super) fn words_at_once(rows: u64, most: u64) -> usize {
    (most / rows.max(1)).clamp(1, ROW as u64) as usize
}

/// Displacements and momenta at an end of a step, in one array each: along x, then y, then z.
struct State {
    pub a: f64,
    pub position: Array<f32>,
    pub momentum: Array<f32>,
    /// The greatest displacement along an axis, and the greatest component of a momentum.
    pub most: [f64; 2],
}

impl State {
    /// Copies of `arrays`. Waits for a word of each.
    pub fn new(recorder: &mut Recorder, a: f64, arrays: [&[Array<f32>; 3]; 2]) -> Result<Self> {
        let gpu = recorder.gpu().clone();
        let mut joined = |label: &str, arrays: &[Array<f32>; 3]| {
            let all = gpu.array::<f32>(label, 3 * arrays[0].len())?;
            pack(recorder, arrays, &all, 0)?;
            Ok::<_, SimulationError>(all)
        };
        let position = joined("pm::cone_position", arrays[0])?;
        let momentum = joined("pm::cone_momentum", arrays[1])?;
        let (sum, bits) = (ExactSum::default(), gpu.array::<u32>("pm::cone_most", 1)?);
        let mut most = |array: &Array<f32>| {
            sum.magnitude(recorder, None, array, &bits)?;
            Ok::<_, SimulationError>(f64::from(f32::from_bits(recorder.download(&bits, 0, 1)?[0])))
        };
        let most = [most(&position)?, most(&momentum)?];
        Ok(State { a, position, momentum, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::Cosmology;
    use crate::gpu::{Gpu, Options};
    use crate::grid::Grid;
    use crate::mesh::Lattice;
    use crate::pm::light_cone::ConeParticle;
    use crate::{Error, Launch, launch};

    /// Returns the integral of da / (a^3 E) from `a` to 1, which free particles move by in units of
    /// their momentum: the midpoint rule with 20,000 points, of which h^2/24 times a change of
    /// slope of some 100 is left, 1e-8.
    fn way(cosmology: &Cosmology, a: f64) -> f64 {
        let h = (1.0 - a) / 20_000.0;
        (0..20_000).map(|i| a + (f64::from(i) + 0.5) * h).map(|a| h / (a.powi(3) * cosmology.expansion_rate(a))).sum()
    }

    /// Same between two moments, by the cubic with the values and slopes at both, at the part `s`
    /// of the step.
    fn cubic(cosmology: &Cosmology, [a0, a1]: [f64; 2], [x0, x1]: [f64; 2], s: f64) -> f64 {
        let slope = |a: f64| -(a1 - a0) / (a.powi(3) * cosmology.expansion_rate(a));
        let (v0, v1, d) = (slope(a0), slope(a1), x1 - x0);
        x0 + s * (v0 + s * (3.0 * d - 2.0 * v0 - v1 + s * (v0 + v1 - 2.0 * d)))
    }

    #[test]
    fn no_array_of_rows_is_longer_than_arrays_are() {
        let row = ROW as u64;
        for rows in [1, 1 << 16, 1 << 20, LONGEST / row, LONGEST / row + 1, LONGEST / 2, LONGEST] {
            assert!(rows_at_once(rows) * row <= LONGEST, "{rows}");
            assert!(rows * words_at_once(rows, AT_ONCE) as u64 <= LONGEST, "{rows}");
        }
        assert_eq!([0, 1000, LONGEST].map(|rows| words_at_once(rows, AT_ONCE)), [ROW, ROW, 1]);
    }

    #[test]
    fn rows_in_parts_of_their_words_are_the_same_rows() {
        let config = Config { particles: 2, ..Config::default() };
        let cone = Cone { observer: [0.0; 3], distance: 100.0, opening: None };
        for ranks in [1, 3] {
            launch(Launch::Threads(ranks), &Options::from_env().unwrap(), |rank| {
                let mut light = LightCone::new(&config, cone.clone())?;
                // Keys descend; ranks have different numbers of rows.
                let rows = 20 * (rank.index() as u32 + 1);
                light.rows = (0..rows).rev().flat_map(|row| (0..9).map(move |word| row * 16 + word)).collect();
                let whole = light.in_order(rank, AT_ONCE)?;
                for most in [1, 100, 240] {
                    assert!(light.in_order(rank, most)? == whole, "{ranks} {most}");
                }
                assert!(!whole.is_empty() && whole.iter().is_sorted_by_key(|particle| particle.id));
                Ok::<_, Error>(())
            })
            .unwrap();
        }
    }

    /// Particles that move freely from where they are today, found by bisection in f64 on their
    /// true paths, in a box that the cone spans several times.
    #[test]
    fn free_particles_cross_where_their_paths_meet_the_light() {
        let config = Config { particles: 5, mesh: 8, box_size: 130.0, a_start: 0.5, ..Config::default() };
        let (cosmology, n) = (config.cosmology, 5i64);
        let cone = Cone { observer: [31.0, 77.7, 130.0], distance: 420.0, opening: None };
        let epochs = [0.8, 0.87, 0.9, 0.96, 1.0];
        let mut recorder = Recorder::new(&Gpu::open(&Options::from_env().unwrap(), 0).unwrap()).unwrap();
        let grid = Grid::new([1, 1], 1).unwrap();
        let own = Lattice::new(config.sites(), grid, 0).own;
        // Displacements today and momenta of any site: up to 90 and up to 10 (1000 km/s).
        let number = |site: usize, axis: usize, which: usize| {
            let bits = (site * 3 + axis).wrapping_mul(2_654_435_761).wrapping_add(which * 40_503) % 10_007;
            f64::from(((bits as f32) / 10_007.0 - 0.5) * [180.0, 20.0][which])
        };
        let at = |site: usize, axis: usize, way: f64| number(site, axis, 0) - number(site, axis, 1) * way;
        let mut light = LightCone::new(&config, cone.clone()).unwrap();
        let state = |recorder: &mut Recorder, a: f64| {
            let way = way(&cosmology, a);
            let mut of = |value: &dyn Fn(usize, usize) -> f64| {
                [0, 1, 2].map(|axis| {
                    let values: Vec<f32> = (0..125).map(|site| value(site, axis) as f32).collect();
                    let array = recorder.gpu().array("test", 125).unwrap();
                    recorder.upload(&array, 0, &values).unwrap();
                    array
                })
            };
            let arrays = [of(&|site, axis| at(site, axis, way)), of(&|site, axis| number(site, axis, 1))];
            State::new(recorder, a, [&arrays[0], &arrays[1]]).unwrap()
        };
        let mut before = state(&mut recorder, epochs[0]);
        for &a in &epochs[1..] {
            let after = state(&mut recorder, a);
            light.cross(&mut recorder, &config, &own, [&before, &after]).unwrap();
            before = after;
        }
        // What cubics leave of the true paths of the fastest, and rounding of places up to 420 and
        // of displacements up to 100.
        let steps = epochs.windows(2).map(|pair| [pair[0], pair[1]]);
        let left = steps.flat_map(|ends| {
            let ways = ends.map(|a| way(&cosmology, a));
            [0.2, 0.5, 0.8].map(|s| {
                let a = ends[0] + s * (ends[1] - ends[0]);
                (cubic(&cosmology, ends, ways, s) - way(&cosmology, a)).abs()
            })
        });
        let bound = 10.0 * left.fold(0.0, f64::max) + 6.0 * 520.0 * 2f64.powi(-24);
        assert!(bound < 1e-3, "{bound}");

        let mut crossings: std::collections::BTreeMap<(u64, [i32; 3]), ConeParticle> = Default::default();
        for found in ConeParticles::new(&crate::comm::Communicator::solo(), light.rows).unwrap().iter() {
            assert!(crossings.insert((found.id, found.image), found).is_none(), "twice: {found:?}");
        }
        let mut sure = 0;
        let range = -6..=6i64;
        let table: Vec<(f64, f64, f64)> = (0..=400)
            .map(|i| 0.8 + 0.2 * f64::from(i) / 400.0)
            .map(|a| (a, way(&cosmology, a), cosmology.comoving_distance(a).unwrap()))
            .collect();
        for image in range.clone().flat_map(|i| (-6..=6i64).flat_map(move |j| (-6..=6i64).map(move |k| [i, j, k]))) {
            for site in 0..125usize {
                let place = [site as i64 / 25, site as i64 / 5 % 5, site as i64 % 5];
                let position = |way: f64| -> [f64; 3] {
                    std::array::from_fn(|axis| {
                        (place[axis] + n * image[axis]) as f64 * 26.0 - cone.observer[axis] + at(site, axis, way)
                    })
                };
                let length = |way: f64| position(way).iter().map(|x| x * x).sum::<f64>().sqrt();
                // The part of a fine table in which it crosses, and there the line between its
                // ends.
                let gap = |&(_, way, distance): &(f64, f64, f64)| length(way) - distance;
                let next = table.partition_point(|entry| gap(entry) < 0.0);
                let key = (site as u64, image.map(|m| m as i32));
                let Some(entry) = table.get(next).filter(|_| next > 0) else {
                    assert!(!crossings.contains_key(&key) || gap(&table[0]).abs() < bound, "{key:?}");
                    continue;
                };
                let (low, high) = (&table[next - 1], entry);
                let s = gap(low) / (gap(low) - gap(high));
                let [a, way] = [low.0 + s * (high.0 - low.0), low.1 + s * (high.1 - low.1)];
                // Chords of 1/2000 in a leave h^2/8 of the second derivative of the light's
                // distance, 3e-8 of 9000.
                let slack = bound + 4e-4;
                let r = length(way);
                match crossings.remove(&key) {
                    None => assert!(r > cone.distance - slack, "{key:?} at {r} is missing"),
                    Some(found) => {
                        sure += 1;
                        assert!(r < cone.distance + slack, "{key:?} at {r} is too far");
                        let rate = a * a * cosmology.expansion_rate(a) / 2997.92458;
                        assert!((f64::from(found.scale_factor) - a).abs() < slack * rate + 2e-7, "{found:?} {a}");
                        for (axis, want) in position(way).into_iter().enumerate() {
                            assert!((f64::from(found.position[axis]) - want).abs() < slack, "{found:?} {want}");
                            // The derivative of what cubics leave, over the shortest step, and of
                            // the distance's polynomial.
                            let speed = 100.0 * number(site, axis, 1) / a;
                            let error = (f64::from(found.velocity[axis]) - speed).abs();
                            assert!(error < 2e-3 * 1000.0 / 0.8, "{found:?} {speed}");
                        }
                    }
                }
            }
        }
        assert!(crossings.is_empty(), "{crossings:?}");
        let expected = 125.0 / 130f64.powi(3) * cone.volume([0.0, cone.distance]);
        // Sums of 125 lattices cut by a sphere: far less than the square root of their number.
        assert!((f64::from(sure) - expected).abs() < 3.0 * expected.sqrt(), "{sure} {expected}");
    }
}
