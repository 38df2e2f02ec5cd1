//! Groups of ranks: each holds whole vectors, cut over its ranks, and a block of the samples.

use std::ops::Range;

use super::error::{InferenceError, Result};
use super::vector_space::{Staged, VectorSpace};
use crate::comm::Communicator;
use crate::map::tree::{Fold, Node};
use crate::map::{Deal, sum_over_ranks};

/// The groups that share the samples of a fit, from the view of one rank.
///
/// Of `n` ranks in `g` groups, rank `r` is rank `r % (n / g)` of group `r / (n / g)`. A group draws
/// its samples alone. Sums over samples follow a tree over the numbers of samples, so that results
/// have the same bits for every number of groups.
#[derive(Clone, Debug)]
pub struct SampleGroups {
    /// All ranks, group by group.
    all: Communicator,
    /// The ranks of the same place in all groups.
    across: Communicator,
}

impl SampleGroups {
    /// Creates one group of all ranks of `comm`.
    #[must_use]
    pub fn one(comm: &Communicator) -> Self {
        SampleGroups { all: comm.clone(), across: Communicator::solo() }
    }

    /// Splits the ranks of `comm` into groups, and returns the communicator of this rank's group.
    /// Its shares are [`Shares::of_groups`](crate::grid::Shares::of_groups). Collective.
    ///
    /// # Errors
    /// - [`InferenceError::Groups`] if the groups would have different numbers of ranks.
    /// - [`InferenceError::Comm`].
    pub fn split(comm: &Communicator, groups: usize) -> Result<(Self, Communicator)> {
        let (rank, ranks) = (comm.rank(), comm.size());
        if groups == 0 || !ranks.is_multiple_of(groups) {
            let why = "each group has the same number of ranks; give a number of groups that divides the ranks";
            return Err(InferenceError::Groups { groups, ranks, why: why.into() });
        }
        let each = ranks / groups;
        let own = comm.split(Some((rank / each) as u32), rank as u64)?;
        let across = comm.split(Some((rank % each) as u32), rank as u64)?;
        let (Some(own), Some(across)) = (own, across) else {
            return Err(InferenceError::Groups { groups, ranks, why: "a rank has no part in the split".into() });
        };
        // Vectors of groups are sent between ranks of the same place, which hold equal parts.
        let own = own.with_shares(comm.shares().of_groups(groups))?;
        Ok((SampleGroups { all: comm.clone(), across }, own))
    }

    /// Returns all ranks of all groups.
    #[must_use]
    pub fn all(&self) -> &Communicator {
        &self.all
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn count(&self) -> usize {
        self.across.size()
    }

    /// Returns the number of this rank's group.
    #[must_use]
    pub fn index(&self) -> usize {
        self.across.rank()
    }

    /// Returns the number of this rank in its group.
    pub(super) fn place(&self) -> usize {
        self.all.rank() % (self.all.size() / self.count())
    }

    /// Returns this group's block of `samples`; blocks differ by one at most.
    #[must_use]
    pub fn block(&self, samples: usize) -> Range<usize> {
        self.block_of(self.index(), samples)
    }

    fn block_of(&self, group: usize, samples: usize) -> Range<usize> {
        let range = self.deal(samples).block(group);
        range.start as usize..range.end as usize
    }

    /// Returns the distribution of samples over groups, which have equal numbers whatever the
    /// shares of their ranks.
    fn deal(&self, samples: usize) -> Deal {
        Deal { items: samples as u64, shares: self.count().into() }
    }

    /// Returns the number of groups without a sample.
    #[must_use]
    pub fn idle(&self, samples: usize) -> usize {
        self.count().saturating_sub(samples)
    }

    /// Returns the group of a sample.
    pub(super) fn group_of(&self, sample: usize, samples: usize) -> usize {
        (0..self.count()).find(|&group| self.block_of(group, samples).contains(&sample)).unwrap_or(0)
    }

    /// Sends the vector of a group to all groups, through the host. Collective over all groups.
    pub(super) fn share<S: VectorSpace>(&self, space: &mut S, group: usize, mut own: S::Vector) -> Result<S::Vector> {
        if self.count() > 1 {
            let mut staged = space.stage(&own)?;
            self.across.broadcast(group, &mut staged.singles)?;
            self.across.broadcast(group, &mut staged.doubles)?;
            space.unstage(&staged, &mut own)?;
        }
        Ok(own)
    }

    /// Replaces numbers by those of the first group. Collective over all groups.
    pub(super) fn share_numbers(&self, numbers: &mut [f64]) -> Result<()> {
        if self.count() > 1 {
            self.across.broadcast(0, numbers)?;
        }
        Ok(())
    }

    /// Returns the numbers of all samples in order, from those of each group's block. Collective
    /// over all groups.
    pub(super) fn gather(&self, own: &[f64]) -> Result<Vec<f64>> {
        if self.count() == 1 {
            return Ok(own.to_vec());
        }
        Ok(self.across.all_gather_v(own)?.into_raw().0)
    }

    /// Returns the sum of the vectors of all `samples`, of which there is one at least. Collective
    /// over all groups.
    ///
    /// A group adds on its device and holds one vector for each level of the tree. Each of `g`
    /// groups then sends its sums in `g` parts, adds what it receives of its part, and sends that
    /// to all.
    pub(super) fn sum<S: VectorSpace>(
        &self,
        space: &mut S,
        samples: usize,
        sample: &mut dyn FnMut(&mut S, usize) -> Result<S::Vector>,
        like: &S::Vector,
    ) -> Result<S::Vector> {
        let mut one = |space: &mut S, number: usize| Ok((Node::item(number as u64), sample(space, number)?));
        self.sum_of_nodes(space, samples, &mut one, like)
    }

    /// Same as [`sum`](Self::sum), where `summand` returns the sum of a node of the tree that begins
    /// with a sample.
    pub(super) fn sum_of_nodes<S: VectorSpace>(
        &self,
        space: &mut S,
        samples: usize,
        summand: &mut dyn FnMut(&mut S, usize) -> Result<(Node, S::Vector)>,
        like: &S::Vector,
    ) -> Result<S::Vector> {
        let mut sums = Fold::default();
        let Range { mut start, end } = self.block(samples);
        while start < end {
            let (node, one) = summand(space, start)?;
            sums.push(node, one, |sum, one| space.axpby(1.0, &one, 1.0, sum))?;
            start += 1 << node.level;
        }
        if self.count() == 1 {
            let sum = sums.root(|sum, one| space.axpby(1.0, &one, 1.0, sum))?;
            return sum.map_or_else(|| space.zeros(like), Ok);
        }
        let staged = sums.into_values().iter().map(|sum| space.stage(sum)).collect::<Result<Vec<_>, _>>()?;
        // A group without samples takes the lengths from `like`.
        let lengths = match staged.first() {
            Some(staged) => [staged.singles.len(), staged.doubles.len()],
            None => {
                let like = space.stage(like)?;
                [like.singles.len(), like.doubles.len()]
            }
        };
        let singles: Vec<&[f32]> = staged.iter().map(|staged| &staged.singles[..]).collect();
        let doubles: Vec<&[f64]> = staged.iter().map(|staged| &staged.doubles[..]).collect();
        let sum = Staged {
            singles: sum_over_ranks(&self.across, self.deal(samples), lengths[0], &singles)?,
            doubles: sum_over_ranks(&self.across, self.deal(samples), lengths[1], &doubles)?,
        };
        let mut out = space.like(like)?;
        space.unstage(&sum, &mut out)?;
        Ok(out)
    }
}
