//! The event loop: steps of ranks against the resources of a machine.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::fold::{Group, Link, Message, Sides};
use super::state::{CopyIn, Device, ExchangeState, Half, Node, Progress, RankState, Server};
use super::{Line, Machine, Start, Step, Work};
use crate::gpu::ExchangePath;
use crate::grid::{Chunking, Grid, Transfer, Transfers};

/// Returns the seconds until the last rank of `grid` has taken the steps that `steps` returns for
/// it and its device is idle; infinity if a rank waits for a message that no rank sends. Where not
/// all ranks are followed, these are ranks of the node of `largest`, the rank with the most work.
///
/// Some five events a message. A transform of `P` slabs in `p` pieces on nodes of `m` ranks has
/// `m p P` messages.
pub(crate) fn simulate<E>(
    machine: &Machine,
    grid: Grid,
    largest: usize,
    chunking: Chunking,
    steps: impl Fn(usize) -> Result<Vec<Step>, E>,
) -> Result<f64, E> {
    let group = Group::new(machine, &grid, largest);
    let of_members = group.members().map(&steps).collect::<Result<Vec<_>, E>>()?;
    if group.mixes(&of_members) {
        return Ok(seconds_of(&Group::folded(machine, largest, 1), chunking, vec![steps(largest)?]));
    }
    Ok(seconds_of(&group, chunking, of_members))
}

/// Returns the seconds of the steps of the followed ranks.
pub(super) fn seconds_of(group: &Group, chunking: Chunking, steps: Vec<Vec<Step>>) -> f64 {
    let mut model = Model::new(group, chunking, steps);
    model.run();
    model.ranks.iter().map(|rank| rank.end.unwrap_or(f64::INFINITY)).fold(0.0, f64::max)
}

impl Machine {
    /// Returns the seconds in which each of `ranks` ranks sends `bytes` bytes of a device array to
    /// the rank `distance` after it and receives as many, in chunks of `chunk_bytes` bytes of which
    /// `depth` are in flight.
    #[must_use]
    pub fn ring_seconds(&self, ranks: usize, distance: usize, bytes: u64, [chunk_bytes, depth]: [u64; 2]) -> f64 {
        let Ok(grid) = Grid::new([ranks, 1], ranks) else { return 0.0 };
        let part = |peer: usize| vec![Transfer { peer, start: 0, len: bytes }];
        let chunking = Chunking { bytes: chunk_bytes.max(1), depth: depth.max(1) as usize };
        let steps = |rank: usize| {
            let [to, from] = [rank + distance, rank + ranks - distance % ranks].map(|peer| peer % ranks);
            let transfers = Transfers { send: part(to), receive: part(from) };
            let start = Start { line: Line::new(&grid, rank, 0), transfers, element_bytes: 1 };
            Ok::<_, std::convert::Infallible>(vec![Step::Start(start), Step::Finish])
        };
        simulate(self, grid, 0, chunking, steps).unwrap_or(f64::INFINITY)
    }
}

/// Returns the start of each rank in each exchange, and the numbers of the exchanges of each rank,
/// in its order. The ranks of a line take the exchanges along its axis in the same order. Ranks of
/// other lines may have cut them into more pieces.
fn numbered(steps: &[Vec<Step>]) -> (Vec<Vec<Option<&Start>>>, Vec<VecDeque<usize>>) {
    let (mut starts, mut places): (Vec<Vec<Option<&Start>>>, BTreeMap<_, usize>) = (Vec::new(), BTreeMap::new());
    let mut numbers = vec![VecDeque::new(); steps.len()];
    for (rank, steps) in steps.iter().enumerate() {
        let mut along = BTreeMap::<usize, usize>::new();
        for start in steps.iter().filter_map(Step::start) {
            let count = along.entry(start.line.axis).or_default();
            let number = *places.entry((start.line.axis, *count)).or_insert(starts.len());
            *count += 1;
            starts.resize(starts.len().max(number + 1), vec![None; numbers.len()]);
            starts[number][rank] = Some(start);
            numbers[rank].push_back(number);
        }
    }
    (starts, numbers)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The arrays of an exchange can be read by the host.
    Mapped { rank: usize, exchange: usize },
    /// A chunk lies in host memory.
    CopiedOut { rank: usize, exchange: usize, chunk: usize },
    /// The host has handed over a message.
    Injected(usize),
    /// The first byte has reached the receiver's interface.
    Reached(usize),
    /// The last byte, or a descriptor, is in the receiver's memory.
    Arrived(usize),
    /// The receiver's host has taken it.
    Received(usize),
    /// Copies to the device are submitted.
    CopiesSubmitted { rank: usize, exchange: usize },
    /// A copy to the device has ended.
    CopiedIn { rank: usize, exchange: usize, lent: Option<usize> },
    /// The credit of a message has reached its sender.
    Credited(usize),
    /// The sender's memory is free again.
    Sent(usize),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// The bits of the time, whose order is that of the times, as none is negative.
    time: u64,
    number: u64,
    kind: Kind,
}

struct Model<'a> {
    machine: &'a Machine,
    chunking: Chunking,
    now: f64,
    events: BinaryHeap<Reverse<Event>>,
    number: u64,
    ranks: Vec<RankState>,
    nodes: Vec<Node>,
    messages: Vec<Message>,
    progress: Vec<Progress>,
    /// By exchange, then by rank.
    sides: Vec<Vec<Sides>>,
    exchanges: Vec<Vec<ExchangeState>>,
}

impl<'a> Model<'a> {
    fn new(group: &'a Group, chunking: Chunking, steps: Vec<Vec<Step>>) -> Self {
        let machine = &group.machine;
        let (starts, numbers) = numbered(&steps);
        let (mut messages, mut sides) = (Vec::new(), Vec::new());
        for (exchange, of_all) in starts.iter().enumerate() {
            sides.push(group.exchange(exchange, of_all, chunking, &mut messages));
        }
        let half = |messages: &[Vec<usize>]| Half { left: messages.iter().map(Vec::len).collect(), ..Half::default() };
        let exchange = |Sides { send, receive }: &Sides| ExchangeState {
            send: half(&send.messages),
            receive: half(&receive.messages),
            ..ExchangeState::default()
        };
        let exchanges = sides.iter().map(|ranks: &Vec<Sides>| ranks.iter().map(exchange).collect()).collect();
        let per_node = machine.ranks_per_node.max(1);
        let node = |_| Node {
            cores: if machine.cores < per_node || machine.devices_use_cores {
                vec![Server::default(); machine.cores.max(1)]
            } else {
                Vec::new()
            },
            devices: vec![Device::default(); machine.devices.clamp(1, per_node)],
            nics: vec![Default::default(); machine.nics.clamp(1, per_node)],
            ..Node::default()
        };
        let nodes: Vec<Node> = (0..group.ranks.div_ceil(per_node)).map(node).collect();
        let rank = |(rank, (steps, numbers)): (usize, (Vec<Step>, VecDeque<usize>))| RankState {
            node: rank / per_node,
            device: rank % per_node % nodes[0].devices.len(),
            nic: rank % per_node % nodes[0].nics.len(),
            steps: steps.into(),
            exchanges: numbers,
            ..RankState::default()
        };
        let ranks = steps.into_iter().zip(numbers).enumerate().map(rank).collect();
        let progress = vec![Progress::default(); messages.len()];
        let (events, number, now) = (BinaryHeap::new(), 0, 0.0);
        Model { machine, chunking, now, events, number, ranks, nodes, messages, progress, sides, exchanges }
    }

    fn run(&mut self) {
        (0..self.ranks.len()).for_each(|rank| self.advance(rank));
        while let Some(Reverse(Event { time, kind, .. })) = self.events.pop() {
            self.now = f64::from_bits(time);
            self.handle(kind);
        }
    }

    fn at(&mut self, time: f64, kind: Kind) {
        self.number += 1;
        self.events.push(Reverse(Event { time: time.to_bits(), number: self.number, kind }));
    }

    /// Returns the end of work of a rank's host thread, which needs a core.
    fn host(&mut self, rank: usize, seconds: f64) -> f64 {
        let RankState { host, node, .. } = &mut self.ranks[rank];
        let cores = &mut self.nodes[*node].cores;
        match cores.iter_mut().min_by(|a, b| a.free.total_cmp(&b.free)) {
            Some(core) => {
                let end = host.serve(self.now.max(core.free), seconds);
                core.free = end;
                end
            }
            None => host.serve(self.now, seconds),
        }
    }

    /// Submits what a rank has recorded.
    fn submit(&mut self, rank: usize) {
        if self.ranks[rank].recorded == 0.0 {
            return;
        }
        let submitted = self.host(rank, self.machine.submit_seconds);
        let RankState { node, device, recorded, passed, copied, .. } = &mut self.ranks[rank];
        let Node { devices, cores, .. } = &mut self.nodes[*node];
        let cores: &mut [Server] = if self.machine.devices_use_cores { cores } else { &mut [] };
        let from = cores.iter().fold(submitted.max(*copied), |from, core| from.max(core.free));
        *passed = devices[*device].passes.serve(from, std::mem::take(recorded));
        cores.iter_mut().for_each(|core| core.free = *passed);
    }

    /// Returns the end of a copy between a device and the host that is submitted at `from`.
    fn copy(&mut self, rank: usize, from: f64, bytes: u64, to_device: bool) -> f64 {
        let Machine { copy_queues, copy_rate, host_memory_rate, .. } = *self.machine;
        let RankState { node, device, passed, .. } = self.ranks[rank];
        let Node { devices, memory, .. } = &mut self.nodes[node];
        let Device { passes, copies } = &mut devices[device];
        let queue = match copy_queues {
            0 => passes,
            1 => &mut copies[0],
            _ => &mut copies[usize::from(to_device)],
        };
        // A copy to the host waits for the pass that wrote its data.
        let from = if to_device { from } else { from.max(passed) };
        // Other devices use the memory while this copy waits for its queue.
        let in_memory = memory.serve(self.now, bytes as f64 / host_memory_rate);
        let end = queue.serve(from, bytes as f64 / copy_rate).max(in_memory);
        queue.free = end;
        end
    }

    /// Takes the steps of a rank until it waits.
    fn advance(&mut self, rank: usize) {
        loop {
            let state = &mut self.ranks[rank];
            match state.steps.pop_front() {
                Some(Step::Pass { work, bytes }) => state.recorded += self.machine.pass_seconds(work, 1, bytes),
                Some(Step::Start(start)) => self.start(rank, &start),
                Some(Step::Finish) => {
                    let Some(&first) = state.in_flight.front() else { continue };
                    if !self.exchanges[first][rank].is_done() {
                        state.steps.push_front(Step::Finish);
                        state.is_waiting = true;
                        return self.submit(rank);
                    }
                    state.in_flight.pop_front();
                }
                None => {
                    self.submit(rank);
                    let RankState { passed, copied, host, end, .. } = &mut self.ranks[rank];
                    *end = Some(self.now.max(*passed).max(*copied).max(host.free));
                    return;
                }
            }
        }
    }

    fn start(&mut self, rank: usize, start: &Start) {
        let (state, kept) = (&mut self.ranks[rank], start.kept_bytes());
        let Some(exchange) = state.exchanges.pop_front() else { return };
        state.in_flight.push_back(exchange);
        if kept > 0 {
            state.recorded += self.machine.pass_seconds(Work::Copy, 1, 2 * kept);
        }
        let ExchangeState { send, receive, .. } = &self.exchanges[exchange][rank];
        let (sends, receives) = (!send.is_done(), !receive.is_done());
        if !sends && !receives {
            return;
        }
        self.submit(rank);
        if self.machine.path == ExchangePath::Mapped {
            // The host maps both arrays and learns of it.
            let mapped = self.host(rank, self.machine.submit_seconds);
            self.at(mapped.max(self.ranks[rank].passed), Kind::Mapped { rank, exchange });
        } else {
            self.send(rank, exchange);
        }
        self.request(rank, exchange);
    }

    /// Begins to send chunks, as many as may be under way.
    fn send(&mut self, rank: usize, exchange: usize) {
        loop {
            let Half { left, front, next } = &mut self.exchanges[exchange][rank].send;
            let first = *next;
            let room = match self.machine.path {
                ExchangePath::Mapped => left.len() - first,
                _ => self.chunking.batch(left.len() - first, first - *front),
            };
            if room == 0 {
                return;
            }
            *next += room;
            if self.machine.path == ExchangePath::Mapped {
                (first..first + room).for_each(|chunk| self.inject(rank, exchange, chunk));
                continue;
            }
            let submitted = self.host(rank, self.machine.submit_seconds);
            for chunk in first..first + room {
                let bytes = self.sides[exchange][rank].send.bytes[chunk];
                let copied = self.copy(rank, submitted, bytes, false);
                self.at(copied, Kind::CopiedOut { rank, exchange, chunk });
            }
        }
    }

    /// Hands over the messages of a chunk, one after the other.
    fn inject(&mut self, rank: usize, exchange: usize, chunk: usize) {
        for i in 0..self.sides[exchange][rank].send.messages[chunk].len() {
            let message = self.sides[exchange][rank].send.messages[chunk][i];
            let count = self.messages[message].count as f64;
            let injected = self.host(rank, count * self.machine.message_seconds);
            self.at(injected, Kind::Injected(message));
        }
    }

    /// Asks for chunks, as many as may be under way.
    fn request(&mut self, rank: usize, exchange: usize) {
        loop {
            let Half { left, front, next } = &mut self.exchanges[exchange][rank].receive;
            let is_full = self.machine.path != ExchangePath::Mapped && *next - *front >= self.chunking.depth;
            if *next == left.len() || is_full {
                return;
            }
            let chunk = *next;
            *next += 1;
            for i in 0..self.sides[exchange][rank].receive.messages[chunk].len() {
                let message = self.sides[exchange][rank].receive.messages[chunk][i];
                let Some(progress) = self.progress.get_mut(message) else { continue };
                progress.is_requested = true;
                let Progress { is_injected, has_left, has_arrived, .. } = *progress;
                if has_arrived {
                    self.receive(message);
                } else if is_injected && !has_left {
                    self.transfer(message);
                }
            }
        }
    }

    /// Returns `true` if the device of the receiver copies a message from the pages of its sender.
    fn is_lent(&self, message: usize) -> bool {
        self.machine.path.lends() && self.messages[message].link == Link::Local
    }

    fn is_eager(&self, message: usize) -> bool {
        self.messages[message].bytes <= self.machine.eager_bytes
    }

    fn handle(&mut self, kind: Kind) {
        match kind {
            Kind::Mapped { rank, exchange } => self.send(rank, exchange),
            Kind::CopiedOut { rank, exchange, chunk } => self.inject(rank, exchange, chunk),
            Kind::Injected(message) => {
                self.progress[message].is_injected = true;
                if self.is_lent(message) {
                    self.transfer(message);
                } else if self.is_eager(message) {
                    self.transfer(message);
                    self.sent(message);
                } else if self.progress[message].is_requested {
                    self.transfer(message);
                }
            }
            Kind::Reached(message) => {
                let Message { bytes, to, .. } = self.messages[message];
                let RankState { node, nic, .. } = self.ranks[to.rank];
                let end = self.nodes[node].nics[nic][1].serve(self.now, bytes as f64 / self.machine.nic_rate);
                self.at(end, Kind::Arrived(message));
            }
            Kind::Arrived(message) => {
                self.progress[message].has_arrived = true;
                if self.progress[message].is_requested {
                    self.receive(message);
                }
            }
            Kind::Received(message) => self.received(message),
            Kind::CopiesSubmitted { rank, exchange } => self.copy_in(rank, exchange),
            Kind::CopiedIn { rank, exchange, lent } => {
                self.exchanges[exchange][rank].copying -= 1;
                if let Some(message) = lent {
                    let seconds = self.messages[message].count as f64 * self.machine.message_seconds;
                    let credited = self.host(rank, seconds);
                    self.at(credited + self.machine.local_latency_seconds, Kind::Credited(message));
                }
                self.resume(rank, exchange);
            }
            Kind::Credited(message) => {
                let Message { count, from, .. } = self.messages[message];
                let end = self.host(from.rank, count as f64 * self.machine.message_seconds);
                self.at(end, Kind::Sent(message));
            }
            Kind::Sent(message) => self.sent(message),
        }
    }

    /// Moves a message, or its descriptor, to the receiver.
    fn transfer(&mut self, message: usize) {
        self.progress[message].has_left = true;
        let Message { bytes, link, from, .. } = self.messages[message];
        if link == Link::Local {
            return self.at(self.now + self.machine.local_latency_seconds, Kind::Arrived(message));
        }
        let Machine { nic_rate, taper, latency_seconds, .. } = *self.machine;
        let RankState { node, nic, .. } = self.ranks[from.rank];
        let Node { nics, uplink, .. } = &mut self.nodes[node];
        let seconds = bytes as f64 / nic_rate;
        let end = nics[nic][0].serve(self.now, seconds);
        let begin = match link {
            Link::Core => {
                let rate = nic_rate * nics.len() as f64 / taper;
                (end - seconds).max(uplink.serve(end - seconds, bytes as f64 / rate) - seconds)
            }
            _ => end - seconds,
        };
        self.at(begin + latency_seconds, Kind::Reached(message));
        if !self.is_eager(message) {
            self.at(end, Kind::Sent(message));
        }
    }

    /// Takes a message that has arrived and was asked for.
    fn receive(&mut self, message: usize) {
        let Message { bytes, count, link, to, .. } = self.messages[message];
        let is_copied = match self.machine.path {
            ExchangePath::Ring | ExchangePath::Peer => false,
            ExchangePath::Mapped => link == Link::Local,
            ExchangePath::Staging => true,
        };
        let copy = if is_copied { bytes as f64 / self.machine.host_copy_rate } else { 0.0 };
        let end = self.host(to.rank, count as f64 * self.machine.message_seconds + copy);
        self.at(end, Kind::Received(message));
    }

    fn received(&mut self, message: usize) {
        let Message { bytes, link, exchange, to, .. } = self.messages[message];
        let is_lent = self.is_lent(message);
        if link == Link::Local && !is_lent && !self.is_eager(message) {
            self.sent(message);
        }
        let complete = self.exchanges[exchange][to.rank].receive.count(to.chunk);
        let mut copies: Vec<CopyIn> = complete.filter_map(|chunk| self.own_copy(exchange, to.rank, chunk)).collect();
        if is_lent {
            copies.push(CopyIn { bytes, lent: Some(message) });
        }
        let state = &mut self.exchanges[exchange][to.rank];
        state.to_copy.extend(copies);
        if !state.to_copy.is_empty() && !state.is_submitting {
            state.is_submitting = true;
            let end = self.host(to.rank, self.machine.submit_seconds);
            self.at(end, Kind::CopiesSubmitted { rank: to.rank, exchange });
        }
        self.request(to.rank, exchange);
        self.resume(to.rank, exchange);
    }

    /// Returns the copy to the device of a chunk that has arrived, if the host holds any of it.
    fn own_copy(&self, exchange: usize, rank: usize, chunk: usize) -> Option<CopyIn> {
        let messages = &self.sides[exchange][rank].receive.messages[chunk];
        let own = messages.iter().filter(|&&message| !self.is_lent(message));
        let bytes = own.map(|&message| self.messages[message].bytes).sum();
        (self.machine.path != ExchangePath::Mapped && bytes > 0).then_some(CopyIn { bytes, lent: None })
    }

    fn copy_in(&mut self, rank: usize, exchange: usize) {
        let state = &mut self.exchanges[exchange][rank];
        state.is_submitting = false;
        for CopyIn { bytes, lent } in std::mem::take(&mut state.to_copy) {
            let end = self.copy(rank, self.now, bytes, true);
            self.ranks[rank].copied = self.ranks[rank].copied.max(end);
            // With staging buffers an exchange is done when its copies are submitted.
            if self.machine.path.lends() {
                self.exchanges[exchange][rank].copying += 1;
                self.at(end, Kind::CopiedIn { rank, exchange, lent });
            }
        }
        self.resume(rank, exchange);
    }

    fn sent(&mut self, message: usize) {
        let Message { exchange, from, .. } = self.messages[message];
        if !self.exchanges[exchange][from.rank].send.count(from.chunk).is_empty() {
            self.send(from.rank, exchange);
        }
        self.resume(from.rank, exchange);
    }

    /// Continues the steps of a rank that waits for `exchange`, if it is done.
    fn resume(&mut self, rank: usize, exchange: usize) {
        let state = &mut self.ranks[rank];
        let is_first = state.in_flight.front() == Some(&exchange);
        if state.is_waiting && is_first && self.exchanges[exchange][rank].is_done() {
            state.is_waiting = false;
            self.advance(rank);
        }
    }
}
