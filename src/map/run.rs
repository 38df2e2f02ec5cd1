//! A map as one rank runs it.

use std::collections::VecDeque;
use std::ops::Range;

use super::chunk::{ChunkSize, Gauge, MapReport, Sizes, settle};
use super::error::MapError;
use super::mapping::{Deal, Input, Items, MapOutput, Mapping, Placement, RowReduction};
use super::ordered::OrderedReduction;
use crate::exchange::collectives::Collectives;
use crate::gpu::Array;
use crate::rank::Rank;

/// Chunks that the device may have to do at once: while it works on one, the next is recorded and
/// uploaded.
const IN_FLIGHT: usize = 2;

/// Input of a function: some consecutive items of its rank.
#[derive(Debug)]
pub struct MapChunk {
    /// Their numbers among all items.
    pub items: Range<u64>,
    /// The rows of each of the map's inputs, one for each of these items.
    pub inputs: Vec<Array<f32>>,
    /// Targets of the rows of each output, one for each of these items. All must be written.
    pub outputs: Vec<Array<f32>>,
}

impl MapChunk {
    /// Returns how many items there are, at least one.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.items.end - self.items.start
    }
}

/// Result of a map on one rank.
#[derive(Clone, Debug)]
pub struct Mapped {
    outputs: Vec<(String, Array<f32>)>,
    /// Report of the map.
    pub report: MapReport,
}

impl Mapped {
    /// Returns an output, by its name: the rows of this rank's items where they are sharded, of all
    /// items where they are gathered, or one row.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Array<f32>> {
        self.outputs.iter().find(|(other, _)| other == name).map(|(_, array)| array)
    }
}

/// Calls `f` with all items of this rank's block, chunk by chunk and in order, and collects its
/// outputs as `mapping` describes. Collective, with one mapping.
///
/// - `f` records its work; it need not submit or wait. Arrays of a chunk are as long as its items:
///   kernels that take the number of items as a parameter are compiled once, also for a last chunk
///   that is shorter.
/// - Two chunks are in flight: before a third is begun, the first is waited for.
/// - Ranks with an empty block never call `f`. An error of `f` ends the map on this rank; return it
///   from the run, which ends the others.
/// - Submits every chunk, and waits for other ranks at the beginning and for outputs that are
///   gathered or reduced.
///
/// ```
/// use meshloom::{Rank, Error, Launch, gpu::{Kernel, KernelSource, Options}, launch};
/// use meshloom::map::{ChunkSize, Items, Mapping, Placement, RowReduction, map};
///
/// meshloom::kernel_params! { struct Count { count: u32 } }
/// const SQUARE: &str = "
///     var<uniform> params: Params;
///     var<storage, read> x: array<f32>;
///     var<storage, read_write> y: array<f32>;
///     fn each(i: u32) { store_y(i, load_x(i) * load_x(i)); }
///     #each params.count";
/// let sums = launch(Launch::Threads(3), &Options::from_env()?, |rank| {
///     let square = Kernel::new(KernelSource::new("square", SQUARE).params::<Count>());
///     let numbers: Vec<f32> = (0..100).map(|n| n as f32).collect();
///     let mapping = Mapping::new(100).chunk(ChunkSize::Items(7)).output("sum", 1, Placement::Reduced(RowReduction::Sum));
///     let mapped = map(rank, &mapping, &[Items::Host(&numbers)], |rank, chunk| {
///         let arrays = [chunk.inputs[0].raw(), chunk.outputs[0].raw()];
///         let params = Count { count: chunk.count() as u32 };
///         Ok::<_, Error>(rank.recorder.each(&square, &arrays, &params, chunk.count())?)
///     })?;
///     let sum = mapped.output("sum").expect("it is an output");
///     Ok::<_, Error>(rank.recorder.download(sum, 0, 1)?[0])
/// })?;
/// assert_eq!(sums, [328_350.0; 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`MapError::Invalid`] on all ranks for mappings that are invalid or differ, and items that do
/// not fit; [`MapError::Budget`] on all ranks; errors of the device, of other ranks and of `f`.
pub fn map<E: From<MapError>>(
    rank: &mut Rank,
    mapping: &Mapping,
    items: &[Items<'_>],
    mut f: impl FnMut(&mut Rank, &MapChunk) -> Result<(), E>,
) -> Result<Mapped, E> {
    let mut run = Run::new(rank, mapping, items)?;
    while let Some(chunk) = run.begin(rank)? {
        if chunk.count() > 0 {
            f(rank, &chunk)?;
        }
        run.end(rank, chunk)?;
    }
    Ok(run.finish(rank)?)
}

/// [`map`] to one row of `width` numbers: the reduction of those of all items.
///
/// # Errors
/// Same as [`map`].
pub fn map_reduce<E: From<MapError>>(
    rank: &mut Rank,
    [items, width]: [u64; 2],
    chunk: ChunkSize,
    reduction: RowReduction,
    inputs: &[Items<'_>],
    f: impl FnMut(&mut Rank, &MapChunk) -> Result<(), E>,
) -> Result<Array<f32>, E> {
    let mapping = Mapping::new(items).chunk(chunk).output("row", width, Placement::Reduced(reduction));
    let mapped = map(rank, &mapping, inputs, f)?;
    let row = mapped.outputs.into_iter().next().map(|(_, array)| array);
    row.ok_or_else(|| MapError::Invalid("no output".into()).into())
}

/// Target of rows.
enum Sink {
    /// To an array of all of this rank's.
    Rows {
        array: Array<f32>,
        gathered: bool,
    },
    Row(Box<OrderedReduction>),
}

/// A map under way.
struct Run<'a> {
    mapping: &'a Mapping,
    deal: Deal,
    own: Range<u64>,
    inputs: Vec<Input<'a>>,
    sinks: Vec<Sink>,
    collectives: Collectives,
    /// Items from the beginning of a block that have been begun, where there are as many.
    done: u64,
    chunks: u64,
    sizes: Sizes,
    /// `Some` if memory chooses the size of chunks; measures while `sizes.measuring`.
    gauge: Option<Gauge>,
    in_flight: VecDeque<Option<wgpu::SubmissionIndex>>,
}

impl<'a> Run<'a> {
    fn new(rank: &mut Rank, mapping: &'a Mapping, items: &[Items<'a>]) -> Result<Self, MapError> {
        rank.comm.agree("map", &[("mapping", mapping), ("inputs", &items.len())])?;
        mapping.check()?;
        let deal = Deal { items: mapping.items, shares: rank.comm.shares() };
        let own = deal.block(rank.index());
        let mut collectives = Collectives::new(rank.exchange.clone());
        let input = |items: &Items<'a>| Input::deal(rank, &mut collectives, deal, *items);
        let inputs = items.iter().map(input).collect::<Result<Vec<_>, _>>()?;
        let gauge = match mapping.chunk {
            ChunkSize::Items(_) => None,
            ChunkSize::Memory(_) => Some(Gauge::new(rank)?),
        };
        let len = own.end - own.start;
        let (sizes, sinks) = Sizes::new(rank, mapping.chunk, |rank| {
            let sink = |output: &MapOutput| match &output.placement {
                Placement::Reduced(reduction) => {
                    Ok(Sink::Row(Box::new(OrderedReduction::new(&rank.gpu, reduction, output.width, len)?)))
                }
                placement => {
                    let array = rank.gpu.array(&format!("map::{}", output.name), len * output.width)?;
                    Ok(Sink::Rows { array, gathered: *placement == Placement::Gathered })
                }
            };
            mapping.outputs().iter().map(sink).collect::<Result<Vec<_>, MapError>>()
        })?;
        let (in_flight, done, chunks) = (VecDeque::new(), 0, 0);
        Ok(Run { mapping, deal, own, inputs, sinks, collectives, done, chunks, sizes, gauge, in_flight })
    }

    /// Returns the next chunk with its inputs, on their way; of ranks that keep in step it may be
    /// empty.
    fn begin(&mut self, rank: &mut Rank) -> Result<Option<MapChunk>, MapError> {
        let len = self.own.end - self.own.start;
        let all = if self.sizes.measuring { self.deal.most() } else { len };
        if self.done >= all {
            return Ok(None);
        }
        let begin = self.done.min(len);
        let count = self.sizes.chunk.min(len - begin);
        let items = self.own.start + begin..self.own.start + begin + count;
        self.done += self.sizes.chunk.min(all - self.done);
        if self.in_flight.len() >= IN_FLIGHT
            && let Some(first) = self.in_flight.pop_front()
        {
            rank.recorder.wait_for(first)?;
        }
        match &mut self.gauge {
            Some(gauge) if self.sizes.measuring => gauge.begin(rank)?,
            // Buffers of another size would lie beside those of this chunk.
            Some(_) if count < self.sizes.chunk => settle(rank)?,
            _ => {}
        }
        // Arrays of all chunks are of one size, so that the last, which may be shorter, needs no
        // others.
        let room = self.sizes.chunk.min(len);
        let arrays = |name: &str, widths: Vec<u64>| -> Result<Vec<_>, MapError> {
            let array = |width| Ok(rank.gpu.array::<f32>(name, room * width)?.first(count * width));
            widths.into_iter().map(array).collect()
        };
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        if count > 0 {
            inputs = arrays("map::inputs", self.inputs.iter().map(|input| input.width).collect())?;
            outputs = arrays("map::outputs", self.mapping.outputs().iter().map(|output| output.width).collect())?;
        }
        for (input, array) in self.inputs.iter().zip(&inputs) {
            input.load(&mut rank.recorder, &items, array)?;
        }
        Ok(Some(MapChunk { items, inputs, outputs }))
    }

    /// Takes what a chunk has become, and submits it.
    fn end(&mut self, rank: &mut Rank, chunk: MapChunk) -> Result<(), MapError> {
        let (recorder, count) = (&mut rank.recorder, chunk.count());
        let outputs = self.mapping.outputs().iter().zip(&chunk.outputs);
        for (sink, (output, rows)) in self.sinks.iter_mut().zip(outputs) {
            match sink {
                Sink::Rows { array, .. } => {
                    let start = (chunk.items.start - self.own.start) * output.width;
                    recorder.copy(rows, 0, array, start, rows.len())?;
                }
                Sink::Row(reduction) => reduction.take(recorder, rows, chunk.items.clone())?,
            }
        }
        recorder.submit()?;
        self.in_flight.push_back(recorder.last_submission());
        self.chunks += u64::from(count > 0);
        // Its buffers go back now.
        drop(chunk);
        if let Some(gauge) = self.gauge.as_ref().filter(|_| self.sizes.measuring) {
            let taken = gauge.end(rank)?;
            self.in_flight.clear();
            self.sizes.note(taken, self.deal.most())?;
        }
        Ok(())
    }

    /// Gathers and reduces among ranks.
    fn finish(mut self, rank: &mut Rank) -> Result<Mapped, MapError> {
        if self.sizes.estimate.is_some() {
            // What comes now needs memory of its own.
            settle(rank)?;
        }
        let recorder = &mut rank.recorder;
        let mut outputs = Vec::new();
        for (sink, output) in self.sinks.into_iter().zip(self.mapping.outputs()) {
            let array = match sink {
                Sink::Rows { array, gathered: false } => array,
                Sink::Rows { array, gathered: true } => {
                    self.collectives.all_gather_v(recorder, &array, 1)?.finish(recorder)?.array
                }
                Sink::Row(reduction) => reduction.finish(recorder, &mut self.collectives, self.deal)?,
            };
            outputs.push((output.name.clone(), array));
        }
        let Run { own, chunks, sizes: Sizes { chunk, estimate, .. }, .. } = self;
        Ok(Mapped { outputs, report: MapReport { items: own, chunk, chunks, estimate } })
    }
}
