//! The state of the model: resources, ranks, exchanges and messages.

use std::collections::VecDeque;

use super::Step;

/// A resource that serves requests one after the other.
#[derive(Clone, Copy, Default)]
pub(super) struct Server {
    pub free: f64,
}

impl Server {
    /// Returns the end of a request that begins at `from` or when the server is free.
    pub fn serve(&mut self, from: f64, seconds: f64) -> f64 {
        self.free = self.free.max(from) + seconds;
        self.free
    }
}

/// The queues of a device.
#[derive(Clone, Default)]
pub(super) struct Device {
    pub passes: Server,
    pub copies: [Server; 2],
}

/// The resources that the ranks of a node share.
#[derive(Default)]
pub(super) struct Node {
    pub cores: Vec<Server>,
    pub memory: Server,
    pub devices: Vec<Device>,
    /// Interfaces, out and in.
    pub nics: Vec<[Server; 2]>,
    /// The node's part of the links between switches.
    pub uplink: Server,
}

#[derive(Default)]
pub(super) struct RankState {
    pub node: usize,
    pub device: usize,
    pub nic: usize,
    pub host: Server,
    pub steps: VecDeque<Step>,
    /// Seconds of passes that are recorded and not submitted.
    pub recorded: f64,
    /// Ends of the passes and of the copies to the device that were submitted.
    pub passed: f64,
    pub copied: f64,
    /// Numbers of the exchanges that it has not started, in order.
    pub exchanges: VecDeque<usize>,
    pub in_flight: VecDeque<usize>,
    pub is_waiting: bool,
    pub end: Option<f64>,
}

/// One half of an exchange of a rank.
#[derive(Default)]
pub(super) struct Half {
    /// Messages that are not done, by chunk.
    pub left: Vec<usize>,
    /// The first chunk that is not done.
    pub front: usize,
    /// The first chunk that is not under way.
    pub next: usize,
}

impl Half {
    pub fn is_done(&self) -> bool {
        self.front == self.left.len()
    }

    /// Counts a message of `chunk` as done, and returns the chunks that leave the window.
    pub fn count(&mut self, chunk: usize) -> std::ops::Range<usize> {
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
pub(super) struct CopyIn {
    pub bytes: u64,
    pub lent: Option<usize>,
}

#[derive(Default)]
pub(super) struct ExchangeState {
    pub send: Half,
    pub receive: Half,
    pub to_copy: Vec<CopyIn>,
    pub is_submitting: bool,
    /// Copies to the device that must end before the exchange does.
    pub copying: usize,
}

impl ExchangeState {
    pub fn is_done(&self) -> bool {
        let is_copied = self.to_copy.is_empty() && !self.is_submitting && self.copying == 0;
        self.send.is_done() && self.receive.is_done() && is_copied
    }
}

/// State of a message.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    pub is_injected: bool,
    pub is_requested: bool,
    pub has_left: bool,
    pub has_arrived: bool,
}
