//! Scattering blocks of one rank over all.

use bytemuck::Pod;

use super::Result;
use super::call::{Call, Operation};
use super::communicator::{Communicator, from_bytes};

impl Communicator {
    /// Cuts the `data` of `root` into one equal block per rank and gives each rank its block. Collective; only the `data`
    /// of the root is read, other ranks may pass `None`. Its length is a multiple of the number of ranks.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Length`](super::CommError::Length),
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn scatter<T: Pod>(&self, root: usize, data: Option<&[T]>) -> Result<Vec<T>> {
        let blocks = self.valid_scatter(root, data, |data| {
            let what = "the length of the slice of scatter (a multiple of the ranks)";
            self.valid_blocks(what, data.len()).map(|block| vec![block as u64; self.size()])
        })?;
        let call = self.begin(Call::new(Operation::Scatter).root(root).of::<T>());
        self.scatter_blocks(&call, root, data.zip(blocks.as_deref()))
    }

    /// Cuts the slice of `root` into one block of `counts[rank]` elements per rank and gives each rank its block.
    /// Collective; only what the root passes, (data, counts), is read, other ranks may pass `None`.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Length`](super::CommError::Length),
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn scatter_v<T: Pod>(&self, root: usize, data: Option<(&[T], &[u64])>) -> Result<Vec<T>> {
        self.valid_scatter(root, data, |(data, counts)| self.valid_counts("scatter_v", data.len(), counts))?;
        let call = self.begin(Call::new(Operation::ScatterV).root(root).of::<T>());
        self.scatter_blocks(&call, root, data)
    }

    /// What `valid` returns for the data at the root; `None` elsewhere.
    fn valid_scatter<D, R>(&self, root: usize, data: Option<D>, valid: impl Fn(D) -> Result<R>) -> Result<Option<R>> {
        self.valid_rank("the root of scatter", root)?;
        if self.rank() != root {
            return Ok(None);
        }
        self.valid_length("the number of slices given at the root of scatter", 1, u64::from(data.is_some()))?;
        data.map(valid).transpose()
    }

    /// Only the root knows the lengths, so each block follows its count.
    fn scatter_blocks<T: Pod>(&self, call: &Call, root: usize, data: Option<(&[T], &[u64])>) -> Result<Vec<T>> {
        let Some((mut rest, counts)) = data.filter(|_| self.rank() == root) else {
            let count = from_bytes::<u64>(1, &self.receive_part(call, root, size_of::<u64>())?.wait()?)[0];
            let bytes = self.receive_part(call, root, self.bytes::<T>(count)?)?.wait()?;
            return Ok(from_bytes(count as usize, &bytes));
        };
        let mut mine = Vec::new();
        let mut sendings = Vec::new();
        for (rank, &count) in counts.iter().enumerate() {
            let (block, tail) = rest.split_at(count as usize);
            rest = tail;
            if rank == root {
                mine = block.to_vec();
            } else {
                sendings.push(self.send_part(call, rank, &[count])?);
                sendings.push(self.send_part(call, rank, block)?);
            }
        }
        sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))?;
        Ok(mine)
    }
}
