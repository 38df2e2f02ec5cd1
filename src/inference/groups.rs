//! Ranks as groups of samples: each group holds whole vectors, cut over its ranks, and has a block of the samples.

use std::ops::Range;

use super::error::InferenceError;
use super::vector_space::{Staged, VectorSpace};
use crate::comm::Communicator;
use crate::grid::split;
use crate::host_memory;
use crate::map::tree::{Fold, Node, nodes, tree_sum};

/// The groups that samples are dealt to, from the view of one rank.
///
/// Ranks are a grid of groups x space: rank `r` of `n` in `g` groups is rank `r % (n / g)` of group `r / (n / g)`. A group draws its samples alone; sums over
/// samples go among the ranks of one place in all groups, in the order of a tree over the samples' numbers, so that results are the same for
/// every number of groups.
#[derive(Debug)]
pub struct SampleGroups {
    /// All ranks, those of a group one after the other.
    all: Communicator,
    /// The ranks of this rank's place in all groups.
    across: Communicator,
}

impl SampleGroups {
    /// One group, of all ranks of `comm`.
    pub fn one(comm: &Communicator) -> Self {
        SampleGroups { all: comm.clone(), across: Communicator::solo() }
    }

    /// Cuts the ranks of `comm` into groups; returns them with the communicator of this rank's group, for a [`Rank`](crate::rank::Rank) of its own.
    /// All ranks call it.
    ///
    /// # Errors
    /// [`InferenceError::Groups`] when the groups cannot have the same number of ranks; [`InferenceError::Comm`].
    pub fn split(comm: &Communicator, groups: usize) -> Result<(Self, Communicator), InferenceError> {
        let (rank, ranks) = (comm.rank(), comm.size());
        if groups == 0 || !ranks.is_multiple_of(groups) {
            let why = "each group has the same number of ranks; give a number of groups that divides the ranks";
            return Err(InferenceError::Groups { groups, ranks, why: why.into() });
        }
        let each = ranks / groups;
        let own = comm.split(Some((rank / each) as u32), rank as u64)?;
        let across = comm.split(Some((rank % each) as u32), rank as u64)?;
        match (own, across) {
            (Some(own), Some(across)) => Ok((SampleGroups { all: comm.clone(), across }, own)),
            _ => Err(InferenceError::Groups { groups, ranks, why: "a rank has no part in the split".into() }),
        }
    }

    /// All ranks of all groups.
    pub fn all(&self) -> &Communicator {
        &self.all
    }

    /// Groups.
    pub fn count(&self) -> usize {
        self.across.size()
    }

    /// This rank's group.
    pub fn index(&self) -> usize {
        self.across.rank()
    }

    /// This rank's place in its group.
    pub(super) fn place(&self) -> usize {
        self.all.rank() % (self.all.size() / self.count())
    }

    /// This group's block of `samples`: blocks differ by one at most.
    pub fn block(&self, samples: usize) -> Range<usize> {
        self.block_of(self.index(), samples)
    }

    fn block_of(&self, group: usize, samples: usize) -> Range<usize> {
        let range = split(samples as u64, self.count() as u64, group as u64);
        range.start as usize..range.end as usize
    }

    /// The nodes of the tree that a group's block is.
    fn nodes_of(&self, group: usize, samples: usize) -> Vec<Node> {
        let block = self.block_of(group, samples);
        nodes(block.start as u64..block.end as u64)
    }

    /// Groups that have none of `samples`.
    pub fn idle(&self, samples: usize) -> usize {
        self.count().saturating_sub(samples)
    }

    /// The group that has a sample of `samples`.
    pub(super) fn group_of(&self, sample: usize, samples: usize) -> usize {
        (0..self.count()).find(|&group| self.block_of(group, samples).contains(&sample)).unwrap_or(0)
    }

    /// The vector of a group, on all of them. All ranks of all groups call it. Costs a vector's bytes through the host of each rank.
    ///
    /// # Errors
    /// What vectors can fail with; [`InferenceError::Comm`].
    pub(super) fn share<S: VectorSpace>(
        &self,
        space: &mut S,
        group: usize,
        mut own: S::Vector,
    ) -> Result<S::Vector, InferenceError> {
        if self.count() > 1 {
            let mut staged = space.stage(&own)?;
            self.across.broadcast(group, &mut staged.singles)?;
            self.across.broadcast(group, &mut staged.doubles)?;
            space.unstage(&staged, &mut own)?;
        }
        Ok(own)
    }

    /// The numbers of all samples, in order, from those of each group's block. All ranks call it.
    ///
    /// # Errors
    /// [`InferenceError::Comm`].
    pub(super) fn gather(&self, own: &[f64]) -> Result<Vec<f64>, InferenceError> {
        if self.count() == 1 {
            return Ok(own.to_vec());
        }
        Ok(self.across.all_gather_v(own)?.into_raw().0)
    }

    /// The sum of a number over all samples, in the order of the tree, from those of each group's block. All ranks call it.
    ///
    /// # Errors
    /// [`InferenceError::Comm`].
    pub(super) fn sum_numbers(&self, own: &[f64]) -> Result<f64, InferenceError> {
        Ok(tree_sum(&self.gather(own)?))
    }

    /// The sum over all `samples` (one at least) of the vectors that `sample` makes, which are like `like`, each group those of its block. All ranks call it.
    ///
    /// A group adds on its device, with one vector for each level of the tree. Of `g` groups each then sends its few sums in `g` parts, adds what it receives of
    /// its part, and sends that to all: 2 vectors' bytes each way for a rank of a group, whatever the number of groups, where the blocks are nodes of the tree.
    ///
    /// # Errors
    /// What `sample` fails with; [`InferenceError::Comm`].
    pub(super) fn sum<S: VectorSpace>(
        &self,
        space: &mut S,
        samples: usize,
        sample: &mut dyn FnMut(&mut S, usize) -> Result<S::Vector, InferenceError>,
        like: &S::Vector,
    ) -> Result<S::Vector, InferenceError> {
        let mut sums = Fold::default();
        for number in self.block(samples) {
            let one = sample(space, number)?;
            sums.push(Node::item(number as u64), one, |sum, one| space.axpby(1.0, &one, 1.0, sum))?;
        }
        if self.count() == 1 {
            let sum = sums.root(|sum, one| space.axpby(1.0, &one, 1.0, sum))?;
            return sum.map_or_else(|| space.zeros(like), Ok);
        }
        let staged = sums.into_values().iter().map(|sum| space.stage(sum)).collect::<Result<Vec<_>, _>>()?;
        // What this rank has of any vector tells how long parts are.
        let lengths = match staged.first() {
            Some(staged) => [staged.singles.len(), staged.doubles.len()],
            None => {
                let like = space.stage(like)?;
                [like.singles.len(), like.doubles.len()]
            }
        };
        let sum = Staged {
            singles: self.sum_parts(samples, lengths[0], staged.iter().map(|staged| &staged.singles[..]).collect())?,
            doubles: self.sum_parts(samples, lengths[1], staged.iter().map(|staged| &staged.doubles[..]).collect())?,
        };
        let mut out = space.like(like)?;
        space.unstage(&sum, &mut out)?;
        Ok(out)
    }

    /// The sum of arrays of `len` numbers, from the nodes of each group's block in order.
    fn sum_parts<T: bytemuck::Pod + std::ops::AddAssign>(
        &self,
        samples: usize,
        len: usize,
        own: Vec<&[T]>,
    ) -> Result<Vec<T>, InferenceError> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let groups = self.count();
        let part = |group: usize| {
            let range = split(len as u64, groups as u64, group as u64);
            range.start as usize..range.end as usize
        };
        let counts: Vec<u64> = (0..groups).map(|group| (part(group).len() * own.len()) as u64).collect();
        let mut parts = host_memory::reserve("sums of samples", len * own.len())?;
        (0..groups).for_each(|group| own.iter().for_each(|own| parts.extend_from_slice(&own[part(group)])));
        let (received, _) = self.across.all_to_all_v(&parts, &counts)?.into_raw();
        // What was received of each group's nodes, in the order of the groups.
        let own = part(self.index()).len();
        let add = |sum: &mut Vec<T>, one: Vec<T>| {
            sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
            Ok::<_, InferenceError>(())
        };
        let mut sums = Fold::default();
        let nodes = (0..groups).flat_map(|group| self.nodes_of(group, samples));
        for (at, node) in nodes.enumerate() {
            sums.push(node, received[at * own..(at + 1) * own].to_vec(), add)?;
        }
        let sum = sums.root(add)?.unwrap_or_default();
        Ok(self.across.all_gather_v(&sum)?.into_raw().0)
    }
}
