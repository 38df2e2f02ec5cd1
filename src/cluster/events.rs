//! The event loop: steps of ranks against the resources of a machine.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use super::fold::{Group, Link, Message, Sides};
use super::machine::Machine;
use super::steps::{Line, Start, Step};
use crate::gpu::ExchangePath;
use crate::grid::{Chunking, Grid, Transfer, Transfers};

/// Returns the seconds until the last rank of `grid` has taken the steps that `steps` returns for
/// it and its device is idle; infinity if a rank waits for a message that nobody sends.
///
/// Some five events a message. A transform of `P` slabs in `p` pieces on nodes of `m` ranks has
/// `m p P` messages.
pub(crate) fn simulate<E>(
    machine: &Machine,
    grid: Grid,
    chunking: Chunking,
    steps: impl Fn(usize) -> Result<Vec<Step>, E>,
) -> Result<f64, E> {
    let group = Group::new(machine, &grid);
    let steps = (0..group.ranks).map(steps).collect::<Result<Vec<_>, E>>()?;
    let mut model = Model::new(&group, chunking, steps);
    model.run();
    Ok(model.ranks.iter().map(|rank| rank.end.unwrap_or(f64::INFINITY)).fold(0.0, f64::max))
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
        simulate(self, grid, chunking, steps).unwrap_or(f64::INFINITY)
    }
}

/// A resource that serves requests one after the other.
#[derive(Clone, Copy, Default)]
struct Server {
    free: f64,
}

impl Server {
    /// Returns the end of a request that begins at `from` or when the server is free.
    fn serve(&mut self, from: f64, seconds: f64) -> f64 {
        self.free = self.free.max(from) + seconds;
        self.free
    }
}

/// The queues of a device.
#[derive(Clone, Default)]
struct Device {
    passes: Server,
    copies: [Server; 2],
}

/// The resources that the ranks of a node share.
struct Node {
    cores: Vec<Server>,
    memory: Server,
    devices: Vec<Device>,
    /// Interfaces, out and in.
    nics: Vec<[Server; 2]>,
    /// The node's part of the links between switches.
    uplink: Server,
}

struct RankState {
    node: usize,
    device: usize,
    nic: usize,
    host: Server,
    steps: VecDeque<Step>,
    /// Seconds of passes that are recorded and not submitted.
    recorded: f64,
    /// Ends of the passes and of the copies to the device that were submitted.
    passed: f64,
    copied: f64,
    started: usize,
    in_flight: VecDeque<usize>,
    is_waiting: bool,
    end: Option<f64>,
}

/// One half of an exchange of a rank.
#[derive(Default)]
struct Half {
    /// Messages that are not done, by chunk.
    left: Vec<usize>,
    /// The first chunk that is not done.
    front: usize,
    /// The first chunk that is not under way.
    next: usize,
}

impl Half {
    fn is_done(&self) -> bool {
        self.front == self.left.len()
    }

    /// Counts a message of `chunk` as done, and returns the chunks that leave the window.
    fn count(&mut self, chunk: usize) -> std::ops::Range<usize> {
        self.left[chunk] -= 1;
        let before = self.front;
        while self.front < self.next && self.left[self.front] == 0 {
            self.front += 1;
        }
        before..self.front
    }
}

/// A copy to the device, of the pages of a peer for `lent`.
#[derive(Clone, Copy)]
struct CopyIn {
    bytes: u64,
    lent: Option<usize>,
}

#[derive(Default)]
struct ExchangeState {
    send: Half,
    receive: Half,
    to_copy: Vec<CopyIn>,
    is_submitting: bool,
    /// Copies to the device that must end before the exchange does.
    copying: usize,
}

impl ExchangeState {
    fn is_done(&self) -> bool {
        let is_copied = self.to_copy.is_empty() && !self.is_submitting && self.copying == 0;
        self.send.is_done() && self.receive.is_done() && is_copied
    }
}

/// State of a message.
#[derive(Clone, Copy, Default)]
struct Progress {
    is_injected: bool,
    is_requested: bool,
    has_left: bool,
    has_arrived: bool,
}

#[derive(Clone, Copy)]
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

struct Event {
    time: f64,
    number: u64,
    kind: Kind,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time.total_cmp(&other.time).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

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
        let starts: Vec<Vec<&Start>> =
            steps.iter().map(|steps| steps.iter().filter_map(Step::start).collect()).collect();
        let (mut messages, mut sides) = (Vec::new(), Vec::new());
        for exchange in 0..starts.iter().map(Vec::len).max().unwrap_or(0) {
            let of_all: Vec<Option<&Start>> = starts.iter().map(|starts| starts.get(exchange).copied()).collect();
            sides.push(group.exchange(exchange, &of_all, chunking, &mut messages));
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
            cores: if machine.cores < per_node { vec![Server::default(); machine.cores.max(1)] } else { Vec::new() },
            memory: Server::default(),
            devices: vec![Device::default(); machine.devices.clamp(1, per_node)],
            nics: vec![Default::default(); machine.nics.clamp(1, per_node)],
            uplink: Server::default(),
        };
        let nodes: Vec<Node> = (0..group.ranks.div_ceil(per_node)).map(node).collect();
        let rank = |(rank, steps): (usize, Vec<Step>)| RankState {
            node: rank / per_node,
            device: rank % per_node % nodes[0].devices.len(),
            nic: rank % per_node % nodes[0].nics.len(),
            host: Server::default(),
            steps: steps.into(),
            recorded: 0.0,
            passed: 0.0,
            copied: 0.0,
            started: 0,
            in_flight: VecDeque::new(),
            is_waiting: false,
            end: None,
        };
        let ranks = steps.into_iter().enumerate().map(rank).collect();
        let progress = vec![Progress::default(); messages.len()];
        let (events, number, now) = (BinaryHeap::new(), 0, 0.0);
        Model { machine, chunking, now, events, number, ranks, nodes, messages, progress, sides, exchanges }
    }

    fn run(&mut self) {
        (0..self.ranks.len()).for_each(|rank| self.advance(rank));
        while let Some(Reverse(Event { time, kind, .. })) = self.events.pop() {
            self.now = time;
            self.handle(kind);
        }
    }

    fn at(&mut self, time: f64, kind: Kind) {
        self.number += 1;
        self.events.push(Reverse(Event { time, number: self.number, kind }));
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
        let queue = &mut self.nodes[*node].devices[*device].passes;
        *passed = queue.serve(submitted.max(*copied), std::mem::take(recorded));
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
        // What leaves was written by a pass.
        let from = if to_device { from } else { from.max(passed) };
        let begin = queue.free.max(from);
        let end =
            queue.serve(begin, bytes as f64 / copy_rate).max(memory.serve(begin, bytes as f64 / host_memory_rate));
        queue.free = end;
        end
    }

    /// Takes the steps of a rank until it waits.
    fn advance(&mut self, rank: usize) {
        loop {
            let state = &mut self.ranks[rank];
            match state.steps.pop_front() {
                Some(Step::Pass { bytes }) => state.recorded += self.machine.pass_seconds(1, bytes),
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
        let state = &mut self.ranks[rank];
        let (exchange, kept) = (state.started, start.kept_bytes());
        state.started += 1;
        state.in_flight.push_back(exchange);
        if kept > 0 {
            state.recorded += self.machine.pass_seconds(1, 2 * kept);
        }
        let ExchangeState { send, receive, .. } = &self.exchanges[exchange][rank];
        let (sends, receives) = (!send.is_done(), !receive.is_done());
        if !sends && !receives {
            return;
        }
        self.submit(rank);
        if self.machine.path == ExchangePath::Mapped {
            let mapped = self.ranks[rank].passed.max(self.now);
            self.at(mapped, Kind::Mapped { rank, exchange });
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
                ExchangePath::Mapped => (self.chunking.depth - (first - *front)).min(left.len() - first),
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
            if *next == left.len() || *next - *front >= self.chunking.depth {
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
        self.machine.path == ExchangePath::Ring && self.messages[message].link == Link::Local
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
            ExchangePath::Ring => false,
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
            if self.machine.path == ExchangePath::Ring {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::EXACT;

    type Steps = Result<Vec<Step>, std::convert::Infallible>;

    const CHUNKING: Chunking = Chunking { bytes: 1 << 20, depth: 4 };

    /// A machine on which times are easy to count: a byte takes a nanosecond on each resource.
    fn simple(path: ExchangePath) -> Machine {
        Machine {
            ranks_per_node: 1,
            devices: 1,
            path,
            memory_rate: 1e9,
            dispatch_seconds: 0.0,
            submit_seconds: 0.0,
            copy_rate: 1e9,
            host_copy_rate: 1e9,
            host_memory_rate: 1e18,
            message_seconds: 0.0,
            local_latency_seconds: 0.0,
            latency_seconds: 0.0,
            nics: 1,
            nic_rate: 1e9,
            ..Machine::default()
        }
    }

    /// Each rank of a line sends `len` bytes to each other rank.
    fn all_to_all(grid: Grid, rank: usize, axis: usize, len: u64) -> Step {
        let line = Line::new(&grid, rank, axis);
        let parts: Vec<Transfer> = (0..line.len).map(|peer| Transfer { peer, start: peer as u64 * len, len }).collect();
        Step::Start(Start { line, transfers: Transfers { send: parts.clone(), receive: parts }, element_bytes: 1 })
    }

    fn seconds(machine: &Machine, grid: Grid, steps: impl Fn(usize) -> Vec<Step>) -> f64 {
        simulate(machine, grid, CHUNKING, |rank| -> Steps { Ok(steps(rank)) }).unwrap()
    }

    fn grid(parts: [usize; 2]) -> Grid {
        Grid::new(parts, parts[0] * parts[1]).unwrap()
    }

    fn is_near(value: f64, expected: f64, tolerance: f64) -> bool {
        (value - expected).abs() <= tolerance * expected
    }

    /// Two ranks exchange one chunk of 2^20 bytes; what each keeps is copied first.
    #[test]
    fn one_chunk_takes_the_time_of_its_resources_in_turn() {
        let (two, bytes) = (grid([2, 1]), 1u64 << 20);
        let exchange = |rank| vec![all_to_all(two, rank, 0, bytes), Step::Finish];
        let (unit, kept) = (bytes as f64 * 1e-9, 2.0 * bytes as f64 * 1e-9);
        for (path, apart, together) in [
            // Out, the interface, in; within a node the device copies from the sender's pages.
            (ExchangePath::Ring, 3.0, 2.0),
            // The host copies what it receives.
            (ExchangePath::Staging, 4.0, 3.0),
            // Devices copy nothing; within a node the host copies.
            (ExchangePath::Mapped, 1.0, 1.0),
        ] {
            let machine = simple(path);
            let found = seconds(&machine, two, exchange);
            assert!(is_near(found, kept + apart * unit, 1e-9), "{path}: {found}");
            let machine = Machine { ranks_per_node: 2, devices: 2, nics: 2, ..machine };
            let found = seconds(&machine, two, exchange);
            assert!(is_near(found, kept + together * unit, 1e-9), "{path} in a node: {found}");
            // One device for both: its queue serves one rank after the other.
            let found = seconds(&Machine { devices: 1, ..machine }, two, exchange);
            let copies = if path == ExchangePath::Mapped { 0.0 } else { 4.0 };
            assert!(found >= 2.0 * kept + copies * unit - 1e-12, "{path} on one device: {found}");
        }
        // Messages of o at either end and the latency; the first submission, and that of the copy
        // in, as that of the copy out ends before what the rank keeps is copied.
        let machine = Machine {
            message_seconds: 1e-3,
            latency_seconds: 1e-2,
            submit_seconds: 1e-4,
            ..simple(ExchangePath::Ring)
        };
        let found = seconds(&machine, two, exchange);
        assert!(is_near(found, kept + 3.0 * unit + 2e-3 + 1e-2 + 2e-4, 1e-9), "{found}");
        // A pass that follows waits for the copies.
        let then = |rank| [exchange(rank), vec![Step::Pass { bytes }]].concat();
        let found = seconds(&simple(ExchangePath::Ring), two, then);
        assert!(is_near(found, kept + 4.0 * unit, 1e-9), "{found}");
    }

    #[test]
    fn many_chunks_overlap_on_unlike_resources() {
        let (two, bytes) = (grid([2, 1]), 256u64 << 20);
        let exchange = |rank| vec![all_to_all(two, rank, 0, bytes), Step::Finish];
        let (unit, kept) = (bytes as f64 * 1e-9, 2.0 * bytes as f64 * 1e-9);
        // One queue copies out and in; with a queue each way all three resources work at once.
        for (copy_queues, least) in [(0, 2.0), (1, 2.0), (2, 1.0)] {
            let machine = Machine { copy_queues, ..simple(ExchangePath::Ring) };
            let found = seconds(&machine, two, exchange);
            assert!(found > kept + 0.999 * least * unit && found < kept + 1.1 * least * unit, "{copy_queues}: {found}");
        }
        // A window of one chunk does not overlap anything.
        let one = Chunking { depth: 1, ..CHUNKING };
        let machine = Machine { copy_queues: 2, ..simple(ExchangePath::Ring) };
        let found = simulate(&machine, two, one, |rank| -> Steps { Ok(exchange(rank)) }).unwrap();
        assert!(found > kept + 1.9 * unit, "{found}");
    }

    #[test]
    fn nodes_share_interfaces_and_links_between_switches() {
        // Messages are short enough for all to leave at once.
        let ranks = grid([16, 1]);
        let exchange = |rank| vec![all_to_all(ranks, rank, 0, 1 << 20), Step::Finish];
        let machine = Machine {
            ranks_per_node: 4,
            devices: 4,
            nics: 4,
            nic_rate: 1e7,
            switch_nodes: 2,
            copy_queues: 2,
            ..simple(ExchangePath::Ring)
        };
        // Twelve messages of a rank leave the node through its own interface.
        let unit = (1u64 << 20) as f64 * 1e-7;
        let own = seconds(&machine, ranks, exchange);
        assert!(own > 12.0 * unit && own < 13.0 * unit, "{own}");
        let shared = seconds(&Machine { nics: 1, ..machine.clone() }, ranks, exchange);
        assert!(shared > 48.0 * unit && shared < 50.0 * unit, "{shared}");
        // Eight of them cross switches, at a quarter of the rate.
        let tapered = seconds(&Machine { taper: 4.0, ..machine.clone() }, ranks, exchange);
        assert!(tapered > 32.0 * unit && tapered < 37.0 * unit, "{tapered}");
    }

    /// All ranks against those of one node. Power-of-two lines do the same everywhere; in others
    /// ranks of a node reach its end at different times.
    #[test]
    fn folded_ranks_take_the_time_of_all() {
        let whole = |machine: &Machine, grid: Grid, steps: &dyn Fn(usize) -> Vec<Step>| {
            let group = Group::whole(machine, &grid);
            let steps = (0..grid.ranks()).map(steps).collect();
            let mut model = Model::new(&group, CHUNKING, steps);
            model.run();
            model.ranks.iter().map(|rank| rank.end.unwrap()).fold(0.0, f64::max)
        };
        for path in [ExchangePath::Ring, ExchangePath::Staging, ExchangePath::Mapped] {
            let machine = Machine { path, ..Machine::default() };
            for (parts, len, tolerance) in [
                ([128, 1], 100_000, 1e-3),
                ([128, 1], 3_000_000, 1e-3),
                ([16, 8], 100_000, 1e-3),
                ([64, 2], 3_000_000, 1e-3),
                ([68, 1], 1_000_000, 0.05),
                ([12, 12], 1_000_000, 0.05),
                // Parts of a node of two ranks and of one.
                ([10, 10], 1_000_000, 0.25),
                ([67, 1], 1_000_000, 0.25),
            ] {
                let grid = grid(parts);
                assert!(grid.ranks() > EXACT);
                let steps = |rank: usize| {
                    let pass = Step::Pass { bytes: 1_000_000 };
                    let axes = [1, 0].into_iter().filter(|&axis| grid.along(axis) > 1);
                    axes.flat_map(|axis| [pass.clone(), all_to_all(grid, rank, axis, len), Step::Finish]).collect()
                };
                let (folded, all) = (seconds(&machine, grid, steps), whole(&machine, grid, &steps));
                assert!(is_near(folded, all, tolerance), "{path}, {grid}, {len}: {folded} folded, {all} of all");
            }
        }
    }

    /// More chunks than are followed each by itself.
    #[test]
    fn long_exchanges_take_the_time_of_their_bytes_and_messages() {
        let two = grid([2, 1]);
        let machine = Machine { message_seconds: 1e-4, copy_queues: 2, ..simple(ExchangePath::Ring) };
        let chunks = 5000;
        let exchange = |rank| vec![all_to_all(two, rank, 0, chunks << 20), Step::Finish];
        let found = seconds(&machine, two, exchange);
        // What is kept, then the slowest resource, with a window of chunks at either end.
        let least = 3.0 * (chunks << 20) as f64 * 1e-9;
        assert!(found > least && found < 1.05 * least, "{found} {least}");
        // The host is slower than the interface: messages at either end.
        let machine = Machine { message_seconds: 1e-3, ..machine };
        let least = 2.0 * (chunks << 20) as f64 * 1e-9 + 2e-3 * chunks as f64;
        let found = seconds(&machine, two, exchange);
        assert!(found > least && found < 1.05 * least, "{found} {least}");
    }

    #[test]
    fn a_message_that_nobody_sends_takes_forever() {
        let two = grid([2, 1]);
        let steps = |rank| match rank {
            0 => vec![all_to_all(two, 0, 0, 1000), Step::Finish],
            _ => Vec::new(),
        };
        assert_eq!(seconds(&Machine::default(), two, steps), f64::INFINITY);
        assert_eq!(seconds(&Machine::default(), grid([1, 1]), |_| Vec::new()), 0.0);
    }
}
