//! Counts of messages between ranks that are threads, for tests.

use std::cell::Cell;

thread_local! {
    static SENT: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// Returns how many messages and bytes this thread has sent.
pub(crate) fn sent() -> [u64; 2] {
    SENT.get()
}

/// Counts a message.
pub(super) fn count(bytes: usize) {
    let [messages, all] = SENT.get();
    SENT.set([messages + 1, all + bytes as u64]);
}
