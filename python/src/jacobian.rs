//! Matrices of derivatives.

use std::ops::Range;

use meshloom::map::{ChunkSize, jacobian_columns, jacobian_rows, numbers_of};
use meshloom::operators::{Leaf, Linearization, OperatorError, Space, Support, Vector};
use meshloom::{Error, Rank, host_memory};

use crate::failure::Failure;

/// Rows of a matrix that a rank gets.
pub enum Rows {
    /// A block of all rows, on all ranks.
    Block(Range<u64>),
    /// The rows of the own part of the target.
    Own,
}

/// Returns the numbers of rows and columns of a derivative. Collective.
pub fn extents(rank: &Rank, at: &Linearization) -> Result<[u64; 2], Failure> {
    Ok([numbers_of(rank, at.model().target())?, numbers_of(rank, at.model().domain())?])
}

/// Returns rows of the matrix of a derivative with their number and that of columns, in the order
/// of whole arrays, leaf by leaf. Collective.
pub fn matrix(
    rank: &mut Rank,
    at: &Linearization,
    chunk: ChunkSize,
    rows: Rows,
) -> Result<(Vec<f64>, usize, usize), Failure> {
    let (domain, target) = (at.model().domain().clone(), at.model().target().clone());
    let [all, columns] = extents(rank, at)?;
    let (block, gather) = match rows {
        Rows::Block(block) => (block, true),
        Rows::Own => (0..all, false),
    };
    let (from, to) = (Places::new(rank, &domain, 0..columns)?, Places::new(rank, &target, block.clone())?);
    let count = block.end - block.start;
    let (height, width) = (if gather { count as usize } else { to.own.len() }, columns as usize);
    let len = height.checked_mul(width);
    let matrix = len.and_then(|len| host_memory::zeros("a matrix", len).ok());
    let why = format!(
        "a matrix of {height} x {width} numbers has no room in memory; take its rows by jacobian_blocks, or distribute them with gather=False"
    );
    let fault = matrix.is_none().then_some(why.as_str());
    let fault = rank.comm.first_fault(fault)?;
    let mut matrix = match (fault, matrix) {
        (None, Some(matrix)) => matrix,
        (fault, _) => return Err(Failure::Value(fault.unwrap_or(why))),
    };
    if count <= columns {
        for run in to.runs() {
            jacobian_rows(rank, at, run, chunk, |rank, first, fields| {
                for (number, field) in (first..).zip(fields) {
                    let own = numbers(rank, field)?;
                    let (place, root, local) = to.unit(number);
                    let Some(row) = from.gathered(rank, &own, if gather { None } else { root })? else { continue };
                    let start = if gather { place } else { local } * width;
                    matrix[start..start + width].copy_from_slice(&row);
                }
                Ok::<_, Error>(())
            })?;
        }
    } else {
        jacobian_columns(rank, at, 0..columns, chunk, |rank, first, fields| {
            for (number, field) in (first..).zip(fields) {
                let mut column = numbers(rank, field)?;
                if gather {
                    column = to.gathered(rank, &column, None)?.unwrap_or_default();
                }
                let (place, ..) = from.unit(number);
                column.iter().enumerate().for_each(|(row, value)| matrix[row * width + place] = *value);
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok((matrix, height, width))
}

/// Returns the numbers of a field on this rank, leaf by leaf.
fn numbers(rank: &mut Rank, field: &Vector) -> Result<Vec<f64>, OperatorError> {
    let mut all = Vec::new();
    for name in field.space().names() {
        let values = field.get(&mut rank.recorder, name)?;
        host_memory::make_room("values of a field", &mut all, values.len())?;
        all.extend(values);
    }
    Ok(all)
}

/// Places of the numbers of a space among those of all ranks: leaf by leaf, each leaf in the order
/// of its whole array.
struct Places {
    /// The place of each number of this rank.
    own: Vec<u64>,
    /// Numbers of the block that this rank sends to others: replicated leaves come from the first
    /// rank.
    sent: Vec<usize>,
    /// Places of the block's numbers, in the order in which ranks send them.
    received: Vec<u64>,
    /// Places of all numbers, in the order of [`numbers_of`].
    units: Vec<u64>,
    leaves: Vec<LeafPlaces>,
    /// Places that are wanted.
    block: Range<u64>,
}

/// The order and the ranks of the numbers of a leaf.
struct LeafPlaces {
    /// First number in the order of [`numbers_of`].
    first: u64,
    /// Numbers of each rank; empty for a replicated leaf.
    counts: Vec<u64>,
    /// First number among those of this rank.
    local: u64,
}

impl Places {
    fn new(rank: &Rank, space: &Space, block: Range<u64>) -> Result<Self, Error> {
        let (mut own, mut sent, mut units, mut leaves) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (_, leaf) in space.leaves() {
            let first = units.len() as u64;
            let places = places_of(rank, leaf, first)?;
            if leaf.is_distributed() || rank.index() == 0 {
                sent.extend((own.len()..).zip(&places).filter(|(_, place)| block.contains(place)).map(|(at, _)| at));
            }
            let counts = if leaf.is_distributed() {
                let (all, counts) = rank.comm.all_gather_v(&places)?.into_raw();
                units.extend(all);
                counts
            } else {
                units.extend_from_slice(&places);
                Vec::new()
            };
            leaves.push(LeafPlaces { first, counts, local: own.len() as u64 });
            own.extend(places);
        }
        let told: Vec<u64> = sent.iter().map(|&at| own[at]).collect();
        let received = rank.comm.all_gather_v(&told)?.into_raw().0;
        Ok(Places { own, sent, received, units, leaves, block })
    }

    /// Returns the numbers of the block as ranges, in the order of [`numbers_of`].
    fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (number, _) in (0..).zip(&self.units).filter(|(_, place)| self.block.contains(place)) {
            match runs.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => runs.push(number..number + 1),
            }
        }
        runs
    }

    /// Returns the place of a number of the block, given in the order of [`numbers_of`], from the
    /// block's begin on; the rank that has it (`None` for all ranks), and its index there.
    fn unit(&self, number: u64) -> (usize, Option<usize>, usize) {
        let place = (self.units[number as usize] - self.block.start) as usize;
        let Some(leaf) = self.leaves.iter().rfind(|leaf| leaf.first <= number) else { return (place, None, 0) };
        let mut at = number - leaf.first;
        for (rank, &count) in leaf.counts.iter().enumerate() {
            if at < count {
                return (place, Some(rank), (leaf.local + at) as usize);
            }
            at -= count;
        }
        (place, None, (leaf.local + at) as usize)
    }

    /// Returns the block of a field of all ranks in the order of the places, on all ranks or on
    /// `root` only.
    fn gathered(&self, rank: &Rank, own: &[f64], root: Option<usize>) -> Result<Option<Vec<f64>>, Error> {
        let told: Vec<f64> = self.sent.iter().map(|&at| own[at]).collect();
        let parts = match root {
            Some(root) => rank.comm.gather_v(root, &told)?,
            None => Some(rank.comm.all_gather_v(&told)?),
        };
        let Some(parts) = parts else { return Ok(None) };
        let mut values = vec![0.0; self.received.len()];
        self.received.iter().zip(parts.data()).for_each(|(&place, &value)| {
            values[(place - self.block.start) as usize] = value;
        });
        Ok(Some(values))
    }
}

/// Returns the place of each number of a leaf on this rank in the array of all ranks, whose first
/// number has the place `first`.
fn places_of(rank: &Rank, leaf: &Leaf, first: u64) -> Result<Vec<u64>, Error> {
    let (shape, own) = match &leaf.support {
        Support::Cells { mesh } => (mesh.shape(), mesh.own().clone()),
        Support::Modes { mesh, half } => {
            let [n0, n1, n2] = mesh.shape();
            ([n0, n1, if *half { n2 / 2 + 1 } else { n2 }], mesh.modes(*half))
        }
        Support::Points { own, total, .. } => {
            let before: u64 = rank.comm.all_gather(&[*own])?[..rank.index()].iter().sum();
            ([1, 1, *total], [0..1, 0..1, before..before + own])
        }
        Support::Vector { len } | Support::Parameters { len } => ([1, 1, *len], [0..1, 0..1, 0..*len]),
    };
    let ([n0, n1, n2], numbers) = (shape, leaf.numbers());
    let mut places = host_memory::reserve("places of numbers", leaf.len() as usize).map_err(OperatorError::from)?;
    for field in 0..leaf.fields() {
        for i in own[0].clone() {
            for j in own[1].clone() {
                let row = first + ((field * n0 + i) * n1 + j) * n2 * numbers;
                places.extend(row + own[2].start * numbers..row + own[2].end * numbers);
            }
        }
    }
    Ok(places)
}
