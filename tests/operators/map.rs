//! Maps over items, ranks and chunks against a plain loop, to the bit; memory that is counted;
//! Jacobians from one linearization.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use super::ranks::on_grid;
use meshloom::comm::run_threads;
use meshloom::gpu::{Array, Gpu, Kernel, KernelSource, Options};
use meshloom::inference::{Data, Likelihood, LogLikelihood, NoiseLevel};
use meshloom::map::{
    ChunkSize, Deal, HostMap, Items, MapChunk, MapError, Mapped, Mapping, Placement, RowReduction, jacobian_columns,
    jacobian_rows, map, map_reduce, numbers_of, replicate,
};
use meshloom::operators::{
    Differentiable, Fingerprint, Leaf, Linearization, Linearized, Model, OperatorCost, OperatorError,
    PointwiseOperator, RankCollective, Signature, Space, Vector,
};
use meshloom::{Error, Rank};

meshloom::kernel_params! {
    struct RowParams {
        count: u32,
        width: u32,
    }
}

/// Numbers of a row are an item's number times constants: one rounding, the same on all devices.
const ROWS: &str = "
    var<uniform> params: Params;
    var<storage, read> x: array<f32>;
    var<storage, read> constants: array<f32>;
    var<storage, read_write> rows: array<f32>;
    fn each(i: u32) { store_rows(i, load_x(i / params.width) * load_constants(i % params.width)); }
    #each params.count * params.width";

const CONSTANTS: [f32; 3] = [1.1, -0.7, 0.3];

/// Items of both signs, and near enough to 1 that in products of them, times one of the constants,
/// no infinity meets a zero: which NaN comes of that is each device's own.
fn items_of(count: u64) -> Vec<f32> {
    let size = |item: u64| 1.0 + 0.3 * (item as f32 * 0.37).sin();
    (0..count).map(|item| if item % 3 == 0 { -size(item) } else { size(item) }).collect()
}

/// Returns the tree, as a recursion.
fn tree(rows: &[f32], combine: &dyn Fn(f32, f32) -> f32) -> f32 {
    match rows {
        [one] => *one,
        _ => {
            let half = rows.len().next_power_of_two() / 2;
            combine(tree(&rows[..half], combine), tree(&rows[half..], combine))
        }
    }
}

fn on_ranks<T: Send>(ranks: usize, options: &Options, body: impl Fn(&mut Rank) -> Result<T, Error> + Sync) -> Vec<T> {
    let outcome = run_threads(ranks, |comm| {
        let gpu = Gpu::open(options, 0)?;
        body(&mut Rank::new(comm, gpu)?)
    });
    outcome.unwrap_or_else(|error| panic!("{ranks} ranks: {error}"))
}

/// Result of the kernel for the items of a chunk.
struct RowMaker {
    kernel: Kernel,
    constants: Array<f32>,
}

impl RowMaker {
    fn new(context: &mut Rank) -> Result<Self, Error> {
        let given = (context.comm.rank() == 0).then_some(&CONSTANTS[..]);
        let constants = replicate(context, 0, given)?;
        let kernel = Kernel::new(KernelSource::new("test::rows", ROWS).params::<RowParams>());
        Ok(RowMaker { kernel, constants })
    }

    fn make(&self, context: &mut Rank, chunk: &MapChunk) -> Result<(), Error> {
        let count = chunk.count() as u32;
        assert_eq!(chunk.inputs[0].len(), chunk.count());
        for rows in &chunk.outputs {
            let width = (rows.len() / chunk.count()) as u32;
            let arrays = [chunk.inputs[0].raw(), self.constants.raw(), rows.raw()];
            context.recorder.each(&self.kernel, &arrays, &RowParams { count, width }, rows.len())?;
        }
        Ok(())
    }
}

fn mapping(items: u64, chunk: u64) -> Mapping {
    let product = "fn combine(a: f32, b: f32) -> f32 { return a * b; }".into();
    Mapping::new(items)
        .chunk(ChunkSize::Items(chunk))
        .output("all", 2, Placement::Gathered)
        .output("own", 1, Placement::Sharded)
        .output("sum", 3, Placement::Reduced(RowReduction::Sum))
        .output("least", 1, Placement::Reduced(RowReduction::Min))
        .output("most", 2, Placement::Reduced(RowReduction::Max))
        .output("product", 2, Placement::Reduced(RowReduction::Custom { function: product, neutral: 1.0 }))
}

fn values(context: &mut Rank, mapped: &Mapped, name: &str) -> Result<Vec<f32>, Error> {
    let array = mapped.output(name).unwrap();
    Ok(context.recorder.download(array, 0, array.len())?)
}

fn check(context: &mut Rank, mapped: &Mapped, x: &[f32], what: &str) -> Result<(), Error> {
    let own = Deal { items: x.len() as u64, shares: context.comm.shares() }.block(context.comm.rank());
    let row =
        |width: usize| x.iter().flat_map(move |x| CONSTANTS[..width].iter().map(move |c| x * c)).collect::<Vec<_>>();
    let same = |got: Vec<f32>, wanted: Vec<f32>, name: &str| {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(bits(&got) == bits(&wanted), "{name}, {what}: {:?} for {:?}", got.get(..3), wanted.get(..3));
    };
    same(values(context, mapped, "all")?, row(2), "all");
    same(values(context, mapped, "own")?, row(1)[own.start as usize..own.end as usize].to_vec(), "own");
    let reduced = |width: usize, neutral: f32, combine: &dyn Fn(f32, f32) -> f32| {
        let of = |c: f32| x.iter().map(|x| x * c).collect::<Vec<_>>();
        let one = |c: &f32| if x.is_empty() { neutral } else { tree(&of(*c), combine) };
        CONSTANTS[..width].iter().map(one).collect::<Vec<_>>()
    };
    same(values(context, mapped, "sum")?, reduced(3, 0.0, &|a, b| a + b), "sum");
    same(values(context, mapped, "least")?, reduced(1, f32::INFINITY, &f32::min), "least");
    same(values(context, mapped, "most")?, reduced(2, f32::NEG_INFINITY, &f32::max), "most");
    same(values(context, mapped, "product")?, reduced(2, 1.0, &|a, b| a * b), "product");
    Ok(())
}

#[test]
fn every_combination_of_items_ranks_and_chunks_is_the_plain_loop_to_the_bit() {
    let options = meshloom_sanitizer::options().unwrap();
    for ranks in [1, 2, 3, 5] {
        on_ranks(ranks, &options, |context| {
            let maker = RowMaker::new(context)?;
            // Tiles of levels have 2048 numbers; chunks of 3000 begin in the middle of one.
            let few = [0, 1, 13, 1000].map(|items: u64| (items, vec![1, 2, 7, items.max(1), items + 1]));
            for (items, chunks) in few.into_iter().chain([(9000, vec![2048, 3000, 9001])]) {
                let x = items_of(items);
                for chunk in chunks {
                    let mapped =
                        map(context, &mapping(items, chunk), &[Items::Host(&x)], |c, chunk| maker.make(c, chunk))?;
                    check(context, &mapped, &x, &format!("{items} items, {ranks} ranks, chunks of {chunk}"))?;
                    let own = mapped.report.items.end - mapped.report.items.start;
                    assert_eq!(mapped.report.chunks, own.div_ceil(chunk));
                }
            }
            Ok(())
        });
    }
}

/// Twelve levels of the tree over a chunk are two dispatches.
#[test]
fn levels_of_the_tree_share_dispatches() {
    on_ranks(1, &meshloom_sanitizer::options().unwrap(), |context| {
        let before = context.recorder.counts().dispatches;
        map_reduce(context, [1 << 12, 1], ChunkSize::Items(1 << 12), RowReduction::Sum, &[], |context, chunk| {
            context.recorder.clear(&chunk.outputs[0]);
            Ok::<_, Error>(())
        })?;
        context.recorder.submit()?;
        assert_eq!(context.recorder.counts().dispatches - before, 2);
        Ok(())
    });
}

#[test]
fn items_on_devices_are_dealt_anew_and_kernels_compiled_once() {
    // Devices of their own, whose kernels no other test counts.
    for window_bytes in [1 << 21, 4096] {
        let options = Options { window_bytes: Some(window_bytes), ..meshloom_sanitizer::options().unwrap() };
        for ranks in [1, 3] {
            on_ranks(ranks, &options, |context| {
                let maker = RowMaker::new(context)?;
                let x = items_of(2100);
                // Rank 1 has most of them at first, rank 2 none.
                let starts = if ranks == 1 { vec![0, 2100] } else { vec![0, 100, 2100, 2100] };
                let [start, end] = [0, 1].map(|at| starts[context.comm.rank() + at]);
                let own = context.gpu.array("items", (end - start) as u64)?;
                context.recorder.upload(&own, 0, &x[start..end])?;
                let (mut compiled, mut seen) = (None, Vec::new());
                let mapped = map(context, &mapping(2100, 160), &[Items::Device(&own)], |context, chunk| {
                    maker.make(context, chunk)?;
                    let now = context.gpu.compiled();
                    // Those of the reductions come after the first chunk; other ranks have them by
                    // then, too.
                    if seen.len() >= 2 {
                        assert_eq!(*compiled.get_or_insert(now), now, "a shorter chunk compiles nothing");
                    }
                    seen.push(chunk.items.clone());
                    Ok::<_, Error>(())
                })?;
                let deal = Deal { items: 2100, shares: ranks.into() };
                let own = deal.block(context.comm.rank());
                let chunks = own.clone().step_by(160).map(|first| first..own.end.min(first + 160));
                assert_eq!(seen, chunks.collect::<Vec<_>>());
                context.comm.barrier()?;
                check(context, &mapped, &x, "on devices")
            });
        }
    }
}

/// Bytes of scratch that each item takes, beside its row.
const SCRATCH: u64 = 1000 * 4;

#[test]
fn chunks_fill_a_budget_and_keep_it() {
    // A device of its own, whose memory no other test counts.
    let options = Options { window_bytes: Some(1 << 22), kernels: 407, ..meshloom_sanitizer::options().unwrap() };
    for ranks in [1, 2] {
        on_ranks(ranks, &options, |context| {
            let maker = RowMaker::new(context)?;
            let x = items_of(1000);
            let budget = 1 << 20;
            context.recorder.wait()?;
            context.gpu.trim();
            context.comm.barrier()?;
            let before = context.gpu.allocated();
            context.comm.barrier()?;
            let most = Cell::new(0);
            let mapping = Mapping::new(1000)
                .chunk(ChunkSize::Memory(budget))
                .output("own", 1, Placement::Sharded)
                .output("sum", 2, Placement::Reduced(RowReduction::Sum));
            let mapped = map(context, &mapping, &[Items::Host(&x)], |context, chunk| {
                let scratch = context.gpu.array::<f32>("scratch", chunk.count() * SCRATCH / 4)?;
                context.recorder.clear(&scratch);
                maker.make(context, chunk)?;
                most.set(most.get().max(context.gpu.allocated() - before));
                Ok::<_, Error>(())
            })?;
            let found = mapped.report.estimate.as_ref().unwrap();
            assert!(most.get() <= budget, "{} of {budget}: {found:?}", most.get());
            let taken = found.measured.last().unwrap()[1];
            assert!(found.outputs + 2 * taken > budget && found.outputs + taken <= budget, "{found:?}");
            // One rank alone takes what was measured; several at most as much.
            assert!(ranks > 1 || most.get() == found.outputs + taken, "{} measured: {found:?}", most.get());
            assert!(found.per_item >= SCRATCH * ranks as u64 && found.measured.len() >= 5, "{found:?}");
            let sum = mapped.output("sum").unwrap();
            let sum = context.recorder.download(sum, 0, 1)?[0];
            let scaled: Vec<f32> = x.iter().map(|x| x * CONSTANTS[0]).collect();
            assert_eq!(sum.to_bits(), tree(&scaled, &|a, b| a + b).to_bits());
            // What no item fits into is said on all ranks, which catch their own errors.
            let small = mapping.chunk(ChunkSize::Memory(4000));
            let error = map(context, &small, &[Items::Host(&x)], |context, chunk| {
                let scratch = context.gpu.array::<f32>("scratch", chunk.count() * SCRATCH / 4)?;
                context.recorder.clear(&scratch);
                maker.make(context, chunk)
            });
            assert!(matches!(error, Err(Error::Map(MapError::Budget { needed: 4001.., budget: 4000 }))), "{error:?}");
            Ok(())
        });
    }
}

#[test]
fn what_does_not_fit_is_an_error_on_all_ranks() {
    let options = meshloom_sanitizer::options().unwrap();
    type Case = (&'static str, fn(usize) -> (Mapping, usize));
    let cases: [Case; 6] = [
        ("chunks of 0", |_| (Mapping::new(4).chunk(ChunkSize::Items(0)), 4)),
        ("has no numbers", |_| (Mapping::new(4).output("x", 0, Placement::Sharded), 4)),
        ("two outputs", |_| {
            (Mapping::new(4).output("x", 1, Placement::Sharded).output("x", 1, Placement::Gathered), 4)
        }),
        ("map: `mapping` differs between ranks", |rank| (Mapping::new(4 + rank as u64), 4)),
        ("gives other items", |rank| (Mapping::new(4), 4 + rank)),
        ("no rows of 4", |_| (Mapping::new(4), 7)),
    ];
    for (what, case) in cases {
        on_ranks(3, &options, |context| {
            let (mapping, len) = case(context.comm.rank());
            let error = map(context, &mapping, &[Items::Host(&vec![1.0; len])], |_, _| Ok::<_, MapError>(())).err();
            let text = error.map_or_else(String::new, |error| error.to_string());
            assert!(text.contains(what), "{text:?} does not say {what:?}");
            Ok(())
        });
    }
    // A function that does not compile is the text's error.
    on_ranks(1, &options, |context| {
        let reduction =
            RowReduction::Custom { function: "fn combine(a: f32) -> f32 { return a; }".into(), neutral: 0.0 };
        let error = map_reduce(context, [4, 1], ChunkSize::Items(4), reduction, &[], |context, chunk| {
            context.recorder.clear(&chunk.outputs[0]);
            Ok::<_, Error>(())
        });
        assert!(matches!(error, Err(Error::Device(_))), "{error:?}");
        Ok(())
    });
}

/// An error of a function on one rank is the run's, while others wait for its rows.
#[test]
fn an_error_of_the_function_ends_all_ranks() {
    let options = meshloom_sanitizer::options().unwrap();
    for memory in [false, true] {
        let chunk = if memory { ChunkSize::Memory(1 << 20) } else { ChunkSize::Items(2) };
        let outcome = run_threads(3, |comm| {
            let context = &mut Rank::new(comm, Gpu::open(&options, 0)?)?;
            let mapping = Mapping::new(12).chunk(chunk).output("x", 1, Placement::Gathered);
            map(context, &mapping, &[], |context, chunk| {
                context.recorder.clear(&chunk.outputs[0]);
                match chunk.items.contains(&7) {
                    true => Err(Error::Map(MapError::Invalid("item 7 has no x".into()))),
                    false => Ok(()),
                }
            })
            .map(drop)
        });
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("rank 1") && text.contains("item 7 has no x"), "{text}");
    }
}

/// A model that counts how often it is evaluated and linearized.
struct Counting {
    inner: Model,
    linearized: Rc<Cell<u32>>,
}

struct CountingAt(Linearization);

impl Differentiable for Counting {
    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.linearized.set(self.linearized.get() + 1000);
        self.inner.apply(rank, x, y)
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        self.linearized.set(self.linearized.get() + 1);
        let at = self.inner.at(rank, x)?;
        y.copy_from(&mut rank.recorder, &at.value)?;
        Ok(Box::new(CountingAt(at)))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        self.inner.identify(rank, out)
    }

    fn cost(&self) -> OperatorCost {
        self.inner.cost()
    }
}

impl Linearized for CountingAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.0.jvp(rank, dx, dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.0.vjp(rank, dy, dx)
    }
}

/// Sums the squares of each rank's three points, times a vector of one, summed over ranks: a
/// Jacobian that is known.
#[test]
fn jacobians_by_columns_and_rows_are_those_of_the_function_and_linearized_once() {
    let options = meshloom_sanitizer::options().unwrap();
    for grid in [[1, 1], [2, 1], [3, 1]] {
        on_grid(grid, &options, |rank| {
            let (me, ranks) = (rank.comm.rank() as u64, rank.comm.size() as u64);
            let space = Space::new([("x", Leaf::points(3, 3 * ranks)), ("a", Leaf::vector(1))])?;
            let text = "fn f(a: f32, x: f32) -> f32 { return a * x * x; }";
            let square = Model::new(PointwiseOperator::wgsl(text, "f", &space, "y")?);
            let sum = Model::new(RankCollective::sum_over_ranks(rank, square.target())?);
            let linearized = Rc::new(Cell::new(0));
            let model = Model::new(Counting { inner: square.then(&sum)?, linearized: linearized.clone() });
            let x = |rank: u64, i: u64| (rank * 3 + i) as f64 * 0.5 - 1.0;
            let mut at = Vector::new(&rank.gpu, model.domain())?;
            at.set(&mut rank.recorder, "a", &[2.0])?;
            at.set(&mut rank.recorder, "x", &[x(me, 0), x(me, 1), x(me, 2)])?;
            let point = model.at(rank, &at)?;
            let columns = numbers_of(rank, model.domain())?;
            assert_eq!((columns, numbers_of(rank, model.target())?), (1 + 3 * ranks, 3));
            // By numbers of the domain: first the factor, then the points rank by rank.
            let entry = |i: u64, j: u64| match j {
                0 => (0..ranks).map(|rank| x(rank, i) * x(rank, i)).sum::<f64>(),
                j => f64::from(u8::from((j - 1) % 3 == i)) * 4.0 * x((j - 1) / 3, i),
            };
            for chunk in [1, 2, 7, columns, columns + 1] {
                let mut seen = 0;
                jacobian_columns(rank, &point, 0..columns, ChunkSize::Items(chunk), |rank, first, fields| {
                    assert!(first == seen && fields.len() as u64 <= chunk);
                    for (j, field) in (first..).zip(fields) {
                        let column = field.get(&mut rank.recorder, "y")?;
                        assert_eq!(column, [0, 1, 2].map(|i| entry(i, j)), "column {j} on {ranks} ranks");
                    }
                    seen += fields.len() as u64;
                    Ok::<_, Error>(())
                })
                .unwrap();
                assert_eq!(seen, columns);
                jacobian_rows(rank, &point, 0..3, ChunkSize::Items(chunk), |rank, first, fields| {
                    for (i, field) in (first..).zip(fields) {
                        let row = field.get(&mut rank.recorder, "x")?;
                        assert_eq!(row, [0, 1, 2].map(|at| entry(i, 1 + 3 * me + at)), "row {i} on {ranks} ranks");
                        assert_eq!(field.get(&mut rank.recorder, "a")?, [entry(i, 0)]);
                    }
                    Ok::<_, Error>(())
                })
                .unwrap();
            }
            assert_eq!(linearized.get(), 1, "one linearization serves all products");
            // Errors of all ranks, whichever rank differs.
            let differs = "`numbers` differs between ranks";
            let asked = [(2..4, 1, "there are 3"), (0..3, 0, "there are 3"), (0..2 + u64::from(me == 0), 1, differs)];
            for (rows, chunk, why) in &asked[..if ranks > 1 { 3 } else { 2 }] {
                let wrong =
                    jacobian_rows(rank, &point, rows.clone(), ChunkSize::Items(*chunk), |_, _, _| Ok::<_, Error>(()));
                assert!(wrong.as_ref().is_err_and(|error| error.to_string().contains(why)), "{wrong:?}");
            }
            Ok(())
        });
    }
}

/// Columns of a diagonal, 20 kB each on every rank; chunks of them keep a budget, and use at least
/// half of what is left of it.
#[test]
fn chunks_of_a_jacobian_fill_a_budget_and_keep_it() {
    const POINTS: u64 = 5000;
    // A device of its own, whose memory no other test counts.
    let options = Options { window_bytes: Some(1 << 23), kernels: 408, ..meshloom_sanitizer::options().unwrap() };
    for ranks in [1, 2] {
        on_grid([ranks as usize, 1], &options, |rank| {
            let space = Space::of("x", Leaf::points(POINTS, POINTS * ranks))?;
            let square = PointwiseOperator::wgsl("fn f(x: f32) -> f32 { return x * x; }", "f", &space, "y")?;
            let mut x = Vector::zeros(&mut rank.recorder, &space)?;
            x.set(&mut rank.recorder, "x", &[1.5; POINTS as usize])?;
            let point = Model::new(square).at(rank, &x)?;
            let me = rank.comm.rank() as u64;
            let budget = ranks << 20;
            let settled = |rank: &mut Rank| {
                rank.recorder.wait()?;
                rank.gpu.trim();
                rank.comm.barrier()?;
                let before = rank.gpu.allocated();
                rank.comm.barrier()?;
                Ok::<_, Error>(before)
            };
            let before = settled(rank).unwrap();
            let (mut most, mut columns) = (0, 0);
            let report = jacobian_columns(rank, &point, 10..310, ChunkSize::Memory(budget), |rank, first, fields| {
                most = most.max(rank.gpu.allocated() - before);
                columns += fields.len() as u64;
                let number = first as usize + fields.len() - 1;
                let last = fields[fields.len() - 1].get(&mut rank.recorder, "y")?;
                let wrong = (0..last.len()).find(|&at| last[at] != if me == 0 && at == number { 3.0 } else { 0.0 });
                assert_eq!(wrong, None, "column {number}");
                Ok::<_, Error>(())
            });
            let report = report.unwrap();
            assert_eq!((report.items, columns), (10..310, 300));
            let found = report.estimate.unwrap();
            assert!(most <= budget, "{most} of {budget}: {found:?}");
            let [chunk, taken] = *found.measured.last().unwrap();
            assert!(found.outputs + 2 * taken > budget && found.outputs + taken <= budget, "{found:?}");
            assert!(chunk == report.chunk && chunk >= 16 && found.per_item >= 4 * POINTS * ranks, "{found:?}");
            let measured: u64 = found.measured.iter().map(|[items, _]| items).sum();
            assert_eq!(report.chunks, found.measured.len() as u64 + (300 - measured).div_ceil(chunk));
            // What no column fits into is said on all ranks.
            let small = ChunkSize::Memory(4 * POINTS);
            let error = jacobian_columns(rank, &point, 0..9, small, |_, _, _| Ok::<_, Error>(()));
            assert!(matches!(error, Err(Error::Map(MapError::Budget { .. }))), "{error:?}");
            Ok(())
        });
    }
}

/// Noise levels are items: the energy of a likelihood at each, by workers of one rank, gathered and
/// summed. The same bits as one loop.
#[test]
fn likelihoods_are_mapped() {
    let options = meshloom_sanitizer::options().unwrap();
    let noise = |item: u64| 0.25 + 0.5 * item as f64;
    let energy = |rank: &mut Rank, item: u64| {
        let leaf = Leaf::points(5, 5);
        let data = Data { name: "data", leaf: &leaf, values: &[1.0, -2.0, 0.5, 4.0, 0.0], mask: None };
        let likelihood = Likelihood::gaussian(rank, &data, NoiseLevel::Uniform(noise(item)))?;
        let text = "fn f(x: f32) -> f32 { return exp(x); }";
        let model = PointwiseOperator::wgsl(text, "f", &Space::of("x", leaf)?, "y")?;
        let likelihood = likelihood.amend(&Model::new(model))?;
        let mut x = Vector::zeros(&mut rank.recorder, likelihood.domain())?;
        x.set(&mut rank.recorder, "x", &[0.0, 0.5, -1.0, 1.5, 0.25])?;
        Ok::<_, Error>(likelihood.energy(rank, &x)? as f32)
    };
    let wanted = on_grid([1, 1], &options, |rank| {
        // By its definition, to what f32 and exp leave.
        let found: Vec<f32> = (0..13).map(|item| energy(rank, item).unwrap()).collect();
        let pairs = [(0.0, 1.0), (0.5, -2.0), (-1.0, 0.5), (1.5, 4.0), (0.25, 0.0)];
        let squares: f64 = pairs.iter().map(|(x, d): &(f64, f64)| (x.exp() - d).powi(2)).sum();
        for (item, &found) in (0..).zip(&found) {
            let exact = squares / 2.0 / noise(item).powi(2);
            assert!((f64::from(found) - exact).abs() < 1e-5 * exact, "{item}: {found} for {exact}");
        }
        Ok(found)
    });
    let wanted = &wanted[0];
    for ranks in [1, 3] {
        on_ranks(ranks, &options, |context| {
            // Ranks have different numbers of chunks: each works alone.
            let alone = context.comm.split(Some(context.comm.rank() as u32), 0)?.unwrap();
            let mut rank = Rank::new(alone, context.gpu.clone())?;
            for chunk in [1, 4, 13] {
                let mapping = Mapping::new(13)
                    .chunk(ChunkSize::Items(chunk))
                    .output("energies", 1, Placement::Gathered)
                    .output("sum", 1, Placement::Reduced(RowReduction::Sum));
                let mapped = map(context, &mapping, &[], |context, chunk| {
                    let energies = chunk.items.clone().map(|item| energy(&mut rank, item));
                    let energies = energies.collect::<Result<Vec<_>, _>>()?;
                    for output in &chunk.outputs {
                        context.recorder.upload(output, 0, &energies)?;
                    }
                    Ok::<_, Error>(())
                })?;
                assert_eq!(values(context, &mapped, "energies")?, *wanted);
                assert_eq!(values(context, &mapped, "sum")?, [tree(wanted, &|a, b| a + b)]);
            }
            Ok(())
        });
    }
}

/// Computes the metric of a Gaussian likelihood, J^T J / sigma^2, from the rows of the model's
/// Jacobian, in chunks.
#[test]
fn the_metric_of_a_likelihood_is_that_of_the_jacobians_rows() {
    let options = meshloom_sanitizer::options().unwrap();
    for grid in [[1, 1], [3, 1]] {
        on_grid(grid, &options, |rank| {
            let (me, ranks) = (rank.comm.rank(), rank.comm.size() as u64);
            let space = Space::new([("x", Leaf::points(2, 2 * ranks)), ("a", Leaf::vector(1))])?;
            let text = "fn f(a: f32, x: f32) -> f32 { return a * x * x; }";
            let square = Model::new(PointwiseOperator::wgsl(text, "f", &space, "y")?);
            let mut x = Vector::new(&rank.gpu, &space)?;
            x.set(&mut rank.recorder, "a", &[0.5])?;
            x.set(&mut rank.recorder, "x", &[1.0 + me as f64, -0.5])?;
            let leaf = square.target().only().unwrap().1.clone();
            let data = Data { name: "data", leaf: &leaf, values: &[0.0; 2], mask: None };
            let sigma = 0.25;
            let likelihood = Likelihood::gaussian(rank, &data, NoiseLevel::Uniform(sigma)).unwrap();
            let likelihood = likelihood.amend(&square).unwrap();
            let metric = likelihood.at(rank, &x).unwrap();
            let mut v = Vector::new(&rank.gpu, &space)?;
            v.set(&mut rank.recorder, "a", &[2.0])?;
            v.set(&mut rank.recorder, "x", &[-1.0, 3.0 - me as f64])?;
            let mut wanted = Vector::new(&rank.gpu, &space)?;
            metric.metric(rank, &v, &mut wanted).unwrap();
            let mut found = Vector::zeros(&mut rank.recorder, &space)?;
            let (at, rows) = (square.at(rank, &x)?, numbers_of(rank, square.target())?);
            assert_eq!(rows, 2 * ranks);
            jacobian_rows(rank, &at, 0..rows, ChunkSize::Items(4), |rank, _, fields| {
                for row in fields {
                    let along = rank.vector_dot(row, &v)?;
                    rank.vector_axpby(along / (sigma * sigma), row, 1.0, &mut found)?;
                }
                Ok::<_, Error>(())
            })
            .unwrap();
            for name in ["a", "x"] {
                let [found, wanted] = [&found, &wanted].map(|field| field.get(&mut rank.recorder, name));
                // All numbers are a few binary digits: nothing is rounded.
                assert_eq!(found?, wanted?, "{name} on {ranks} ranks");
            }
            Ok(())
        });
    }
}

/// Rows `x a_i` whose sums depend on the order: the sum over items and its derivatives have the
/// bits of the tree, for every number of ranks and every chunk.
#[test]
fn sums_and_derivatives_of_functions_on_the_host_follow_the_tree() {
    let options = meshloom_sanitizer::options().unwrap();
    let factor = |item: u64| (item as f64 * 0.7).sin() * 10f64.powi((item * 5 % 13) as i32);
    fn sum(rows: &[f64]) -> f64 {
        match rows {
            [one] => *one,
            _ => {
                let (left, right) = rows.split_at(rows.len().next_power_of_two() / 2);
                sum(left) + sum(right)
            }
        }
    }
    for (ranks, items, chunk) in [(1, 100, 64), (1, 100, 1), (2, 100, 7), (3, 100, 200), (5, 100, 3), (3, 2, 1)] {
        let all: Vec<f64> = (0..items).map(factor).collect();
        on_ranks(ranks, &options, |rank| {
            let space = Space::of("x", Leaf::parameters(1))?;
            let made = |rank: &Rank, placement: Placement| {
                let mapping = Mapping::new(items).chunk(ChunkSize::Items(chunk)).output("y", 1, placement);
                let product = move |items: Range<u64>, by: f64| Ok(vec![items.map(|item| factor(item) * by).collect()]);
                let vjp = move |items: Range<u64>, _: &[Vec<f64>], dy: &[Vec<f64>]| {
                    assert!(items.end - items.start <= chunk);
                    Ok(vec![items.zip(&dy[0]).map(|(item, dy)| factor(item) * dy).collect()])
                };
                let jvp = move |items, _: &[Vec<f64>], dx: &[Vec<f64>]| product(items, dx[0][0]);
                HostMap::new(rank, "f", &space, &mapping, move |items, x| product(items, x[0][0]), jvp, vjp)
            };
            let mut x = Vector::new(&rank.gpu, &space)?;
            x.set(&mut rank.recorder, "x", &[0.5])?;
            let at = Model::new(made(rank, Placement::Reduced(RowReduction::Sum))?).at(rank, &x)?;
            let half: Vec<f64> = all.iter().map(|factor| factor * 0.5).collect();
            assert_eq!(at.value.get(&mut rank.recorder, "y")?, [sum(&half)]);
            let (mut dx, mut dy) = (Vector::new(&rank.gpu, &space)?, Vector::new(&rank.gpu, at.model().target())?);
            dy.set(&mut rank.recorder, "y", &[0.5])?;
            at.vjp(rank, &dy, &mut dx)?;
            assert_eq!(dx.get(&mut rank.recorder, "x")?, [sum(&half)]);
            // Rows of every third item count.
            let at = Model::new(made(rank, Placement::Sharded)?).at(rank, &x)?;
            let counts = |item: &u64| f64::from(u8::from(item.is_multiple_of(3)));
            let own = Deal { items, shares: ranks.into() }.block(rank.index());
            let mut dy = Vector::new(&rank.gpu, at.model().target())?;
            dy.set(&mut rank.recorder, "y", &own.map(|item| counts(&item)).collect::<Vec<_>>())?;
            at.vjp(rank, &dy, &mut dx)?;
            let some: Vec<f64> = (0..items).zip(&all).map(|(item, factor)| factor * counts(&item) + 0.0).collect();
            assert_eq!(dx.get(&mut rank.recorder, "x")?, [sum(&some)]);
            Ok(())
        });
    }
    on_ranks(2, &options, |rank| {
        let (vector, points) = (Space::of("x", Leaf::vector(1))?, Space::of("x", Leaf::points(1, 2))?);
        let sum = Placement::Reduced(RowReduction::Sum);
        let one = |items| Mapping::new(items).output("y", 1, Placement::Sharded);
        for (space, mapping, text) in [
            (&points, one(3), "leaf `x` of the domain is distributed"),
            (&vector, one(0), "expected at least one item and output, got 0 and 1"),
            (&vector, Mapping::new(3), "expected at least one item and output, got 3 and 0"),
            (&vector, one(3).chunk(ChunkSize::Memory(9)), "chunks by device memory"),
            (
                &vector,
                one(3).output("z", 1, Placement::Gathered),
                "expected it sharded or reduced to a sum, got Gathered",
            ),
            (&vector, one(3).output("y", 1, sum), "two outputs"),
            (&vector, one(3 + rank.index() as u64), "`mapping` differs between ranks"),
        ] {
            let (row, product) =
                (|_, _: &[Vec<f64>]| Ok(Vec::new()), |_, _: &[Vec<f64>], _: &[Vec<f64>]| Ok(Vec::new()));
            let error = HostMap::new(rank, "f", space, &mapping, row, product, product).err().unwrap().to_string();
            assert!(error.contains(text), "{error}");
        }
        // A row too few, on one rank.
        let fails = rank.index() == 1;
        let row = move |items: Range<u64>, _: &[Vec<f64>]| {
            Ok(vec![vec![1.0; (items.end - items.start) as usize - usize::from(fails)]])
        };
        let product = |_, _: &[Vec<f64>], _: &[Vec<f64>]| Ok(Vec::new());
        let model = Model::new(HostMap::new(rank, "f", &vector, &one(4), row, product, product)?);
        let x = Vector::zeros(&mut rank.recorder, &vector)?;
        let error = model.value(rank, &x).unwrap_err().to_string();
        assert!(error.contains("value, leaf `y`: expected 1 numbers for each of 2 items, got 1"), "{error}");
        assert_eq!(error.starts_with("rank 1: "), rank.index() == 0, "{error}");
        Ok(())
    });
}
