//! The backend of one rank alone, which can only send to itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::call::Call;
use super::lane::Lane;
use super::mailbox::{Key, Mailbox};
use super::mismatch::Mismatch;
use super::transport::{Arrived, Group, Payload, Pending, Sent, Target, Transport};
use super::waits::Waits;
use super::{CommError, Result};

/// The only rank.
#[derive(Default)]
pub(super) struct Solo {
    mailbox: Arc<Mailbox>,
    context: u64,
    contexts: Arc<AtomicU64>,
}

impl Transport for Solo {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn rank_in_run(&self, rank: usize) -> usize {
        rank
    }

    fn begin(&self, _call: &Call) {}

    fn announce(&self, _found: &Mismatch) {}

    fn is_out_of_step(&self) -> bool {
        false
    }

    fn send(&self, from: usize, lane: Lane, data: Payload) -> Result<Box<dyn Pending>> {
        self.mailbox.deliver(Key { context: self.context, from, lane }, Payload::Bytes(data.into_bytes()));
        Ok(Box::new(Sent))
    }

    fn receive(&self, from: usize, lane: Lane, target: Target) -> Result<Box<dyn Pending>> {
        let key = Key { context: self.context, from, lane };
        let ticket = self.mailbox.post(key, target);
        Ok(Box::new(SelfReceive { mailbox: self.mailbox.clone(), key, ticket }))
    }

    fn context(&self) -> u64 {
        self.context
    }

    fn waits(&self) -> Option<&Arc<Waits>> {
        None
    }

    fn new_context(&self) -> u64 {
        self.contexts.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn split(&self, mine: Option<Group>) -> Result<Option<Box<dyn Transport>>> {
        let part =
            |Group { context, .. }| Solo { mailbox: self.mailbox.clone(), context, contexts: self.contexts.clone() };
        Ok(mine.map(part).map(|part| Box::new(part) as Box<dyn Transport>))
    }

    fn abort(&self, message: &str) -> ! {
        panic!("aborted: {message}")
    }
}

struct SelfReceive {
    mailbox: Arc<Mailbox>,
    key: Key,
    ticket: u64,
}

impl Pending for SelfReceive {
    fn is_done(&mut self) -> Result<bool> {
        self.mailbox.is_matched(self.ticket, || None)
    }

    fn wait(self: Box<Self>) -> Result<Arrived> {
        self.mailbox.wait(self.ticket, || Some(CommError::not_sent_to_self(0)))
    }
}

impl Drop for SelfReceive {
    fn drop(&mut self) {
        self.mailbox.cancel(self.key, self.ticket);
    }
}
