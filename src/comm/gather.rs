//! Gathering blocks of all ranks on one or on all, and scattering blocks of one rank over all.

use std::collections::VecDeque;

use bytemuck::Pod;

use super::collective::{Part, ReceivingPart};
use super::{Call, Communicator, Operation, Result, Tree, from_bytes, received, to_bytes};
use crate::host_memory;

/// Bytes of the longest blocks that travel along trees. At the rank that has half of all ranks
/// below it they take so much times that.
pub(super) const SHORT_BLOCK: usize = 1 << 10;

/// Long messages that a rank asks for or sends at once, so that they do not all need memory beside
/// their place in the result.
pub(super) const AT_ONCE: usize = 8;

/// Receives in order, a few at a time.
struct Window<I> {
    rest: I,
    under_way: VecDeque<ReceivingPart>,
}

impl<I: Iterator<Item = (usize, usize)>> Window<I> {
    /// Creates the sizes of messages in bytes from each of these ranks.
    fn new(rest: I) -> Self {
        Window { rest, under_way: VecDeque::new() }
    }

    /// Returns the next message; `None` after the last.
    fn next(&mut self, comm: &Communicator, call: &Call) -> Result<Option<Part>> {
        while self.under_way.len() < AT_ONCE
            && let Some((from, bytes)) = self.rest.next()
        {
            self.under_way.push_back(comm.receive_part(call, from, bytes)?);
        }
        self.under_way.pop_front().map(ReceivingPart::wait).transpose()
    }
}

/// One part per rank, of any lengths, one after another in rank order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatheredParts<T> {
    data: Vec<T>,
    counts: Vec<u64>,
}

impl<T> GatheredParts<T> {
    /// `counts` must sum to the length of `data`.
    pub(super) fn new(data: Vec<T>, counts: Vec<u64>) -> GatheredParts<T> {
        GatheredParts { data, counts }
    }

    /// Returns all elements, in rank order.
    #[must_use]
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// Returns the number of elements of each rank.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the part of a rank; `None` beyond the last rank.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<&[T]> {
        self.iter().nth(rank)
    }

    /// Returns the parts, in rank order.
    pub fn iter(&self) -> impl Iterator<Item = &[T]> {
        self.counts.iter().scan(&self.data[..], |rest, &count| {
            let (part, tail) = rest.split_at(count as usize);
            *rest = tail;
            Some(part)
        })
    }

    /// Returns the elements and the counts.
    #[must_use]
    pub fn into_raw(self) -> (Vec<T>, Vec<u64>) {
        (self.data, self.counts)
    }
}

impl Communicator {
    /// Gives every rank the slices of all ranks, in rank order. Collective; the length is equal on
    /// all ranks.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn all_gather<T: Pod>(&self, mine: &[T]) -> Result<Vec<T>> {
        let call = self.begin(Call::new(Operation::AllGather).of::<T>().count(mine.len()));
        let mut all = received(mine.len() * self.size())?;
        self.all_gather_blocks(&call, mine, &mut all).map(|()| all)
    }

    /// [`all_gather`](Communicator::all_gather) into `all`, which has room for the slices of all:
    /// in a loop it spares new memory, whose pages cost more than long messages. Ranks may mix the
    /// two. After an error it holds anything.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), and as [`all_gather`](Communicator::all_gather).
    pub fn all_gather_into<T: Pod>(&self, mine: &[T], all: &mut [T]) -> Result<()> {
        self.valid_length("the result of all_gather_into", (mine.len() * self.size()) as u64, all.len() as u64)?;
        let call = self.begin(Call::new(Operation::AllGather).of::<T>().count(mine.len()));
        self.all_gather_blocks(&call, mine, all)
    }

    /// Gives every rank the slices of all ranks, of any lengths. Collective.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn all_gather_v<T: Pod>(&self, mine: &[T]) -> Result<GatheredParts<T>> {
        let call = self.begin(Call::new(Operation::AllGatherV).of::<T>());
        let mut counts = vec![0; self.size()];
        self.all_gather_blocks(&call, &[mine.len() as u64], &mut counts)?;
        let sizes = counts.iter().map(|&count| self.bytes::<T>(count)).collect::<Result<Vec<_>>>()?;
        let bytes = self.all_gather_bytes(&call, mine, &sizes)?;
        Ok(GatheredParts::new(from_bytes(counts.iter().sum::<u64>() as usize, &bytes)?, counts))
    }

    /// Gives `root` the slices of all ranks, in rank order, and the others `None`. Collective; the
    /// length is equal on all ranks.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or errors of the backend.
    pub fn gather<T: Pod>(&self, root: usize, mine: &[T]) -> Result<Option<Vec<T>>> {
        let at_root = self.rank() == root;
        let mut all = received(if at_root { mine.len() * self.size() } else { 0 })?;
        self.gather_into(root, mine, &mut all).map(|()| at_root.then_some(all))
    }

    /// [`gather`](Communicator::gather) into `all`, which at `root` has room for the slices of all
    /// and is not touched elsewhere: in a loop it spares new memory, whose pages cost more than
    /// long messages. Ranks may mix the two. After an error it holds anything.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), and as [`gather`](Communicator::gather).
    pub fn gather_into<T: Pod>(&self, root: usize, mine: &[T], all: &mut [T]) -> Result<()> {
        self.valid_rank("the root of gather", root)?;
        if self.rank() == root {
            self.valid_length("the result of gather_into", (mine.len() * self.size()) as u64, all.len() as u64)?;
        }
        let call = self.begin(Call::new(Operation::Gather).root(root).of::<T>().count(mine.len()));
        if let Some(native) = self.native(size_of_val(mine)) {
            self.meet(&call)?;
            return native.gather(root, bytemuck::cast_slice(mine), bytemuck::cast_slice_mut(all));
        }
        if mine.is_empty() {
            return self.meet(&call);
        }
        let counts = vec![mine.len() as u64; Tree::new(self, root).below()];
        self.gather_blocks(&call, root, mine, &counts, all)
    }

    /// Gives `root` the slices of all ranks, of any lengths, and the others `None`. Collective.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or errors of the backend.
    pub fn gather_v<T: Pod>(&self, root: usize, mine: &[T]) -> Result<Option<GatheredParts<T>>> {
        self.valid_rank("the root of gather_v", root)?;
        let call = self.begin(Call::new(Operation::GatherV).root(root).of::<T>());
        let tree = Tree::new(self, root);
        let count = mine.len() as u64;
        let counts =
            self.gather_tree(&call, &tree, bytemuck::bytes_of(&count), &vec![size_of::<u64>(); tree.below()])?;
        let mut counts = from_bytes::<u64>(tree.below(), &counts)?;
        let at_root = self.rank() == root;
        let count = if at_root { counts.iter().sum() } else { 0 };
        self.bytes::<T>(count)?;
        let mut all = received(count as usize)?;
        self.gather_blocks(&call, root, mine, &counts, &mut all)?;
        Ok(at_root.then(|| {
            // The tree counts from the root on.
            counts.rotate_right(root);
            GatheredParts::new(all, counts)
        }))
    }

    /// Brings the blocks of all ranks to `root`, where `all` gets them in the order of ranks: short
    /// ones along a tree, long ones straight. `counts` are the elements of this rank and those
    /// below it in the tree.
    fn gather_blocks<T: Pod>(&self, call: &Call, root: usize, mine: &[T], counts: &[u64], all: &mut [T]) -> Result<()> {
        let tree = Tree::new(self, root);
        let sizes = counts.iter().map(|&count| self.bytes::<T>(count)).collect::<Result<Vec<_>>>()?;
        let in_tree = |bytes: usize| if bytes <= SHORT_BLOCK { bytes } else { 0 };
        let short: Vec<usize> = sizes.iter().map(|&bytes| in_tree(bytes)).collect();
        let own: &[u8] = bytemuck::cast_slice(mine);
        let held = self.gather_tree(call, &tree, &own[..short[0]], &short)?;
        if self.rank() != root {
            if short[0] < own.len() {
                self.send_part(call, root, mine)?.wait()?;
            }
            return Ok(());
        }
        let long = (1..self.size()).filter(|&v| short[v] < sizes[v]);
        let mut receivings = Window::new(long.map(|v| (tree.absolute(v), sizes[v])));
        // The tree counts from the root on.
        let all: &mut [u8] = bytemuck::cast_slice_mut(all);
        let wrapped: usize = sizes[self.size() - root..].iter().sum();
        let (mut read, mut at) = (0, wrapped);
        for (v, (&size, &short)) in sizes.iter().zip(&short).enumerate() {
            if tree.absolute(v) == 0 {
                at = 0;
            }
            let place = &mut all[at..at + size];
            match v {
                0 => place.copy_from_slice(own),
                _ if short < size => receivings.next(self, call)?.iter().for_each(|part| place.copy_from_slice(part)),
                _ => place.copy_from_slice(&held[read..read + short]),
            }
            (read, at) = (read + short, at + size);
        }
        Ok(())
    }

    /// `all_gather` as part of any collective, into `all`, which has the length of all blocks.
    pub(super) fn all_gather_blocks<T: Pod>(&self, call: &Call, mine: &[T], all: &mut [T]) -> Result<()> {
        let all: &mut [u8] = bytemuck::cast_slice_mut(all);
        if let Some(native) = self.native(size_of_val(mine)) {
            self.meet(call)?;
            return native.all_gather(bytemuck::cast_slice(mine), all);
        }
        all.copy_from_slice(&self.all_gather_bytes(call, mine, &vec![size_of_val(mine); self.size()])?);
        Ok(())
    }

    /// Each round doubles the blocks held (the algorithm of Bruck et al.): log2(size) rounds, and
    /// no byte is received twice. `sizes` are the bytes of the block of each rank.
    fn all_gather_bytes<T: Pod>(&self, call: &Call, mine: &[T], sizes: &[usize]) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank(), self.size());
        let bytes_of =
            |first: usize, blocks: usize| (first..first + blocks).map(|block| sizes[block % size]).sum::<usize>();
        let mut held = to_bytes(mine)?; // the blocks of the ranks from `rank` on, cyclically
        let mut blocks = 1;
        while blocks < size {
            let moved = blocks.min(size - blocks);
            let (to, from) = ((rank + size - blocks) % size, (rank + blocks) % size);
            let receiving = self.receive_part(call, from, bytes_of(from, moved))?;
            let sending = self.send_part(call, to, &held[..bytes_of(rank, moved)])?;
            let next = receiving.wait()?;
            host_memory::grow("data from other ranks", &mut held, next.len())?;
            held.extend_from_slice(&next);
            sending.wait()?;
            blocks += moved;
        }
        held.rotate_left(bytes_of(rank, size - rank));
        Ok(held)
    }
}

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
