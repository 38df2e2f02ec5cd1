//! Scattering blocks of one rank over all.

use bytemuck::Pod;

use super::Result;
use super::call::{Call, Operation};
use super::communicator::{Communicator, from_bytes, to_bytes};
use super::gather::{AT_ONCE, SHORT_BLOCK};
use super::tree::Tree;
use crate::host_memory;

impl Communicator {
    /// Cuts the `data` of `root` into one equal block per rank and gives each rank its block.
    /// Collective; only the `data` of the root is read, other ranks may pass `None`. Its length is
    /// a multiple of the number of ranks.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Length`](super::CommError::Length),
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn scatter<T: Pod>(&self, root: usize, data: Option<&[T]>) -> Result<Vec<T>> {
        let blocks = self.valid_scatter(root, data, |data| {
            let what = "the length of the slice of scatter (a multiple of the ranks)";
            self.valid_blocks(what, data.len()).map(|block| vec![block as u64; self.size()])
        })?;
        let call = self.begin(Call::new(Operation::Scatter).root(root).of::<T>());
        self.scatter_blocks(&call, root, data.zip(blocks.as_deref()))
    }

    /// Cuts the slice of `root` into one block of `counts[rank]` elements per rank and gives each
    /// rank its block. Collective; only the argument of the root, (data, counts), is read, and
    /// other ranks may pass `None`.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Length`](super::CommError::Length),
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn scatter_v<T: Pod>(&self, root: usize, data: Option<(&[T], &[u64])>) -> Result<Vec<T>> {
        self.valid_scatter(root, data, |(data, counts)| self.valid_counts("scatter_v", data.len(), counts))?;
        let call = self.begin(Call::new(Operation::ScatterV).root(root).of::<T>());
        self.scatter_blocks(&call, root, data)
    }

    /// Returns what `valid` returns for the data at the root; `None` elsewhere.
    fn valid_scatter<D, R>(&self, root: usize, data: Option<D>, valid: impl Fn(D) -> Result<R>) -> Result<Option<R>> {
        self.valid_rank("the root of scatter", root)?;
        if self.rank() != root {
            return Ok(None);
        }
        self.valid_length("the number of slices given at the root of scatter", 1, u64::from(data.is_some()))?;
        data.map(valid).transpose()
    }

    /// Only the root knows the lengths, so counts go along a tree, and then short blocks; long ones
    /// go straight to their ranks.
    fn scatter_blocks<T: Pod>(&self, call: &Call, root: usize, data: Option<(&[T], &[u64])>) -> Result<Vec<T>> {
        let tree = Tree::new(self, root);
        let data = data.filter(|_| self.rank() == root);
        let mut counts = data.map_or(Vec::new(), |(_, counts)| counts.to_vec());
        if data.is_some() {
            counts.rotate_left(root); // the tree counts from the root on
        }
        let counts = self.scatter_tree(call, &tree, to_bytes(&counts)?, &vec![size_of::<u64>(); tree.below()])?;
        let counts = from_bytes::<u64>(tree.below(), &counts)?;
        let sizes = counts.iter().map(|&count| self.bytes::<T>(count)).collect::<Result<Vec<_>>>()?;
        let short: Vec<usize> = sizes.iter().map(|&bytes| if bytes <= SHORT_BLOCK { bytes } else { 0 }).collect();
        let (mut in_tree, mut mine) = (Vec::new(), None);
        let mut straight = Vec::new();
        if let Some((data, counts)) = data {
            let blocks = blocks(data, counts);
            for (v, (&short, &size)) in short.iter().zip(&sizes).enumerate() {
                let (to, block) = (tree.absolute(v), blocks[tree.absolute(v)]);
                in_tree.extend_from_slice(&bytemuck::cast_slice(block)[..short]);
                match v {
                    0 => mine = Some(host_memory::copy("data of this rank", block)?),
                    _ if short < size => straight.push((to, block)),
                    _ => {}
                }
            }
        }
        let held = self.scatter_tree(call, &tree, in_tree, &short)?;
        self.send_straight(call, &straight)?;
        match mine {
            Some(mine) => Ok(mine),
            None if short[0] < sizes[0] => {
                from_bytes(counts[0] as usize, &self.receive_part(call, root, sizes[0])?.wait()?)
            }
            None => from_bytes(counts[0] as usize, &held[..short[0]]),
        }
    }

    /// Sends long blocks to their ranks, a few at a time, since each is copied.
    fn send_straight<T: Pod>(&self, call: &Call, blocks: &[(usize, &[T])]) -> Result<()> {
        for some in blocks.chunks(AT_ONCE) {
            let sendings =
                some.iter().map(|&(to, block)| self.send_part(call, to, block)).collect::<Result<Vec<_>>>()?;
            sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))?;
        }
        Ok(())
    }
}

/// Returns the blocks of `data`, with the lengths `counts`.
fn blocks<'a, T>(data: &'a [T], counts: &[u64]) -> Vec<&'a [T]> {
    let mut rest = data;
    let next = |&count: &u64| {
        let (block, tail) = rest.split_at(count as usize);
        rest = tail;
        block
    };
    counts.iter().map(next).collect()
}
