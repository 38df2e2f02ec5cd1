//! The points of all ranks, decomposed along a Hilbert curve for searches: what neighbour searches and groups between ranks are
//! made on.
//!
//! Each rank has a piece of the curve of equal size with a tree over it, and fetches what else its requests reach
//! ([`Decomposition::joint`]).

use crate::comm::Communicator;
use crate::exchange::Context;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, Recorder};
use crate::points::ghosts::{Ghosts, Region, Request};
use crate::points::rows::{row_offsets, upload_u32};
use crate::points::sort::{SortError, distribute};
use crate::points::tree::{Builder, Tree};
use crate::points::{Cloud, Curve, CurveKeys, Frame};

/// Numbers of rows in the input of all ranks.
#[derive(Clone)]
pub(crate) enum GlobalIds {
    /// All of them, as they are on one rank.
    Rows,
    /// Ascending.
    These(Vec<u64>),
}

impl GlobalIds {
    pub fn of(&self, row: u32) -> u64 {
        match self {
            GlobalIds::Rows => u64::from(row),
            GlobalIds::These(numbers) => numbers[row as usize],
        }
    }
}

/// Points on this rank in the order of their numbers, and a tree over them.
pub(crate) struct Part {
    pub cloud: Cloud,
    pub numbers: GlobalIds,
    pub tree: Tree,
}

/// This rank's points together with those of other ranks that its requests reach.
pub(crate) struct WithGhosts {
    /// None where no rank's points are reached.
    pub part: Option<Part>,
    pub ghosts: Ghosts,
    /// The number of each ghost.
    pub numbers: Vec<u64>,
}

/// One rank's share of the points of all ranks.
pub(crate) struct Decomposition {
    pub comm: Communicator,
    pub builder: Builder,
    pub permute: Permute,
    /// Of all points.
    pub frame: Frame,
    /// With the attributes of the input.
    pub own: Part,
    /// What others ask for; none on one rank.
    pub region: Option<Region>,
    /// How many rows of the input the ranks before each one have.
    pub row_offsets: Vec<u64>,
    /// Points of all ranks.
    pub total: u64,
    /// The first key of each rank's piece of the curve; those of empty ranks are those of the next.
    keys: Vec<u64>,
}

impl Decomposition {
    /// Distributes the points of all ranks' clouds with their attributes, and builds the trees. All ranks call it.
    pub fn new(context: &mut Context, cloud: &Cloud) -> Result<Self, SortError> {
        let comm = context.comm.clone();
        let (builder, permute) = (Builder::new(&context.gpu), Permute::new());
        let row_offsets = row_offsets(&comm, cloud.len())?;
        if comm.size() == 1 {
            let (cloud, total) = (cloud.clone(), cloud.len());
            let frame = Frame::new(cloud.domain(), cloud.bounds());
            let tree = builder.build(&mut context.recorder, &cloud, &frame)?;
            let own = Part { cloud, numbers: GlobalIds::Rows, tree };
            return Ok(Self { comm, builder, permute, frame, own, region: None, row_offsets, total, keys: vec![0] });
        }
        let sorted = distribute(context, cloud, Curve::Hilbert)?;
        let recorder = &mut context.recorder;
        let (frame, total) = (sorted.frame, sorted.total);
        let numbers = sorted.index(recorder)?;
        let mut order: Vec<u32> = (0..numbers.len() as u32).collect();
        order.sort_unstable_by_key(|&row| numbers[row as usize]);
        let rows = upload_u32(recorder, &order)?;
        let cloud = sorted.cloud.gather(recorder, &permute, &rows)?;
        let numbers = order.iter().map(|&row| numbers[row as usize]).collect();
        let tree = builder.build(recorder, &cloud, &frame)?;
        let region = Some(Region::of(recorder, &tree)?);
        let own = Part { cloud, numbers: GlobalIds::These(numbers), tree };
        let first = match own.cloud.is_empty() {
            true => u64::MAX,
            false => {
                let [high, low] = &sorted.keys;
                let word = |recorder: &mut Recorder, key: &Array<u32>| recorder.download(key, 0, 1);
                u64::from(word(recorder, high)?[0]) << 32 | u64::from(word(recorder, low)?[0])
            }
        };
        let mut keys = comm.all_gather(&[first])?;
        for rank in (0..keys.len() - 1).rev() {
            keys[rank] = keys[rank].min(keys[rank + 1]);
        }
        Ok(Self { comm, builder, permute, frame, own, region, row_offsets, total, keys })
    }

    /// The rank that has the piece of the curve each point lies in.
    pub fn owners(&self, recorder: &mut Recorder, cloud: &Cloud) -> Result<Vec<usize>, SortError> {
        let gpu = recorder.gpu().clone();
        let [high, low] =
            [gpu.array("decomposition::high", cloud.len())?, gpu.array("decomposition::low", cloud.len())?];
        CurveKeys::new().record(recorder, Curve::Hilbert, cloud.positions(), &self.frame, &high, &low)?;
        let (high, low) = (recorder.download(&high, 0, high.len())?, recorder.download(&low, 0, low.len())?);
        let owner = |(high, low): (u32, u32)| {
            let key = u64::from(high) << 32 | u64::from(low);
            self.keys.partition_point(|&first| first <= key).saturating_sub(1)
        };
        Ok(high.into_iter().zip(low).map(owner).collect())
    }

    /// Fetches what `requests` reach on other ranks; nothing on one rank. All ranks call it. Attributes stay behind.
    pub fn joint(&self, context: &mut Context, requests: &[Request]) -> Result<Option<WithGhosts>, SortError> {
        let Some(region) = &self.region else { return Ok(None) };
        let ghosts = Ghosts::find(context, region, requests)?;
        let dims = self.frame.dims as u64;
        let own = match &self.own.numbers {
            GlobalIds::These(numbers) => numbers.as_slice(),
            GlobalIds::Rows => &[],
        };
        let numbers = self.of_ghosts(context, &ghosts, own)?;
        let positions = ghosts.refresh(context, self.own.cloud.positions(), dims)?;
        if ghosts.is_empty() {
            return Ok(Some(WithGhosts { part: None, ghosts, numbers }));
        }
        let Context { gpu, recorder, .. } = context;
        let all: Vec<u64> = own.iter().chain(&numbers).copied().collect();
        let mut order: Vec<u32> = (0..all.len() as u32).collect();
        order.sort_unstable_by_key(|&row| all[row as usize]);
        let both = gpu.array::<f32>("decomposition::joint", all.len() as u64 * dims)?;
        recorder.copy(self.own.cloud.positions(), 0, &both, 0, own.len() as u64 * dims)?;
        recorder.copy(&positions, 0, &both, own.len() as u64 * dims, ghosts.len() * dims)?;
        let rows = upload_u32(recorder, &order)?;
        let sorted = gpu.array::<f32>("decomposition::joint", both.len())?;
        self.permute.gather(recorder, &both, &rows, &sorted, dims, Count::All)?;
        let cloud = Cloud::new(recorder, self.own.cloud.domain(), sorted)?;
        let tree = self.builder.build(recorder, &cloud, &self.frame)?;
        let part =
            Part { cloud, numbers: GlobalIds::These(order.into_iter().map(|row| all[row as usize]).collect()), tree };
        Ok(Some(WithGhosts { part: Some(part), ghosts, numbers }))
    }

    /// What other ranks have for their points that are ghosts here; `own` is a value for each of this rank's points. All ranks
    /// call it.
    pub fn of_ghosts(&self, context: &mut Context, ghosts: &Ghosts, own: &[u64]) -> Result<Vec<u64>, SortError> {
        let words: Vec<[u32; 2]> = own.iter().map(|&value| [value as u32, (value >> 32) as u32]).collect();
        let own = upload_u32(&mut context.recorder, words.as_flattened())?;
        let theirs = ghosts.refresh(context, &own, 2)?;
        let theirs = context.recorder.download(&theirs, 0, theirs.len())?;
        Ok(theirs.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect())
    }
}
