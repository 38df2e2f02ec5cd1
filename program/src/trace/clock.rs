//! Clocks of ranks in other processes.

use std::time::Instant;

use meshloom::comm::{CommError, Communicator};

use super::recording::time;

/// Messages to and fro. The fastest pair counts: it says most about the difference.
const ROUNDS: u32 = 16;

const TAG: u32 = 0;

/// Returns the nanoseconds to add to the time of this process for that of rank 0. Collective.
///
/// # Errors
/// [`CommError`] if another rank fails.
pub fn offset(comm: &Communicator) -> Result<i64, CommError> {
    let now = || time(Instant::now());
    if comm.rank() == 0 {
        for other in 1..comm.size() {
            for _ in 0..ROUNDS {
                comm.receive(other, TAG, 0)?.wait()?;
                comm.send(other, TAG, now().to_le_bytes().into())?.wait()?;
            }
        }
        return Ok(0);
    }
    let mut best = (i64::MAX, 0);
    for _ in 0..ROUNDS {
        let begin = now();
        comm.send(0, TAG, Vec::new())?.wait()?;
        let there = comm.receive(0, TAG, 8)?.wait()?;
        let end = now();
        let there = there.try_into().map_or(0, i64::from_le_bytes);
        best = best.min((end - begin, there - (begin + (end - begin) / 2)));
    }
    Ok(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_one_clock() {
        let offsets = meshloom::comm::run_threads(3, |comm| offset(&comm)).unwrap();
        // By half of the time that a message needs on a busy machine at most.
        assert!(offsets.iter().all(|offset| offset.abs() < 1_000_000_000), "{offsets:?}");
    }
}
