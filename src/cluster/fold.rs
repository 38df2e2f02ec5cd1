//! The ranks that the model follows, and the messages between them.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Machine, Start, Step};
use crate::grid::{Chunking, Grid, Transfer, chunks, peers};

/// Ranks that are all followed; of more, only those of one node.
pub(super) const EXACT: usize = 16;

/// Ranks that are all followed if their shares are unequal, or if the lines of their grid do not
/// divide into nodes.
const EXACT_OF_UNEVEN: usize = 64;

/// Chunks of a rank in one exchange that are followed each by itself; more are followed in groups.
const MOST_CHUNKS: u64 = 256;

/// The followed ranks, which have consecutive numbers, and the part of a node that they have.
pub(super) struct Group {
    /// The first of them.
    first: usize,
    /// Followed ranks.
    pub ranks: usize,
    /// The machine, with rates in proportion where the group is a part of a node.
    pub machine: Machine,
    is_folded: bool,
    ranks_per_node: usize,
}

/// The part of the network that a message crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Within a node.
    Local,
    /// Between nodes of a switch.
    Switch,
    /// Between switches.
    Core,
}

/// The place of a message at one of its ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub rank: usize,
    pub chunk: usize,
}

/// A message between followed ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub bytes: u64,
    /// Messages of a run that it stands for.
    pub count: u64,
    pub link: Link,
    pub exchange: usize,
    pub from: End,
    pub to: End,
}

/// The messages of an exchange at one end: those of each chunk in turn, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    pub messages: Vec<Vec<usize>>,
    pub bytes: Vec<u64>,
}

/// An exchange of a followed rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Sides {
    pub send: Chunks,
    pub receive: Chunks,
}

impl Group {
    /// Returns the group of a run over `grid`: all ranks if they are few, or a part of a node with
    /// `rank`: the largest that every node can be divided into along the lines of the grid.
    pub fn new(machine: &Machine, grid: &Grid, rank: usize) -> Self {
        let (total, node) = (grid.ranks(), machine.ranks_per_node.max(1));
        let columns = grid.along(1);
        let folds = |part: &usize| {
            node.is_multiple_of(*part)
                && total.is_multiple_of(*part)
                && (columns.is_multiple_of(*part) || part.is_multiple_of(columns))
        };
        let ranks = (1..=node).rev().find(folds).unwrap_or(1);
        let is_even = ranks == node && grid.shares().are_equal();
        let most = if is_even { EXACT } else { EXACT_OF_UNEVEN };
        if total <= most.max(node) { Self::whole(machine, grid) } else { Self::folded(machine, rank, ranks) }
    }

    /// Returns the group of `ranks` ranks of a node, one of which is `rank`.
    pub fn folded(machine: &Machine, rank: usize, ranks: usize) -> Self {
        let node = machine.ranks_per_node.max(1);
        // Ranks of the group that share a resource, and of a whole node.
        let share = |resources: usize| {
            let users = |ranks: usize| (ranks as f64 / resources as f64).max(1.0);
            users(ranks) / users(node)
        };
        let device = share(machine.devices);
        let machine = Machine {
            memory_rate: machine.memory_rate * device,
            device_copy_rate: machine.device_copy_rate * device,
            particle_rate: machine.particle_rate * device,
            copy_rate: machine.copy_rate * device,
            host_memory_rate: machine.host_memory_rate * share(1),
            nic_rate: machine.nic_rate * share(machine.nics),
            cores: (machine.cores * ranks / node).max(1),
            ..machine.clone()
        };
        Group { first: rank / ranks * ranks, ranks, machine, is_folded: true, ranks_per_node: node }
    }

    /// Returns the group of all ranks.
    pub fn whole(machine: &Machine, grid: &Grid) -> Self {
        let ranks_per_node = machine.ranks_per_node.max(1);
        Group { first: 0, ranks: grid.ranks(), machine: machine.clone(), is_folded: false, ranks_per_node }
    }

    /// Returns the followed ranks.
    pub fn members(&self) -> Range<usize> {
        self.first..self.first + self.ranks
    }

    /// Returns `true` if a followed rank takes the place of ranks that have other numbers of
    /// exchanges along an axis, so that messages of one of them have no receiver.
    pub fn mixes(&self, steps: &[Vec<Step>]) -> bool {
        let exchanges = |steps: &Vec<Step>| {
            [0, 1].map(|axis| steps.iter().filter_map(Step::start).filter(|start| start.line.axis == axis).count())
        };
        self.is_folded && steps.windows(2).any(|pair| exchanges(&pair[0]) != exchanges(&pair[1]))
    }

    /// Returns the position among the followed ranks of the one that stands for `rank`, and whether
    /// `rank` is another one.
    fn stand_in(&self, rank: usize) -> (usize, bool) {
        if self.is_folded { (rank % self.ranks, !self.members().contains(&rank)) } else { (rank, false) }
    }

    fn link(&self, from: usize, to: usize) -> Link {
        let nodes = [from, to].map(|rank| rank / self.ranks_per_node);
        let switches = nodes.map(|node| node / self.machine.switch_nodes.max(1));
        match (nodes[0] == nodes[1], switches[0] == switches[1]) {
            (true, _) => Link::Local,
            (false, true) => Link::Switch,
            (false, false) => Link::Core,
        }
    }

    /// Returns the chunks of exchange number `exchange` of each followed rank, of which `starts`
    /// has one each, and adds its messages.
    pub fn exchange(
        &self,
        exchange: usize,
        starts: &[Option<&Start>],
        chunking: Chunking,
        messages: &mut Vec<Message>,
    ) -> Vec<Sides> {
        let mut sides = vec![Sides::default(); self.ranks];
        // Messages that were sent, by sender, receiver and whether they left the group.
        let mut sent = vec![VecDeque::new(); 2 * self.ranks * self.ranks];
        let at = |from: usize, to: usize, is_outside: bool| 2 * (from * self.ranks + to) + usize::from(is_outside);
        let together = starts.iter().flatten().map(|start| chunks_together(start, chunking)).max().unwrap_or(1);
        let mut mirrored: Vec<Vec<Expected>> = vec![Vec::new(); self.ranks];
        for (rank, start) in starts.iter().enumerate() {
            let Some(Start { line, transfers, element_bytes }) = start else { continue };
            let (order, _) = peers(line.len, line.place);
            let steps = steps(&order, line.len);
            for part in transfers.send.iter().filter(|part| part.peer != line.place && part.len > 0) {
                if let (to, true) = self.stand_in(line.rank(part.peer)) {
                    mirrored[to].push(Expected { step: steps[part.peer], from: rank, is_outside: true, len: part.len });
                }
            }
            let per = chunking.elements(*element_bytes);
            for (number, chunk) in chunks(&transfers.send, &order, per * together).iter().enumerate() {
                let first = messages.len();
                for message in &chunk.messages {
                    let peer = line.rank(message.part.peer);
                    let (to, is_outside) = self.stand_in(peer);
                    sent[at(rank, to, is_outside)].push_back(messages.len());
                    messages.push(Message {
                        bytes: message.part.len * element_bytes,
                        count: message.part.len.div_ceil(per),
                        link: self.link(self.first + rank, peer),
                        exchange,
                        from: End { rank, chunk: number },
                        to: End { rank: to, chunk: usize::MAX },
                    });
                }
                sides[rank].send.messages.push((first..messages.len()).collect());
                sides[rank].send.bytes.push(chunk.len() * element_bytes);
            }
        }
        for (rank, start) in starts.iter().enumerate() {
            let Some(start) = start else { continue };
            let mut expected = std::mem::take(&mut mirrored[rank]);
            expected.extend(self.expected(start));
            expected.sort_by_key(|part| (part.step, part.from, part.is_outside));
            let parts: Vec<Transfer> =
                expected.iter().enumerate().map(|(peer, part)| Transfer { peer, start: 0, len: part.len }).collect();
            let order: Vec<usize> = (0..parts.len()).collect();
            let per = together * chunking.elements(start.element_bytes);
            for (number, chunk) in chunks(&parts, &order, per).iter().enumerate() {
                let number_of = |message: &crate::grid::Message| {
                    let Expected { from, is_outside, .. } = expected[message.part.peer];
                    // A message that no rank sends stays a number without a message: the receiver
                    // waits for it forever.
                    sent[at(from, rank, is_outside)].pop_front().unwrap_or(usize::MAX)
                };
                let numbers: Vec<usize> = chunk.messages.iter().map(number_of).collect();
                for &message in numbers.iter().filter(|&&message| message < usize::MAX) {
                    messages[message].to.chunk = number;
                }
                sides[rank].receive.messages.push(numbers);
                sides[rank].receive.bytes.push(chunk.len() * start.element_bytes);
            }
        }
        sides
    }

    /// Returns the parts that a rank receives from followed ranks.
    fn expected(&self, Start { line, transfers, .. }: &Start) -> Vec<Expected> {
        let (_, order) = peers(line.len, line.place);
        let steps = steps(&order, line.len);
        let parts = transfers.receive.iter().filter(|part| part.peer != line.place && part.len > 0);
        let of_group = |part: &Transfer| {
            let (from, is_outside) = self.stand_in(line.rank(part.peer));
            (!is_outside).then_some(Expected { step: steps[part.peer], from, is_outside, len: part.len })
        };
        parts.filter_map(of_group).collect()
    }
}

/// Returns how many chunks are followed as one, so that a rank has [`MOST_CHUNKS`] at most.
fn chunks_together(Start { transfers, element_bytes, .. }: &Start, chunking: Chunking) -> u64 {
    let elements: u64 = transfers.send.iter().map(|part| part.len).sum();
    elements.div_ceil(chunking.elements(*element_bytes)).div_ceil(MOST_CHUNKS).max(1)
}

/// A part that a followed rank receives.
#[derive(Clone, Copy)]
struct Expected {
    /// The place of its sender in the order of the receiver's peers.
    step: usize,
    from: usize,
    /// Whether it comes from outside of the group, whose ranks stand for its sender.
    is_outside: bool,
    len: u64,
}

/// Returns the place of each of `len` ranks in the order of peers.
fn steps(order: &[usize], len: usize) -> Vec<usize> {
    let mut steps = vec![0; len];
    order.iter().enumerate().for_each(|(step, &peer)| steps[peer] = step);
    steps
}
