//! Whether all ranks are about to do the same.

use bytemuck::Pod;

use super::{Communicator, Result};

impl Communicator {
    /// The first rank whose `value` is another than that of rank 0, compared by its bits; the same answer on all ranks, which all
    /// call it. It belongs before what would otherwise hang or mix data up.
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
    /// Those of the ranks.
    pub fn first_to_differ<T: Pod>(&self, value: T) -> Result<Option<usize>> {
        let all = self.all_gather(&[value])?;
        let bytes = |value: &T| bytemuck::bytes_of(value).to_vec();
        Ok(all.iter().position(|other| bytes(other) != bytes(&all[0])))
    }
}
