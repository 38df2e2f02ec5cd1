//! Selections of places of a field.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::gather::{record, source};
use super::leaf::{Leaf, Support};
use super::linear::{Direction, Linear};
use super::point_numbers::{PointNumbers, PointOrder};
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::comm::Op;
use crate::fft::Values;
use crate::gpu::{Array, Kernel};
use crate::grid::{Cost, extent};
use crate::host_memory::{self, HostMemoryError};
use crate::rank::Rank;

/// The values of a field at some of its places, such as observed cells, as a field of points. Its
/// adjoint writes values to their places and 0 elsewhere.
pub struct Select {
    signature: Signature,
    index: Array<u32>,
    gather: Kernel,
    scatter: Kernel,
}

impl Select {
    /// Creates the selection of cells by their global indices, for the only leaf of `domain`, which
    /// is cells. Each rank takes the cells that it owns, in their order; all ranks may pass the
    /// same list. Collective; submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces, cells outside the grid, and repeated cells.
    pub fn cells(rank: &mut Rank, domain: &Space, cells: &[[u64; 3]]) -> Result<Self> {
        const NAME: &str = "selection";
        let Some((_, Leaf { support: Support::Cells { mesh }, .. })) = domain.only() else {
            return Err(OperatorError::invalid(NAME, format!("{domain} is not one field of cells")));
        };
        if let Some(cell) = cells.iter().find(|cell| (0..3).any(|a| cell[a] >= mesh.shape()[a])) {
            return Err(OperatorError::invalid(NAME, format!("cell {cell:?} of a grid of {:?} cells", mesh.shape())));
        }
        let layout = mesh.layout();
        let (offset, strides) = (layout.offset(), layout.strides());
        let place =
            |cell: &[u64; 3]| offset + (0..3).map(|a| (cell[a] - layout.own[a].start) * strides[a]).sum::<u64>();
        let own = cells.iter().filter(|cell| mesh.owns(**cell));
        let mut places = host_memory::reserve("places of points", own.clone().count())?;
        places.extend(own.map(place));
        Self::places(rank, domain, &places)
    }

    /// Creates the selection of places of this rank by index, for the only leaf of `domain`, which
    /// is real and distributed. Collective; submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces, places outside the leaf, and repeated places.
    pub fn places(rank: &mut Rank, domain: &Space, places: &[u64]) -> Result<Self> {
        const NAME: &str = "selection";
        let Some((name, leaf)) = domain.only().filter(|(_, leaf)| leaf.values == Values::Real && leaf.is_distributed())
        else {
            return Err(OperatorError::invalid(NAME, format!("{domain} is not one real, distributed field")));
        };
        let mut sorted = host_memory::copy("places of points", places)?;
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]);
        let wrong = twice.map(|pair| pair[0]).or(sorted.last().copied().filter(|&last| last >= leaf.places()));
        let fault = wrong.map(|place| format!("place {place} of its {} is not there, or comes twice", leaf.places()));
        if let Some(why) = rank.comm.first_fault(fault.as_deref())? {
            return Err(OperatorError::invalid(NAME, why));
        }
        let mut total = [places.len() as u64];
        rank.comm.all_reduce(&mut total, Op::Sum)?;
        let order = order_of(rank, leaf, places)?;
        let points = Support::Points { own: places.len() as u64, total: total[0], order };
        let target = Space::of(name, Leaf { support: points, ..leaf.clone() })?;
        let places = host_memory::collect("places of points", places.iter().map(|&place| place as u32))?;
        let index = rank.recorder.uploaded("operators::places", &places)?;
        let [gather, scatter] = [false, true].map(|scatter| Kernel::trusted(source(true, scatter)));
        Ok(Select { signature: Signature::new(NAME, domain, &target), index, gather, scatter })
    }

    fn lens(&self) -> [u64; 3] {
        let places = |space: &Space| space.only().map_or(0, |(_, leaf)| leaf.places());
        [
            places(&self.signature.domain),
            places(&self.signature.target),
            self.signature.domain.only().map_or(0, |(_, leaf)| leaf.fields()),
        ]
    }
}

/// Returns the order of places of a leaf: by the number in the whole grid, or by the number of the
/// point.
fn order_of(rank: &mut Rank, leaf: &Leaf, places: &[u64]) -> Result<PointOrder> {
    let in_grid = |[n0, n1, n2]: [u64; 3], first: [i64; 3], local: [u64; 3]| -> Result<Vec<u64>, HostMemoryError> {
        let number = |&place: &u64| {
            let at = [place / local[2] / local[1], place / local[2] % local[1], place % local[2]];
            // Ghost cells have the number of the cell that they copy.
            let [i, j, k] =
                [(0, n0), (1, n1), (2, n2)].map(|(a, n)| (first[a] + at[a] as i64).rem_euclid(n as i64) as u64);
            (i * n1 + j) * n2 + k
        };
        host_memory::collect("numbers of points", places.iter().map(number))
    };
    let numbers = match &leaf.support {
        Support::Cells { mesh } => {
            let layout = mesh.layout();
            let first = [0, 1, 2].map(|a| layout.own[a].start as i64 - layout.ghosts[a][0] as i64);
            in_grid(mesh.shape(), first, layout.shape())?
        }
        Support::Modes { mesh, half } => {
            let [n0, n1, n2] = mesh.shape();
            let own = mesh.modes(*half);
            let first = own.each_ref().map(|range| range.start as i64);
            in_grid([n0, n1, if *half { n2 / 2 + 1 } else { n2 }], first, extent(&own))?
        }
        Support::Points { own, order: PointOrder::Ranks, .. } => {
            let mut first = [*own];
            rank.comm.scan_exclusive(&mut first, Op::Sum)?;
            host_memory::collect("numbers of points", places.iter().map(|place| first[0] + place))?
        }
        Support::Points { order: PointOrder::Numbers(numbers), .. } => {
            host_memory::collect("numbers of points", places.iter().map(|&place| numbers.get()[place as usize]))?
        }
        // Replicated leaves have no places of one rank.
        Support::Vector { .. } | Support::Parameters { .. } => return Ok(PointOrder::Ranks),
    };
    Ok(PointOrder::Numbers(PointNumbers::new(&mut rank.recorder, numbers)?))
}

impl Linear for Select {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let [places, selected, fields] = self.lens();
        let (recorder, out) = (&mut rank.recorder, out.single()?);
        let arrays = (v.single()?, Some(&self.index), out);
        let (kernel, strides) = match direction {
            Direction::Forward => (&self.gather, [places, selected]),
            Direction::Adjoint => {
                recorder.clear(out);
                (&self.scatter, [selected, places])
            }
        };
        Ok(record(recorder, kernel, arrays, [selected, places], fields, strides)?)
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<()> {
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let [places, selected, fields] = self.lens();
        let there = Cost::kernels(fields, 12 * fields * selected);
        [there, there + Cost::kernels(1, 4 * fields * places)]
    }
}
