//! Values of a vector at places of a field, and sums of a field over those places: amplitudes by
//! wavenumber, broadcasts, sums; and selections of places of a field.

use super::{
    Direction, Fingerprint, Leaf, Linear, PointNumbers, PointOrder, Result, Signature, Space, Support, Vector, refuse,
};
use crate::comm::Op;
use crate::exchange::Terms;
use crate::fft::Values;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::{Cost, extent};
use crate::host_memory::{self, HostMemoryError};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    pub(super) struct GatherParams {
        pub count: u32,
        pub entries: u32,
        pub table_start: u32,
        pub out_start: u32,
    }
}

pub(super) fn source(indexed: bool, scatter: bool) -> KernelSource {
    KernelSource::new("operators::gather", include_str!("../../shaders/operators/gather.wgsl"))
        .params::<GatherParams>()
        .flag("indexed", indexed)
        .flag("scatter", scatter)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [[false, false], [true, false], [true, true]].map(|[indexed, scatter]| source(indexed, scatter)).into()
}

/// The map `y[i] = x[index[i]]` from a vector to a field. Its [`Adjoint`](super::Adjoint) adds the
/// places of each entry exactly ([`ExactSum`](crate::exchange::ExactSum)): the same bits on any
/// number of ranks.
///
/// | domain | index | operator | adjoint |
/// |---|---|---|---|
/// | one number | none | a broadcast | a sum |
/// | an amplitude for each bin | of modes, from [`Wavenumbers`](super::Wavenumbers) | amplitudes by
/// wavenumber | a binned sum |
/// | a number for each line | of samples | - | sums along lines |
///
/// Cost: 8 bytes per place; the adjoint 16 bytes in two passes, and three words per entry between
/// ranks.
pub struct Gather {
    signature: Signature,
    index: Option<Array<u32>>,
    kernel: Kernel,
}

impl Gather {
    /// Creates the operator between real leaves of the same components and batch. Places whose
    /// index is out of range are 0.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces, or if the
    ///   numbers of indices and places differ.
    pub fn new(domain: &Space, target: &Space, index: Array<u32>) -> Result<Self> {
        let [_, leaf] = Self::leaves(domain, target)?;
        if leaf.values == Values::Complex {
            return refuse("gather", format!("{target} is not one real field"));
        }
        if index.len() != leaf.places() {
            return refuse("gather", format!("{} indices for {} places", index.len(), leaf.places()));
        }
        Ok(Self::indexed(domain, target, index))
    }

    /// Creates the operator from an index for each number of one field of the target.
    fn indexed(domain: &Space, target: &Space, index: Array<u32>) -> Self {
        let (signature, kernel) = (Signature::new("gather", domain, target), Kernel::trusted(source(true, false)));
        Gather { signature, index: Some(index), kernel }
    }

    /// Creates the broadcast of the only number of `domain` to all places of `target`.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces.
    pub fn broadcast(domain: &Space, target: &Space) -> Result<Self> {
        let [vector, leaf] = Self::leaves(domain, target)?;
        let entries = vector.places();
        if entries != 1 || leaf.values == Values::Complex {
            return refuse(
                "gather",
                format!("a vector of {entries} for {target}; expected one real number for all places"),
            );
        }
        Ok(Gather {
            signature: Signature::new("broadcast", domain, target),
            index: None,
            kernel: Kernel::trusted(source(false, false)),
        })
    }

    /// Creates the operator to cells that take entries by their coordinates. The entries are a
    /// block of numbers in C order, whose axes are the axes of `block` that are given, with the
    /// coordinate of the first number and their length. Cells beyond the block are 0. Values may
    /// be complex, and each field of components and batch has a block. Blocks.
    ///
    /// ```
    /// use meshloom::operators::{Gather, Leaf, Model, Space, Vector};
    ///
    /// meshloom::run(|rank| {
    ///     let cells = Space::of("y", Leaf::cells(&rank.mesh([2, 3]).build()?))?;
    ///     let column = Space::of("x", Leaf::vector(3))?;
    ///     let repeated = Model::new(Gather::block(rank, &column, &cells, [None, None, Some((0,
    ///   3))])?);
    ///     let mut x = Vector::new(&rank.gpu, &column)?;
    ///     x.set(&mut rank.recorder, "x", &[1.0, 2.0, 3.0])?;
    ///     let y = repeated.value(rank, &x)?;
    ///     assert_eq!(y.get(&mut rank.recorder, "y")?, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces, or if the
    ///   block has not the length of the vector.
    pub fn block(rank: &mut Rank, domain: &Space, target: &Space, block: [Option<(i64, u64)>; 3]) -> Result<Self> {
        let [vector, leaf] = Self::leaves(domain, target)?;
        let entries = vector.places();
        let Support::Cells { mesh } = &leaf.support else {
            return refuse("gather", format!("{target} is not one field of cells"));
        };
        let lens = block.map(|axis| axis.map_or(1, |(_, len)| len));
        if lens.iter().fold(1, |product: u64, &len| product.saturating_mul(len)) != entries {
            let why = format!("expected a vector of the numbers of a block of {lens:?}, got {entries} entries");
            return refuse("gather", why);
        }
        let (layout, shape) = (mesh.layout(), mesh.shape());
        let first = [0, 1, 2].map(|a| layout.own[a].start as i64 - layout.ghosts[a][0] as i64);
        // The number along an axis of each coordinate of this rank; `None` beyond the block.
        let along = [0, 1, 2].map(|a| {
            let number = |at: u64| match block[a] {
                None => Some(0),
                Some((start, len)) => {
                    let number = (first[a] + at as i64).rem_euclid(shape[a] as i64) - start;
                    u64::try_from(number).ok().filter(|&number| number < len)
                }
            };
            (0..layout.shape()[a]).map(number).collect::<Vec<Option<u64>>>()
        });
        let numbers = leaf.numbers();
        let mut index = host_memory::reserve("indices of cells", (leaf.places() * numbers) as usize)?;
        for i in &along[0] {
            for j in &along[1] {
                let row = i.zip(*j).map(|(i, j)| (i * lens[1] + j) * lens[2]);
                let entry = |k: &Option<u64>| row.zip(*k).map(|(row, k)| (row + k) * numbers);
                index.extend(along[2].iter().map(entry).flat_map(|entry| {
                    (0..numbers).map(move |part| entry.map_or(u32::MAX, |entry| (entry + part) as u32))
                }));
            }
        }
        Ok(Self::indexed(domain, target, rank.recorder.uploaded("operators::cells", &index)?))
    }

    /// Returns the leaves of the domain and of the target.
    fn leaves<'a>(domain: &'a Space, target: &'a Space) -> Result<[&'a Leaf; 2]> {
        match (domain.only(), target.only()) {
            (Some((_, from)), Some((_, to)))
                if from.values == to.values
                    && from.components == to.components
                    && from.batch == to.batch
                    && matches!(from.support, Support::Vector { .. })
                    && !to.is_on_host() =>
            {
                Ok([from, to])
            }
            _ => {
                let why = format!(
                    "from {domain} to {target}; it takes a vector to a field of the same values, components and batch"
                );
                refuse("gather", why)
            }
        }
    }
}

/// Records a gather or a scatter of each field of a batch: `strides` are the elements between them
/// in `from` and `to`.
pub(super) fn record(
    recorder: &mut Recorder,
    kernel: &Kernel,
    arrays: (&Array<f32>, Option<&Array<u32>>, &Array<f32>),
    [count, entries]: [u64; 2],
    batch: u64,
    strides: [u64; 2],
) -> Result<(), DeviceError> {
    let (from, index, to) = arrays;
    for number in 0..batch {
        let params = GatherParams {
            count: count as u32,
            entries: entries as u32,
            table_start: (number * strides[0]) as u32,
            out_start: (number * strides[1]) as u32,
        };
        let arrays: Vec<_> = std::iter::once(from.raw()).chain(index.map(Array::raw)).chain([to.raw()]).collect();
        recorder.each(kernel, &arrays, &params, count)?;
    }
    Ok(())
}

impl Linear for Gather {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let [from, to] = Self::leaves(&self.signature.domain, &self.signature.target)?;
        let (v, out) = (v.single()?, out.single()?);
        if direction == Direction::Forward {
            let [entries, places] = [from, to].map(|leaf| leaf.places() * leaf.numbers());
            let arrays = (v, self.index.as_ref(), out);
            return Ok(record(
                &mut rank.recorder,
                &self.kernel,
                arrays,
                [places, entries],
                to.fields(),
                [entries, places],
            )?);
        }
        let terms = Terms {
            x: v,
            y: None,
            index: self.index.as_ref(),
            sums: from.places() * from.numbers(),
            batches: to.fields(),
            total: to.total() / to.fields(),
        };
        rank.record_sum(to.is_distributed(), &terms, out)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        let [_, to] = Self::leaves(&self.signature.domain, &self.signature.target)?;
        self.index.as_ref().map_or(Ok(()), |index| out.array(rank, to, index))
    }

    fn costs(&self) -> [Cost; 2] {
        let Ok([from, to]) = Self::leaves(&self.signature.domain, &self.signature.target) else {
            return [Cost::default(); 2];
        };
        let index = if self.index.is_some() { 4 * to.len() } else { 0 };
        let there = Cost::kernels(to.fields(), 4 * to.len() + index);
        let back = Cost::kernels(3 * to.fields(), 8 * to.len() + index + 12 * from.len());
        let ranks = to.mesh().map_or(1, |mesh| mesh.grid().ranks() as u64);
        // Two reductions and what they spread again, by trees: messages of one rank at most.
        let steps = u64::from(ranks.next_power_of_two().ilog2());
        [there, Cost { messages: 4 * steps, sent_bytes: 2 * steps * (4 * to.fields() + 8 * from.len()), ..back }]
    }
}

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
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces, cells outside
    ///   the grid, and repeated cells.
    pub fn cells(rank: &mut Rank, domain: &Space, cells: &[[u64; 3]]) -> Result<Self> {
        const NAME: &str = "selection";
        let Some((_, Leaf { support: Support::Cells { mesh }, .. })) = domain.only() else {
            return refuse(NAME, format!("{domain} is not one field of cells"));
        };
        if let Some(cell) = cells.iter().find(|cell| (0..3).any(|a| cell[a] >= mesh.shape()[a])) {
            return refuse(NAME, format!("cell {cell:?} of a grid of {:?} cells", mesh.shape()));
        }
        let own = cells.iter().filter(|cell| mesh.owns(**cell)).count();
        let mut places = host_memory::reserve("places of points", own)?;
        places.extend(cells.iter().filter_map(|cell| mesh.index(*cell)));
        Self::places(rank, domain, &places)
    }

    /// Creates the selection of places of this rank by index, for the only leaf of `domain`, which
    /// is real and distributed. Collective; submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces, places outside
    ///   the leaf, and repeated places.
    pub fn places(rank: &mut Rank, domain: &Space, places: &[u64]) -> Result<Self> {
        const NAME: &str = "selection";
        let Some((name, leaf)) = domain.only().filter(|(_, leaf)| leaf.values == Values::Real && leaf.is_distributed())
        else {
            return refuse(NAME, format!("{domain} is not one real, distributed field"));
        };
        let mut sorted = host_memory::copy("places of points", places)?;
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]);
        let wrong = twice.map(|pair| pair[0]).or(sorted.last().copied().filter(|&last| last >= leaf.places()));
        let fault = wrong.map(|place| format!("place {place} of its {} is not there, or comes twice", leaf.places()));
        if let Some(why) = rank.comm.first_fault(fault.as_deref())? {
            return refuse(NAME, why);
        }
        let [total] = rank.comm.reduced([places.len() as u64], Op::Sum)?;
        let order = order_of(rank, leaf, places)?;
        let points = Support::Points { own: places.len() as u64, total, order };
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
