//! A collective check that all ranks have the same value.

use bytemuck::Pod;

use super::{Communicator, Result};

impl Communicator {
    /// The first rank whose `value` differs in its bits from that of rank 0; `None` if all agree. Collective; the result is
    /// the same on all ranks. To be called before work that would hang or mix data up if the ranks' values differed.
    ///
    /// ```
    /// use meshloom::comm::run_threads;
    ///
    /// let found = run_threads(3, |comm| comm.first_to_differ([0.5_f32, 1.0, 0.5][comm.rank()]))?;
    /// assert_eq!(found, [Some(1); 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn first_to_differ<T: Pod>(&self, value: T) -> Result<Option<usize>> {
        let all = self.all_gather(&[value])?;
        let bytes = |value: &T| bytemuck::bytes_of(value).to_vec();
        Ok(all.iter().position(|other| bytes(other) != bytes(&all[0])))
    }
}
