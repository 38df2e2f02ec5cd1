//! The points of all ranks, decomposed along a Hilbert curve for searches: what neighbour searches and groups between ranks are
//! made on.
//!
//! Each rank has a piece of the curve of equal size with a tree over it, and fetches what else its requests reach
//! ([`Decomposition::joint`]).

use crate::comm::{CommError, Communicator};
use crate::exchange::{Exchange, ExchangeError};
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::points::ghosts::{Ghosts, Region, Request};
use crate::points::sort::{SortError, distribute};
use crate::points::tree::{Builder, Tree};
use crate::points::{Cloud, Curve, CurveKeys, Frame, ParticleError};

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

/// What any of the things below can fail with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecompositionError {
    #[error(transparent)]
    Sort(#[from] SortError),
    #[error(transparent)]
    Particles(#[from] ParticleError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl From<ExchangeError> for DecompositionError {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Device(error) => error.into(),
            ExchangeError::Comm(error) => error.into(),
        }
    }
}

/// Where each rank's rows begin among those of all.
pub(crate) fn row_offsets(comm: &Communicator, rows: u64) -> Result<Vec<u64>, CommError> {
    let counts = comm.all_gather(&[rows])?;
    Ok(counts.iter().scan(0, |next, &count| Some(std::mem::replace(next, *next + count))).collect())
}

/// Words on the device.
pub(crate) fn upload_u32(recorder: &mut Recorder, words: &[u32]) -> Result<Array<u32>, DeviceError> {
    let array = recorder.gpu().array("decomposition::rows", words.len() as u64)?;
    recorder.upload(&array, 0, words)?;
    Ok(array)
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
    pub fn new(recorder: &mut Recorder, exchange: &mut Exchange, cloud: &Cloud) -> Result<Self, DecompositionError> {
        let (gpu, comm) = (recorder.gpu().clone(), exchange.comm().clone());
        let (builder, permute) = (Builder::new(&gpu), Permute::new());
        let row_offsets = row_offsets(&comm, cloud.len())?;
        if comm.size() == 1 {
            let (cloud, total) = (cloud.clone(), cloud.len());
            let frame = Frame::new(cloud.domain(), cloud.bounds());
            let tree = builder.build(recorder, &cloud, &frame)?;
            let own = Part { cloud, numbers: GlobalIds::Rows, tree };
            return Ok(Self { comm, builder, permute, frame, own, region: None, row_offsets, total, keys: vec![0] });
        }
        let sorted = distribute(recorder, exchange, cloud, Curve::Hilbert)?;
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
    pub fn owners(&self, recorder: &mut Recorder, cloud: &Cloud) -> Result<Vec<usize>, DecompositionError> {
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
    pub fn joint(
        &self,
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        requests: &[Request],
    ) -> Result<Option<WithGhosts>, DecompositionError> {
        let Some(region) = &self.region else { return Ok(None) };
        let ghosts = Ghosts::find(recorder, exchange, region, requests)?;
        let dims = self.frame.dims as u64;
        let gpu = recorder.gpu().clone();
        let own = match &self.own.numbers {
            GlobalIds::These(numbers) => numbers.as_slice(),
            GlobalIds::Rows => &[],
        };
        let numbers = self.of_ghosts(recorder, exchange, &ghosts, own)?;
        let positions = ghosts.refresh(recorder, exchange, self.own.cloud.positions(), dims)?;
        if ghosts.is_empty() {
            return Ok(Some(WithGhosts { part: None, ghosts, numbers }));
        }
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
    pub fn of_ghosts(
        &self,
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        ghosts: &Ghosts,
        own: &[u64],
    ) -> Result<Vec<u64>, DecompositionError> {
        let words: Vec<[u32; 2]> = own.iter().map(|&value| [value as u32, (value >> 32) as u32]).collect();
        let own = upload_u32(recorder, words.as_flattened())?;
        let theirs = ghosts.refresh(recorder, exchange, &own, 2)?;
        let theirs = recorder.download(&theirs, 0, theirs.len())?;
        Ok(theirs.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect())
    }
}
