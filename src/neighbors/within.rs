//! All sources within a radius of each query.

use super::error::NeighborError;
use super::form::Form;
use super::nearest::{Ask, Kernels, NEIGHBOR, Rows};
use super::snippet::{self, Snippet};
use super::targets::Queries;
use super::writer::{self, Params, Shape};
use crate::device::{Access, Array, Element, Gpu, Kernel, KernelSource, Recorder};
use crate::primitives::{Count, Scan};
use crate::tree::Tree;

/// Which sources count as neighbours of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Which {
    /// All, the query itself too where it is one.
    #[default]
    All,
    /// All but the one with the query's number: the query itself.
    Others,
    /// Those with a higher number than the query: each pair once (half lists).
    Above,
}

/// A search within a radius.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    /// Largest distance, inclusive: what counts is that the `f32` square of the distance is at most that of the radius.
    /// Along a periodic axis a pair counts once, by its nearest images, however large the radius.
    pub radius: f32,
    /// Which sources.
    pub which: Which,
    /// The order of results.
    pub rows: Rows,
}

impl Within {
    /// All sources within `radius`, the query itself among them, in the order of the input.
    pub fn radius(radius: f32) -> Self {
        Within { radius, which: Which::All, rows: Rows::Input }
    }
}

/// Lists of neighbours of any length: row `i` is entries `offset[i]..offset[i + 1]`, in ascending order of the index.
#[derive(Clone)]
pub struct Rows32 {
    /// Where each row begins, and behind the last one the number of all entries.
    pub offset: Array<u32>,
    /// Numbers of sources in their cloud.
    pub index: Array<u32>,
    /// Their distances.
    pub distance: Array<f32>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    shape: Shape,
    snippet: snippet::Key,
}

/// Searches of all sources within a radius.
///
/// | call | walks | waits |
/// |---|---|---|
/// | [`counts`](Self::counts) | 1 | no |
/// | [`lists`](Self::lists) | 2: count, then fill | once, for the number of all entries |
/// | [`visit`](Self::visit) | 1 | no |
///
/// No length is ever guessed: lists are counted before memory is taken for them.
///
/// ```
/// use meshloom::device::{Gpu, Options, Recorder};
/// use meshloom::neighbors::{Queries, Within, Radius};
/// use meshloom::particles::{Cloud, Domain, Frame};
/// use meshloom::tree::Builder;
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let domain = Domain::new(&[10.0, 0.0])?;
/// let cloud = Cloud::from_host(&mut recorder, &domain, &[0.5, 0.0, 9.5, 0.0, 3.0, 0.0])?;
/// let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &Frame::new(&domain, cloud.bounds()))?;
/// let lists = Radius::new(&gpu).lists(&mut recorder, &tree, Queries::Own, &Within::radius(2.5))?;
/// assert_eq!(recorder.download(&lists.offset, 0, 4)?, [0, 3, 5, 7]);
/// assert_eq!(recorder.download(&lists.index, 0, 7)?, [0, 1, 2, 0, 1, 0, 2]);
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct Radius {
    form: Form,
    kernels: Kernels<Key>,
    scan: Scan,
    total: Kernel,
    rows: Kernel,
}

const COUNT: &str = "
alias State = u32;
fn begin(query: u32, reach: f32) -> State { return 0u; }
fn each(state: State, near: Neighbor) -> State { return state + 1u; }
fn end(query: u32, state: State) { store_counts(query, state); }
";

const FILL: &str = "
alias State = u32;
fn begin(query: u32, reach: f32) -> State { return load_offset(query); }
fn each(state: State, near: Neighbor) -> State {
    store_index(state, near.index);
    store_distance(state, near.distance);
    return state + 1u;
}
fn end(query: u32, state: State) { }
";

impl Radius {
    /// In the form that suits a device.
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(Form::of(gpu))
    }

    /// In a given form, which the device must allow.
    pub fn with(form: Form) -> Self {
        let total = KernelSource::new("neighbors::total", include_str!("../../shaders/neighbors/total.wgsl"))
            .params("count: u32, pad0: u32, pad1: u32, pad2: u32")
            .array("counts", Element::U32, Access::Read)
            .array("total", Element::U32, Access::Atomic);
        let rows = KernelSource::new("neighbors::rows", include_str!("../../shaders/neighbors/rows.wgsl"))
            .params("count: u32, pad0: u32, pad1: u32, pad2: u32")
            .group(64)
            .array("offset", Element::U32, Access::Read)
            .array("index", Element::U32, Access::ReadWrite)
            .array("distance", Element::F32, Access::ReadWrite);
        Radius { form, kernels: Kernels::new(), scan: Scan::new(), total: Kernel::new(total), rows: Kernel::new(rows) }
    }

    /// How many neighbours each query has. Recorded only.
    ///
    /// # Errors
    /// [`NeighborError::Radius`], those of [`Queries`], and of the device.
    pub fn counts(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &Within,
    ) -> Result<Array<u32>, NeighborError> {
        let counts = recorder.gpu().array("neighbors::counts", queries.len(tree))?;
        self.visit(recorder, tree, queries, within, &Snippet::new(COUNT).write("counts", &counts))?;
        Ok(counts)
    }

    /// The neighbours of each query. Waits once.
    ///
    /// # Errors
    /// As [`counts`](Self::counts), and [`NeighborError::TooLong`] for 2^32 entries and more.
    pub fn lists(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &Within,
    ) -> Result<Rows32, NeighborError> {
        let (gpu, rows) = (recorder.gpu().clone(), queries.len(tree));
        let counts = self.counts(recorder, tree, queries, within)?;
        let total = gpu.array::<u32>("neighbors::total", 2)?;
        recorder.clear(&total);
        recorder.each(&self.total, &[counts.raw(), total.raw()], &[rows as u32, 0, 0, 0], rows)?;
        let offset = gpu.array("neighbors::offset", rows + 1)?;
        self.scan.exclusive(recorder, &counts, &offset, Count::All)?;
        let words = recorder.download(&total, 0, 2)?;
        if words[1] > 0 {
            let entries = u64::from(words[0]) | u64::from(words[1]) << 32;
            return Err(NeighborError::TooLong { rows, each: entries / rows.max(1) });
        }
        let entries = u64::from(words[0]);
        let lists = Rows32 {
            offset,
            index: gpu.array("neighbors::index", entries)?,
            distance: gpu.array("neighbors::distance", entries)?,
        };
        let fill = Snippet::new(FILL)
            .read("offset", &lists.offset)
            .write("index", &lists.index)
            .write("distance", &lists.distance);
        self.visit(recorder, tree, queries, within, &fill)?;
        let arrays = [lists.offset.raw(), lists.index.raw(), lists.distance.raw()];
        recorder.dispatch(&self.rows, &arrays, &[rows as u32, 0, 0, 0], rows.div_ceil(64))?;
        Ok(lists)
    }

    /// Runs `snippet` on the neighbours of each query, in no order. Recorded only.
    ///
    /// # Errors
    /// As [`counts`](Self::counts); [`Misuse`](crate::device::DeviceError::Misuse) for a snippet without its functions,
    /// [`Shader`](crate::device::DeviceError::Shader) for one that does not compile.
    pub fn visit(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &Within,
        snippet: &Snippet,
    ) -> Result<(), NeighborError> {
        if within.radius.is_nan() || within.radius < 0.0 {
            return Err(NeighborError::Radius { radius: within.radius.into() });
        }
        snippet.check()?;
        let shape = queries.shape(self.form, tree);
        let kernel = self.kernels.get(Key { shape, snippet: snippet.key() }, || source(shape, snippet));
        let ask = Ask { within: within.radius, rows: within.rows, ..Ask::nearest(0) };
        let params = Params { skip: within.which as u32, ..queries.params(tree, &ask)? };
        let mut arrays = queries.arrays(tree);
        arrays.extend(snippet.arrays());
        queries.dispatch(recorder, self.form, &kernel, &arrays, params, 0..queries.len(tree))
    }

    /// Kernels in this form of all kinds that there are, for tests that go over all of the library's kernels.
    pub fn sources(&self, gpu: &Gpu) -> Result<Vec<KernelSource>, NeighborError> {
        let mut sources = vec![self.total.source().clone(), self.rows.source().clone()];
        let (words, reals) = (gpu.array::<u32>("words", 2)?, gpu.array::<f32>("reals", 2)?);
        let count = Snippet::new(COUNT).write("counts", &words);
        let fill = Snippet::new(FILL).read("offset", &words).write("index", &words).write("distance", &reals);
        for (dims, own) in [(2, true), (3, true), (3, false)] {
            let shape = Shape { form: self.form, dims, own };
            sources.extend([source(shape, &count), source(shape, &fill)]);
        }
        Ok(sources)
    }
}

fn source(shape: Shape, snippet: &Snippet) -> KernelSource {
    let done = if snippet.stopping { "done(state)" } else { "false" };
    let text = format!("{NEIGHBOR}{}\nfn finished(state: State) -> bool {{ return {done}; }}\n", snippet.text);
    snippet.bind(writer::search("within", shape, include_str!("../../shaders/neighbors/visit.wgsl"), &text))
}
