//! Communicators of a part of the ranks.

use super::Result;
use super::call::{Call, Operation};
use super::communicator::{Attachment, Communicator};
use super::transport::Group;
use crate::parallel::locked;

impl Communicator {
    /// Creates a communicator of the ranks that pass the same color, ordered by `key`, then by rank
    /// here. Collective; a rank that passes `None` gets `None`.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn split(&self, color: Option<u32>, key: u64) -> Result<Option<Communicator>> {
        let call = self.begin(Call::new(Operation::Split));
        let context = self.core.transport.new_context();
        let mine = [u64::from(color.is_some()), u64::from(color.unwrap_or(0)), key, context];
        let mut requests = vec![0; mine.len() * self.size()];
        self.all_gather_blocks(&call, &mine, &mut requests)?;
        let requests: Vec<&[u64]> = requests.chunks_exact(mine.len()).collect();
        let group = color.map(|color| self.group(u64::from(color), &requests));
        let members = group.as_ref().map(|group| group.members.clone());
        let transport = self.core.transport.split(group)?;
        Ok(transport.map(|transport| {
            let split = Communicator::new(transport);
            let shares = members.as_ref().map_or(split.shares, |members| self.shares.among(members));
            let split = Communicator { max_piece: self.max_piece, shares, ..split };
            if let Some((inherited, members)) = self.attachment().zip(members) {
                let ranks = members.iter().map(|&rank| inherited.ranks[rank]).collect();
                *locked(&split.core.attachment) = Some(Attachment { ranks, ..inherited });
            }
            split
        }))
    }

    /// Returns this rank's part of a split. Each rank's request is: whether it has a color, the
    /// color, the key, and a number for a communicator; the new one gets the number of its first
    /// member.
    fn group(&self, color: u64, requests: &[&[u64]]) -> Group {
        let mut colors: Vec<u64> =
            requests.iter().filter(|request| request[0] == 1).map(|request| request[1]).collect();
        colors.sort_unstable();
        colors.dedup();
        let number = colors.partition_point(|&other| other < color);
        let mut members: Vec<usize> = (0..self.size()).filter(|&rank| requests[rank][..2] == [1, color]).collect();
        members.sort_by_key(|&rank| requests[rank][2]); // stable: equal keys stay in rank order
        let rank = members.iter().position(|&rank| rank == self.rank()).unwrap_or(0);
        Group { number, context: requests[members[0]][3], members, rank }
    }
}
