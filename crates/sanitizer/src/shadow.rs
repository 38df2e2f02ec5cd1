//! Accesses to a word of memory, and the order between them.
//!
//! Two accesses of which one writes are a race unless one invocation makes both, both are atomic,
//! or a barrier of their workgroup stands between them. What order the interpreter runs invocations
//! in makes no difference: it is the absence of order that is found.
//!
//! A write before a barrier is visible after it if the barrier is one for that memory
//! (`workgroupBarrier` or `storageBarrier`). A read before *any* barrier precedes the writes of
//! others after it: that needs no memory to be made visible, only that no access moves forward, and
//! no compiler moves accesses to writable memory across a barrier.

/// Kind of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Atomic,
}

/// An invocation at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The number of its workgroup plus one; 0 for no access.
    pub group: u32,
    pub lane: u32,
    /// Barriers for this memory that its workgroup has passed.
    pub epoch: u32,
    /// All barriers that it has passed.
    pub barriers: u32,
}

impl Who {
    /// Returns `true` if an access of this one is done before `later` makes another.
    fn is_before(self, kind: Kind, later: Who) -> bool {
        let passed = if kind == Kind::Read { self.barriers < later.barriers } else { self.epoch < later.epoch };
        self.group == 0 || (self.group == later.group && (self.lane == later.lane || passed))
    }

    /// Returns `true` if nothing orders a write of this one and a read of `reader`.
    pub fn races(self, kind: Kind, reader: Who) -> bool {
        !self.is_before(kind, reader) && !reader.is_before(Kind::Read, self)
    }
}

/// The last accesses to a word: enough of them to find a race with any that follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cell {
    write: Who,
    reads: [Who; 2],
    atomics: [Who; 2],
}

impl Cell {
    /// Returns `true` if anybody has written it.
    pub fn is_written(&self) -> bool {
        self.write.group != 0 || self.atomics[0].group != 0
    }

    /// Notes an access; gives one that nothing orders with it.
    pub fn access(&mut self, kind: Kind, who: Who) -> Option<(Kind, Who)> {
        let others =
            |kind: Kind, seen: &[Who]| seen.iter().find(|seen| !seen.is_before(kind, who)).map(|&seen| (kind, seen));
        let written = others(Kind::Write, &[self.write]);
        let read = || others(Kind::Read, &self.reads);
        let changed = || others(Kind::Atomic, &self.atomics);
        match kind {
            Kind::Read => {
                let race = written.or_else(changed);
                note(&mut self.reads, kind, who);
                race
            }
            Kind::Write => {
                let race = written.or_else(changed).or_else(read);
                self.write = who;
                race
            }
            Kind::Atomic => {
                let race = written.or_else(read);
                note(&mut self.atomics, kind, who);
                race
            }
        }
    }
}

/// Records an access, and one of another unordered invocation: a later access differs from at least
/// one of them.
fn note(seen: &mut [Who; 2], kind: Kind, who: Who) {
    let [first, second] = seen;
    if first.is_before(kind, who) {
        if second.is_before(kind, who) {
            *second = Who::default();
        }
        *first = who;
    } else {
        *second = who;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn who(group: u32, lane: u32, epoch: u32) -> Who {
        Who { group: group + 1, lane, epoch, barriers: epoch }
    }

    /// Behind barriers for other memory.
    const fn behind(group: u32, lane: u32, barriers: u32) -> Who {
        Who { group: group + 1, lane, epoch: 0, barriers }
    }

    #[test]
    fn accesses_race_unless_something_orders_them() {
        use Kind::{Atomic, Read, Write};
        for (accesses, races) in [
            (vec![(Write, who(0, 0, 0)), (Read, who(0, 0, 0)), (Write, who(0, 0, 0))], None),
            (vec![(Write, who(0, 0, 0)), (Read, who(0, 1, 0))], Some(1)),
            (vec![(Write, who(0, 0, 0)), (Read, who(0, 1, 1))], None),
            (vec![(Read, who(0, 0, 0)), (Write, who(0, 1, 0))], Some(1)),
            (vec![(Read, who(0, 0, 0)), (Write, who(0, 1, 1))], None),
            (vec![(Write, who(0, 0, 0)), (Write, who(0, 1, 0))], Some(1)),
            (vec![(Read, who(0, 0, 0)), (Read, who(0, 1, 0)), (Read, who(1, 0, 0))], None),
            // Of many who read, one is another than the one that writes.
            (vec![(Read, who(0, 0, 0)), (Read, who(0, 1, 0)), (Write, who(0, 0, 0))], Some(2)),
            (vec![(Read, who(0, 0, 0)), (Read, who(0, 1, 0)), (Write, who(0, 1, 0))], Some(2)),
            (vec![(Read, who(0, 0, 0)), (Read, who(0, 1, 0)), (Read, who(0, 1, 1)), (Write, who(0, 1, 1))], None),
            // No barrier orders two workgroups.
            (vec![(Read, who(0, 0, 0)), (Read, who(0, 0, 3)), (Write, who(1, 0, 9))], Some(2)),
            (vec![(Read, who(1, 0, 0)), (Read, who(0, 0, 0)), (Read, who(0, 0, 1)), (Write, who(0, 0, 1))], Some(3)),
            (vec![(Atomic, who(0, 0, 0)), (Atomic, who(0, 1, 0)), (Atomic, who(1, 1, 0))], None),
            (vec![(Atomic, who(0, 0, 0)), (Read, who(0, 1, 0))], Some(1)),
            (vec![(Atomic, who(0, 0, 0)), (Atomic, who(0, 1, 0)), (Read, who(0, 0, 0))], Some(2)),
            (vec![(Write, who(0, 0, 0)), (Atomic, who(0, 1, 0))], Some(1)),
            (vec![(Write, who(0, 0, 0)), (Atomic, who(0, 1, 1)), (Read, who(0, 0, 2))], None),
            // A barrier for other memory lets reads be done, and does not show what was written.
            (vec![(Read, behind(0, 0, 0)), (Write, behind(0, 1, 1))], None),
            (vec![(Write, behind(0, 0, 0)), (Read, behind(0, 1, 1))], Some(1)),
            (vec![(Write, behind(0, 0, 0)), (Write, behind(0, 1, 1))], Some(1)),
            (vec![(Read, behind(0, 0, 0)), (Read, behind(0, 1, 1)), (Write, behind(0, 0, 1))], Some(2)),
        ] {
            let mut cell = Cell::default();
            let found = accesses.iter().position(|&(kind, who)| cell.access(kind, who).is_some());
            assert_eq!(found, races, "{accesses:?}");
        }
    }
}
