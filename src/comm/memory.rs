//! Memory of others that messages are sent from and received into without a copy.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
#[cfg(feature = "mpi")]
use std::sync::OnceLock;

/// Memory that stays where it is as long as the value lives, such as a buffer that a device has
/// mapped for the host.
///
/// # Safety
/// `bytes` bytes from `place` on are valid for reads where messages are sent from it, and for
/// writes where they are received into it, from any thread, as long as the value lives. What is
/// being sent is not written meanwhile, and what is being received is neither read nor written by
/// anybody else.
pub(crate) unsafe trait Memory: Send + Sync {
    /// Returns where it begins.
    fn place(&self) -> NonNull<u8>;
    /// Returns how much there is.
    fn bytes(&self) -> usize;
}

/// A block of this process's own memory.
struct Block(Box<[UnsafeCell<u8>]>);

// SAFETY: the bytes keep their place. Spans give access to the block only, and its user accesses it
// while no message does.
unsafe impl Memory for Block {
    fn place(&self) -> NonNull<u8> {
        NonNull::from(&self.0[..]).cast()
    }
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: as above.
unsafe impl Sync for Block {}

/// Memory that spans are parts of.
struct Shared {
    memory: Arc<dyn Memory>,
    /// Whether the kernel lets MPI libraries at the memory, which is of one mapping, once asked.
    #[cfg(feature = "mpi")]
    is_reachable: OnceLock<bool>,
}

/// A part of such memory, which it keeps alive.
#[derive(Clone)]
pub(crate) struct Span {
    shared: Arc<Shared>,
    start: usize,
    bytes: usize,
}

impl Span {
    /// Returns all of it.
    pub fn new(memory: Arc<dyn Memory>) -> Span {
        let bytes = memory.bytes();
        let shared = Shared {
            memory,
            #[cfg(feature = "mpi")]
            is_reachable: OnceLock::new(),
        };
        Span { shared: Arc::new(shared), start: 0, bytes }
    }

    /// Returns a new block that holds these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Span {
        Span::new(Arc::new(Block(bytes.iter().map(|&byte| UnsafeCell::new(byte)).collect())))
    }

    /// Returns a copy of the bytes, once no message is received into them.
    pub fn to_vec(&self) -> Vec<u8> {
        self.sent().to_vec()
    }

    /// `bytes` bytes from byte `start` on, which must lie inside.
    pub fn part(&self, start: usize, bytes: usize) -> Span {
        assert!(start <= self.bytes && bytes <= self.bytes - start, "a part of a span lies inside it");
        Span { shared: self.shared.clone(), start: self.start + start, bytes }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns where it begins.
    pub(super) fn place(&self) -> NonNull<u8> {
        // SAFETY: `part` keeps every span inside its memory.
        unsafe { self.shared.memory.place().add(self.start) }
    }

    /// Returns the answer of `ask` to whether the kernel lets MPI libraries at the memory. Asks
    /// once for all spans of one memory.
    #[cfg(feature = "mpi")]
    pub(super) fn is_reachable(&self, ask: impl FnOnce() -> bool) -> bool {
        *self.shared.is_reachable.get_or_init(ask)
    }

    /// Returns what is sent.
    pub(super) fn sent(&self) -> &[u8] {
        // SAFETY: `Memory` guarantees that it is writable, that nothing else uses it, and that it
        // does not overlap the memory that is sent.
        unsafe { slice::from_raw_parts(self.place().as_ptr(), self.bytes) }
    }

    /// Puts what was received at its beginning, as much as it holds.
    pub(super) fn receive(&self, data: &[u8]) {
        // SAFETY: `Memory` guarantees that it is writable and unused, and that it is not what is
        // sent.
        unsafe { self.place().copy_from_nonoverlapping(NonNull::from(data).cast(), data.len().min(self.bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CommError, Subject, run_threads};
    use super::*;

    fn span(bytes: Vec<u8>) -> Span {
        Span::of_bytes(&bytes)
    }

    #[test]
    fn memory_is_copied_to_its_receiver_whoever_comes_first() {
        for most in [1 << 20, 3, 4] {
            run_threads(2, |comm| {
                let comm = comm.with_max_message(most);
                if comm.rank() == 0 {
                    let data = span((0..10).collect()).part(1, 8);
                    comm.barrier()?;
                    assert!(comm.send_from(1, 0, &data, None)?.is_done()?, "the receiver has asked for it before");
                    let mut sending = comm.send_from(1, 1, &data, None)?;
                    assert!(!sending.is_done()?, "it lies where it is until the receiver asks for it");
                    comm.barrier()?;
                    comm.barrier()?;
                    assert!(sending.is_done()?);
                    // A vector arrives in memory, and memory in a vector.
                    drop(comm.send(1, 2, vec![3; 8])?);
                    drop(comm.send_from(1, 3, &data, None)?);
                    drop(comm.send_from(1, 4, &data, None)?);
                    return comm.barrier();
                }
                let places = [span(vec![0; 8]), span(vec![0; 8]), span(vec![0; 8])];
                let first = comm.receive_into(0, 0, &places[0], None)?;
                drop(comm.receive_into(0, 1, &span(vec![0; 8]), None)?);
                comm.barrier()?;
                first.wait()?;
                comm.barrier()?;
                assert!(comm.receive_into(0, 1, &places[1], None)?.wait()?.is_empty());
                comm.barrier()?;
                comm.receive_into(0, 2, &places[2], None)?.wait()?;
                let data = [1, 2, 3, 4, 5, 6, 7, 8];
                assert_eq!(places.each_ref().map(Span::sent), [&data, &data, &[3; 8]]);
                assert_eq!(comm.receive(0, 3, 8)?.wait()?, data);
                let error = comm.receive_into(0, 4, &span(vec![0; 7]), None)?.wait().expect_err("it has eight bytes");
                assert!(matches!(error, CommError::MessageSize { expected: 7, got: 8.., .. }), "{error}");
                comm.barrier()
            })
            .unwrap_or_else(|error| panic!("pieces of {most}: {error}"));
        }
    }

    /// Messages that are copied behind their subject, and those that follow it, in one piece and in
    /// several.
    #[test]
    fn a_message_of_another_subject_is_refused_whatever_its_length() {
        let [one, other] = ["one thing", "another thing"].map(Subject::new);
        let data = |bytes: usize| (0..bytes).map(|n| n as u8).collect::<Vec<_>>();
        for (most, sent, asked) in
            [(1 << 20, 8, 8), (4, 8, 8), (1 << 20, 40_000, 40_000), (1 << 20, 40_000, 8), (1 << 20, 8, 40_000)]
        {
            run_threads(2, |comm| {
                let comm = comm.with_max_message(most);
                if comm.rank() == 0 {
                    let sending = [(0, one), (1, one), (2, other)]
                        .map(|(tag, subject)| comm.send_from(1, tag, &span(data(sent)), Some(&subject)));
                    comm.barrier()?;
                    return sending.into_iter().try_for_each(|sending| sending.map(drop));
                }
                let place = span(vec![0; asked]);
                let first = comm.receive_into(0, 0, &place, Some(&one))?.wait();
                if sent == asked {
                    assert!(first?.is_empty() && place.sent() == data(sent));
                } else {
                    assert!(matches!(first, Err(CommError::MessageSize { .. })), "{first:?}");
                }
                for (tag, mine, other_called) in [(1, other, "called one thing"), (2, one, "called another thing")] {
                    let error = comm.receive_into(0, tag, &span(vec![0; asked]), Some(&mine))?.wait();
                    let Err(CommError::Mismatch { rank: 1, other: 0, other_called: found, .. }) = error else {
                        panic!("{error:?}")
                    };
                    assert_eq!(found, other_called);
                }
                comm.barrier()
            })
            .unwrap_or_else(|error| panic!("pieces of {most}, {sent} bytes for {asked}: {error}"));
        }
    }

    #[test]
    fn a_sender_whose_memory_is_not_wanted_hears_of_it() {
        let error = run_threads(2, |comm| match comm.rank() {
            0 => comm.send_from(1, 0, &span(vec![1; 8]), None)?.wait().map(drop),
            _ => Ok(()),
        });
        let text = error.expect_err("rank 1 leaves").to_string();
        assert!(text.contains("rank 1 is gone") && text.contains("a message to it waited"), "{text}");
    }
}
