//! Domain decomposition of the points of all ranks along a Hilbert curve, for neighbour searches and groups.
//!
//! Each rank has an equal part of the points in the order of the curve, with a tree over them, and fetches copies of other ranks' points
//! where it needs them ([`Decomposition::fetch_ghosts`]).

use crate::comm::Communicator;
use crate::exchange::Context;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, Recorder};
use crate::points::ghosts::{Ghosts, Reach, Region};
use crate::points::rows::{row_offsets, upload_u32};
use crate::points::sort::{SortError, distribute};
use crate::points::tree::{Builder, Tree};
use crate::points::{Cloud, Curve, CurveKeys, Frame};

/// Indices of this rank's points in the input of all ranks.
#[derive(Clone)]
pub(crate) enum GlobalIds {
    /// Row numbers: on one rank.
    Identity,
    /// One for each row, ascending for [`LocalPoints`].
    List(Vec<u64>),
}

impl GlobalIds {
    pub fn of(&self, row: u32) -> u64 {
        match self {
            GlobalIds::Identity => u64::from(row),
            GlobalIds::List(ids) => ids[row as usize],
        }
    }
}

/// Points on this rank in the order of their global indices, and a tree over them.
pub(crate) struct LocalPoints {
    pub cloud: Cloud,
    pub ids: GlobalIds,
    pub tree: Tree,
}

/// This rank's points together with those of other ranks within reach.
pub(crate) struct WithGhosts {
    /// Own points and ghosts; `None` without ghosts.
    pub points: Option<LocalPoints>,
    pub ghosts: Ghosts,
}

/// One rank's share of the points of all ranks.
pub(crate) struct Decomposition {
    pub comm: Communicator,
    pub builder: Builder,
    pub permute: Permute,
    /// Of all points.
    pub frame: Frame,
    /// With the attributes of the input.
    pub own: LocalPoints,
    /// This rank's points as requests of others are answered from; `None` on one rank.
    pub region: Option<Region>,
    /// Where each rank's rows of the input begin among those of all ranks.
    pub row_offsets: Vec<u64>,
    /// Points of all ranks.
    pub total: u64,
    /// The first key of each rank's part of the curve; an empty rank has that of the next.
    first_keys: Vec<u64>,
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
            let own = LocalPoints { cloud, ids: GlobalIds::Identity, tree };
            return Ok(Self {
                comm,
                builder,
                permute,
                frame,
                own,
                region: None,
                row_offsets,
                total,
                first_keys: vec![0],
            });
        }
        let sorted = distribute(context, cloud, Curve::Hilbert)?;
        let recorder = &mut context.recorder;
        let (frame, total) = (sorted.frame, sorted.total);
        let ids = sorted.index(recorder)?;
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        order.sort_unstable_by_key(|&row| ids[row as usize]);
        let rows = upload_u32(recorder, &order)?;
        let cloud = sorted.cloud.gather(recorder, &permute, &rows)?;
        let ids = order.iter().map(|&row| ids[row as usize]).collect();
        let tree = builder.build(recorder, &cloud, &frame)?;
        let region = Some(Region::of(recorder, &tree)?);
        let own = LocalPoints { cloud, ids: GlobalIds::List(ids), tree };
        let first = match own.cloud.is_empty() {
            true => u64::MAX,
            false => {
                let [high, low] = &sorted.keys;
                let word = |recorder: &mut Recorder, key: &Array<u32>| recorder.download(key, 0, 1);
                u64::from(word(recorder, high)?[0]) << 32 | u64::from(word(recorder, low)?[0])
            }
        };
        let mut first_keys = comm.all_gather(&[first])?;
        for rank in (0..first_keys.len() - 1).rev() {
            first_keys[rank] = first_keys[rank].min(first_keys[rank + 1]);
        }
        Ok(Self { comm, builder, permute, frame, own, region, row_offsets, total, first_keys })
    }

    /// The rank whose part of the curve each point lies in. Waits.
    pub fn owners(&self, recorder: &mut Recorder, cloud: &Cloud) -> Result<Vec<usize>, SortError> {
        let gpu = recorder.gpu().clone();
        let [high, low] =
            [gpu.array("decomposition::high", cloud.len())?, gpu.array("decomposition::low", cloud.len())?];
        CurveKeys::new().record(recorder, Curve::Hilbert, cloud.positions(), &self.frame, &high, &low)?;
        let (high, low) = (recorder.download(&high, 0, high.len())?, recorder.download(&low, 0, low.len())?);
        let owner = |(high, low): (u32, u32)| {
            let key = u64::from(high) << 32 | u64::from(low);
            self.first_keys.partition_point(|&first| first <= key).saturating_sub(1)
        };
        Ok(high.into_iter().zip(low).map(owner).collect())
    }

    /// Fetches copies of the points of other ranks that the points of `asking` reach, without attributes; without `asking` this rank's own
    /// points ask. `None` on one rank. Waits. All ranks call it.
    pub fn fetch_ghosts(
        &self,
        context: &mut Context,
        asking: Option<&Region>,
        reach: &Reach,
    ) -> Result<Option<WithGhosts>, SortError> {
        let Some(region) = &self.region else { return Ok(None) };
        let ghosts = Ghosts::find(context, region, asking.unwrap_or(region), reach)?;
        let dims = self.frame.dims as u64;
        let own_ids = match &self.own.ids {
            GlobalIds::List(ids) => ids.as_slice(),
            GlobalIds::Identity => &[],
        };
        let ghost_ids = self.ghost_values(context, &ghosts, own_ids)?;
        let positions = ghosts.refresh(context, self.own.cloud.positions(), dims)?;
        if ghosts.is_empty() {
            return Ok(Some(WithGhosts { points: None, ghosts }));
        }
        let Context { gpu, recorder, .. } = context;
        let ids: Vec<u64> = own_ids.iter().chain(&ghost_ids).copied().collect();
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        order.sort_unstable_by_key(|&row| ids[row as usize]);
        let joint = gpu.array::<f32>("partition::joint", ids.len() as u64 * dims)?;
        recorder.copy(self.own.cloud.positions(), 0, &joint, 0, own_ids.len() as u64 * dims)?;
        recorder.copy(&positions, 0, &joint, own_ids.len() as u64 * dims, ghosts.len() * dims)?;
        let rows = upload_u32(recorder, &order)?;
        let sorted = gpu.array::<f32>("partition::joint", joint.len())?;
        self.permute.gather(recorder, &joint, &rows, &sorted, dims, Count::All)?;
        let cloud = Cloud::new(recorder, self.own.cloud.domain(), sorted)?;
        let tree = self.builder.build(recorder, &cloud, &self.frame)?;
        let ids = GlobalIds::List(order.into_iter().map(|row| ids[row as usize]).collect());
        Ok(Some(WithGhosts { points: Some(LocalPoints { cloud, ids, tree }), ghosts }))
    }

    /// The values that other ranks have for the points that are ghosts here; `own` has one for each of this rank's points. Waits. All ranks
    /// call it.
    fn ghost_values(&self, context: &mut Context, ghosts: &Ghosts, own: &[u64]) -> Result<Vec<u64>, SortError> {
        let words: Vec<[u32; 2]> = own.iter().map(|&value| [value as u32, (value >> 32) as u32]).collect();
        let own = upload_u32(&mut context.recorder, words.as_flattened())?;
        let values = ghosts.refresh(context, &own, 2)?;
        let values = context.recorder.download(&values, 0, values.len())?;
        Ok(values.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect())
    }
}
