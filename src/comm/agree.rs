//! Collective checks: that all ranks have the same value, and that none has a fault.

use bytemuck::Pod;

use super::{Communicator, Op, Result};

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

    /// What the first rank with a fault says of it, after its number where there are several ranks; `None` if no rank has one. Collective; the result is the same on
    /// all ranks. To be called with what is wrong with a rank's own part, before work that would wait for a rank that leaves with an error of its own.
    ///
    /// ```
    /// use meshloom::comm::run_threads;
    ///
    /// let found = run_threads(2, |comm| comm.first_fault((comm.rank() == 1).then_some("there is a hole")))?;
    /// assert_eq!(found, vec![Some("rank 1: there is a hole".to_string()); 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`first_to_differ`](Self::first_to_differ).
    pub fn first_fault(&self, fault: Option<&str>) -> Result<Option<String>> {
        if self.size() == 1 {
            return Ok(fault.map(String::from));
        }
        let none = self.size() as u64;
        let mut first = [if fault.is_some() { self.rank() as u64 } else { none }];
        self.all_reduce(&mut first, Op::Min)?;
        if first[0] == none {
            return Ok(None);
        }
        let root = first[0] as usize;
        let mut text = fault.filter(|_| self.rank() == root).unwrap_or_default().as_bytes().to_vec();
        let mut len = [text.len() as u64];
        self.broadcast(root, &mut len)?;
        text.resize(len[0] as usize, 0);
        self.broadcast(root, &mut text)?;
        Ok(Some(format!("rank {root}: {}", String::from_utf8_lossy(&text))))
    }
}
