//! Integrals along lines of sight.

use std::ops::Range;

use super::paint::cell_of;
use super::{
    Adjoint, Contents, Differentiable, Direction, Fingerprint, Gather, Leaf, Linear, PointOrder, Readout, Result,
    Signature, Space, Vector, real_cells, refuse,
};
use crate::grid::{Cost, Mesh};
use crate::mesh::Window;
use crate::rank::Rank;

/// Integrals along lines of sight through a periodic box, one for each line, on every rank: the sum
/// of the field at the centers of equal steps, read by CIC, times the step.
pub struct LinesOfSight {
    readout: Readout,
    /// Lengths of the steps of the samples of this rank.
    weights: Vector,
    sums: Adjoint<Gather>,
    signature: Signature,
    lines: Vec<Line>,
    step: f64,
}

/// A line from one point to another.
pub type Line = [[f64; 3]; 2];

impl LinesOfSight {
    /// Creates the integrals of the only leaf of `domain`, one real field of cells, along `lines`
    /// with steps of at most `step`. Lines are equal on all ranks; each rank takes the samples in
    /// its cells. Collective; submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces, a step that is
    ///   not positive and finite, and lines that are not finite or have no length.
    pub fn new(rank: &mut Rank, domain: &Space, lines: &[Line], step: f64) -> Result<Self> {
        const NAME: &str = "lines of sight";
        let (name, leaf, mesh) = real_cells(rank, domain, NAME)?;
        if leaf.fields() != 1 {
            return refuse(NAME, format!("{domain} is not one field"));
        }
        if !(step.is_finite() && step > 0.0) {
            return refuse(NAME, format!("a step of {step}; it must be a length"));
        }
        let (mut positions, mut steps, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, [from, to]) in lines.iter().enumerate() {
            let length = (0..3).map(|a| (to[a] - from[a]).powi(2)).sum::<f64>().sqrt();
            if !(length.is_finite() && length > 0.0 && length / step < f64::from(u32::MAX)) {
                return refuse(NAME, format!("line {number} from {from:?} to {to:?} in steps of {step}"));
            }
            let samples = (length / step).ceil() as u64;
            let t = |sample: u64| (sample as f64 + 0.5) / samples as f64;
            for range in samples_near(mesh, [*from, *to], samples) {
                for sample in range {
                    let position = [0, 1, 2].map(|a| from[a] + t(sample) * (to[a] - from[a]));
                    if mesh.owns(cell_of(mesh, position)) {
                        positions.push(position);
                        steps.push((length / samples as f64) as f32);
                        numbers.push(number as u32);
                    }
                }
            }
        }
        let readout = Readout::at_points(rank, domain, Window::Cic, &positions, PointOrder::Ranks)?;
        let weights = Contents::Device(rank.recorder.uploaded("operators::lines", &steps)?);
        let weights = Vector::over(readout.target(), vec![weights])?;
        let index = rank.recorder.uploaded("operators::lines", &numbers)?;
        let target = Space::of(name, Leaf::vector(lines.len() as u64))?;
        let sums = Adjoint::new(Gather::new(&target, readout.target(), index)?);
        Ok(LinesOfSight {
            readout,
            weights,
            sums,
            signature: Signature::new(NAME, domain, &target),
            lines: lines.to_vec(),
            step,
        })
    }
}

impl Linear for LinesOfSight {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (first, last): (&dyn Linear, &dyn Linear) = match direction {
            Direction::Forward => (&self.readout, &self.sums),
            Direction::Adjoint => (&self.sums, &self.readout),
        };
        let mut samples = Vector::new(&rank.gpu, self.weights.space())?;
        first.run(rank, direction, v, &mut samples)?;
        let mut weighted = Vector::new(&rank.gpu, self.weights.space())?;
        rank.vector_multiply(1.0, [&samples, &self.weights], 0.0, &mut weighted)?;
        last.run(rank, direction, &weighted, out)
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.numbers(self.lines.as_flattened().as_flattened());
        out.numbers(&[self.step]);
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let ([there, back], [sums, spread]) = (self.readout.costs(), self.sums.costs());
        let weigh = Cost::kernels(1, 12 * self.weights.space().own_numbers());
        [there + weigh + sums, back + weigh + spread]
    }
}

/// Returns ranges of samples of a line that contain all samples in the cells of this rank, in order
/// and without overlaps: along each cut axis the line is within one cell of the rank, in any period
/// of the box.
fn samples_near(mesh: &Mesh, [from, to]: Line, samples: u64) -> Vec<Range<u64>> {
    let (part, distances) = (mesh.own(), mesh.cell_size());
    if part.iter().any(Range::is_empty) {
        return Vec::new();
    }
    let whole = 0..samples;
    let mut ranges = vec![whole];
    for a in 0..2 {
        if mesh.grid().along(a) == 1 {
            continue;
        }
        let (low, high) = ((part[a].start as f64 - 1.0) * distances[a], (part[a].end as f64 + 1.0) * distances[a]);
        let ends = [from[a].min(to[a]), from[a].max(to[a])];
        let periods =
            ((ends[0] - high) / mesh.size()[a]).floor() as i64..=((ends[1] - low) / mesh.size()[a]).ceil() as i64;
        // The samples at which the line enters and leaves the rank's cells in a period.
        let crossed = periods.filter_map(|period| {
            let at = |x: f64| (x + period as f64 * mesh.size()[a] - from[a]) / (to[a] - from[a]) * samples as f64 - 0.5;
            let [one, other] = [at(low), at(high)];
            if to[a] == from[a] {
                let inside = (low..=high).contains(&(from[a] - period as f64 * mesh.size()[a]));
                return inside.then_some(0..samples);
            }
            let (first, last) = (one.min(other).floor().max(0.0), one.max(other).ceil().min(samples as f64 - 1.0));
            (first <= last).then_some(first as u64..last as u64 + 1)
        });
        let mut crossed: Vec<Range<u64>> = crossed.collect();
        crossed.sort_by_key(|range| range.start);
        ranges = intersections(&ranges, &crossed);
    }
    ranges
}

/// Returns the intersections of ordered ranges without overlaps with ordered ranges that may
/// overlap.
fn intersections(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        for other in others {
            let after = found.last().map_or(0, |last| last.end);
            let shared = range.start.max(other.start).max(after)..range.end.min(other.end);
            if !shared.is_empty() {
                found.push(shared);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::MeshOptions;

    #[test]
    fn no_sample_of_a_rank_is_left_out_and_none_comes_twice() {
        let lines = [
            [[0.1, 0.2, 0.3], [1.9, 2.2, 2.8]],
            [[0.5, 0.5, 0.0], [0.5, 0.5, 3.0]],
            [[-3.7, 2.4, 2.9], [7.6, -9.1, 3.3]],
            [[1.0, 1.0, 1.0], [1.0, 7.5, 1.0]],
            [[7.0, 0.0, 0.0], [-7.0, 0.0, 0.0]],
        ];
        for parts in [[1, 1], [3, 1], [2, 2], [1, 4], [5, 1]] {
            let ranks = parts[0] * parts[1];
            for line in lines {
                let samples = 97;
                let mut taken = vec![0; samples as usize];
                let mut visited = 0;
                for rank in 0..ranks {
                    let options =
                        MeshOptions { size: [2.0, 5.0, 3.0], grid: Some(parts), ..MeshOptions::new([4, 10, 6]) };
                    let mesh = Mesh::new(&options, ranks, rank).unwrap();
                    for sample in samples_near(&mesh, line, samples).into_iter().flatten() {
                        let t = (sample as f64 + 0.5) / samples as f64;
                        let position = [0, 1, 2].map(|a| line[0][a] + t * (line[1][a] - line[0][a]));
                        visited += 1;
                        taken[sample as usize] += u32::from(mesh.owns(cell_of(&mesh, position)));
                    }
                }
                assert!(taken.iter().all(|&times| times == 1), "{parts:?} {line:?} {taken:?}");
                assert!(visited <= 4 * samples, "{parts:?} {line:?}: {visited}");
            }
        }
    }
}
