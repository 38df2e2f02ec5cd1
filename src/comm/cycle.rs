//! Ranks that wait for each other.
//!
//! A rank that waits for long follows the chain of waits: whom it waits for, whom that rank waits
//! for, and so on. A rank that does not block ends the chain. A chain that comes back to one of its
//! ranks is a cycle, and an error if
//!
//! - its ranks are in different operations. In one operation ranks wait for each other in many
//!   ways, and it ends when all are there. Ranks that call the same operations in the same order
//!   never form a cycle of different operations: each waits for a rank that has not come farther
//!   than itself, so all ranks of a cycle are in one operation.
//! - it stays the same for [`LASTS`], and each of its ranks has looked for its message often enough
//!   meanwhile: a message that was on its way has arrived by then. The sender of one that takes
//!   longer stays in the operation, or answers that it is still sending.
//!
//! Each cycle has one rank that finds it: the others stop where the chain comes to that rank. It is
//! the first in a random order of ranks, so that chains have log(ranks) steps on average, whatever
//! ranks wait for each other. Of 1000 ranks that wait in a line for a slow one each asks some 7
//! others a second, in queries and answers of 504 bytes, and the first in the order once up to 999:
//! a chain that has come to the slow rank stays there until that rank waits itself and answers. A
//! chain takes 136 bytes for each step.

use std::time::{Duration, Instant};

use super::{BlockedRank, CommError, Wait};

/// Time that a cycle lasts before it is an error. A mismatch that has led to it is found earlier,
/// and its error says more.
const LASTS: Duration = Duration::from_secs(3);

/// Ranks that the error names at most.
pub(super) const NAMED: usize = 8;

/// Waits, each for the rank of the next one.
#[derive(Debug)]
pub(super) struct Chain(Vec<Wait>);

/// A step along a chain.
#[derive(Debug)]
pub(super) enum Step {
    /// The chain does not lead to a cycle, or another rank finds it.
    Ends,
    /// The rank that this wait is for decides how it goes on.
    Continues(Wait),
    /// The chain has come back.
    Closes(Cycle),
}

impl Chain {
    /// Begins a chain with a wait of this rank.
    pub fn new(own: Wait) -> Chain {
        Chain(vec![own])
    }

    /// Continues with the wait of the rank that the last one waits for, if that rank blocks.
    pub fn step(&mut self, next: Option<Wait>) -> Step {
        let Some(next) = next.filter(Wait::is_blocking) else { return Step::Ends };
        if let Some(at) = self.0.iter().position(|wait| wait.is_same(&next)) {
            let cycle = Cycle(self.0.split_off(at));
            return if cycle.is_of_one_operation() { Step::Ends } else { Step::Closes(cycle) };
        }
        if order(next.rank) < order(self.0[0].rank) {
            return Step::Ends;
        }
        self.0.push(next);
        Step::Continues(next)
    }
}

/// Returns the place of a rank in an order that is random to any pattern of communication.
fn order(rank: u32) -> (u32, u32) {
    let mixed = (rank ^ rank >> 16).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    (mixed ^ mixed >> 16, rank)
}

/// Ranks each of which waits for the next, and the last for the first.
#[derive(Clone, Debug)]
pub(super) struct Cycle(Vec<Wait>);

impl Cycle {
    fn is_of_one_operation(&self) -> bool {
        self.0.iter().all(|wait| wait.is_in_same_operation(&self.0[0]))
    }

    /// Returns `true` if it is the cycle `before`, in which each rank has looked for its message
    /// `checks` times since.
    fn continues(&self, before: &Cycle, checks: u64) -> bool {
        let continues = |(now, before): (&Wait, &Wait)| now.is_same(before) && now.checks >= before.checks + checks;
        self.0.len() == before.0.len() && self.0.iter().zip(&before.0).all(continues)
    }

    /// Returns the waits that the error names, beginning with the lowest rank, and the number of
    /// the others.
    pub fn named(&self) -> (Vec<Wait>, usize) {
        let mut waits = self.0.clone();
        let first = (0..waits.len()).min_by_key(|&at| waits[at].rank).unwrap_or(0);
        waits.rotate_left(first);
        let others = waits.len().saturating_sub(NAMED);
        waits.truncate(NAMED);
        (waits, others)
    }
}

/// Returns the error of a cycle of which these waits are named, and of others.
pub(super) fn deadlock(named: &[Wait], others: usize) -> CommError {
    let blocked = |wait: &Wait| BlockedRank {
        rank: wait.rank as usize,
        operation: wait.call.describe(),
        awaited: wait.peer as usize,
    };
    CommError::Deadlock { ranks: named.iter().map(blocked).collect(), others }
}

/// A cycle that has been seen.
struct Seen {
    cycle: Cycle,
    since: Instant,
}

/// Cycles that a wait has seen.
#[derive(Default)]
pub(super) struct Suspicion(Option<Seen>);

impl Suspicion {
    /// Adds a cycle at the end of a chain, or none; returns it if it has lasted long enough, with
    /// `checks` of each rank since it was seen first.
    pub fn add(&mut self, cycle: Option<Cycle>, checks: u64) -> Option<Cycle> {
        let Some(cycle) = cycle else {
            self.0 = None;
            return None;
        };
        match &self.0 {
            Some(seen) if cycle.continues(&seen.cycle, 0) => {
                let lasts = seen.since.elapsed() > LASTS && cycle.continues(&seen.cycle, checks);
                lasts.then_some(cycle)
            }
            _ => {
                self.0 = Some(Seen { cycle, since: Instant::now() });
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::{Call, Operation};
    use super::super::waits::Side;
    use super::*;

    /// Returns the `number`-th wait of a rank, in the collective `sequence`.
    fn wait(rank: usize, peer: usize, number: u64, sequence: u64) -> Wait {
        let call = Call::new(Operation::Barrier).begun(sequence, 8);
        Wait { number, call, ..Wait::new(rank, peer, Side { context: 0, tag: 7, sends: false }) }
    }

    /// Follows the chain of rank `from`, of ranks with these waits; returns the cycle and the
    /// number of ranks that were asked.
    fn follow(waits: &[Option<Wait>], from: usize) -> (Option<Cycle>, usize) {
        let mut wait = waits[from].expect("it waits");
        let (mut chain, mut asked) = (Chain::new(wait), 0);
        loop {
            asked += 1;
            match chain.step(waits[wait.peer as usize]) {
                Step::Ends => return (None, asked),
                Step::Continues(next) => wait = next,
                Step::Closes(cycle) => return (Some(cycle), asked),
            }
        }
    }

    #[test]
    fn one_rank_of_a_cycle_finds_it_and_no_rank_one_of_one_operation() {
        for size in [2, 3, 5, 100] {
            let ring = |sequence: fn(usize) -> u64| -> Vec<Option<Wait>> {
                (0..size).map(|rank| Some(wait(rank, (rank + 1) % size, 1, sequence(rank)))).collect()
            };
            let finders = |waits: &[Option<Wait>]| (0..size).filter(|&rank| follow(waits, rank).0.is_some()).count();
            assert_eq!(finders(&ring(|rank| rank as u64 % 2)), 1);
            assert_eq!(finders(&ring(|_| 4)), 0, "all will be there");
        }
        // A rank outside of the cycle of 1 and 2, and ranks that end the chain.
        let waits = [Some(wait(0, 1, 1, 0)), Some(wait(1, 2, 1, 0)), Some(wait(2, 1, 1, 1)), None];
        let finders: Vec<usize> = (0..3).filter(|&rank| follow(&waits, rank).0.is_some()).collect();
        assert!(finders.contains(&1) || finders.contains(&2), "{finders:?}");
        assert!(follow(&[Some(wait(0, 1, 1, 0)), None], 0).0.is_none());
    }

    /// All of 1000 ranks wait in a line, up or down, for one that does not block.
    #[test]
    fn chains_have_few_steps_whatever_rank_is_slow() {
        for step in [1, 999, 337] {
            let line: Vec<_> =
                (0..1000).map(|rank| (rank != 500).then(|| wait(rank, (rank + step) % 1000, 1, rank as u64))).collect();
            let asked: Vec<usize> = (0..1000).filter(|&rank| rank != 500).map(|rank| follow(&line, rank).1).collect();
            // The mean of random orders is the harmonic number of 1000, 7.5; three times that is
            // beyond all chance.
            assert!(asked.iter().sum::<usize>() < 23 * 1000, "{}", asked.iter().sum::<usize>());
        }
    }

    #[test]
    fn a_cycle_lasts_while_its_waits_do_and_its_ranks_look() {
        let cycle = |numbers: [u64; 2], checks| {
            let one = |rank, number| Wait { checks, ..wait(rank, 1 - rank, number, rank as u64) };
            Cycle(vec![one(0, numbers[0]), one(1, numbers[1])])
        };
        assert!(cycle([1, 1], 9).continues(&cycle([1, 1], 4), 5));
        assert!(!cycle([1, 1], 9).continues(&cycle([1, 1], 4), 6), "its ranks have not looked");
        assert!(!cycle([1, 2], 9).continues(&cycle([1, 1], 4), 5), "a rank has gone on");
    }

    #[test]
    fn the_error_begins_with_the_lowest_rank_and_names_some() {
        let waits = |first: usize| (0..12).map(|i| wait((i + first) % 12, (i + first + 1) % 12, 1, 3)).collect();
        let texts = [0, 5, 11].map(|first| {
            let (named, others) = Cycle(waits(first)).named();
            deadlock(&named, others).to_string()
        });
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
        let begin = "ranks wait for each other: rank 0 waits for rank 1 in barrier(largest message 8) as collective 3, \
                     rank 1 waits";
        assert!(texts[0].starts_with(begin), "{}", texts[0]);
        assert!(texts[0].contains("rank 7 waits for rank 8") && !texts[0].contains("rank 8 waits"), "{}", texts[0]);
        assert!(texts[0].ends_with(", and 4 more ranks; call the same operations in the same order on all ranks"));
    }
}
