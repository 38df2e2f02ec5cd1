//! File descriptors of device memory, which processes of a host hand each other over sockets.
//!
//! A driver's file descriptor cannot be opened by its number in another process, unlike a memory
//! file: it has to be sent. A thread of each rank sends the descriptor of a segment to processes
//! that ask for it, so that no rank waits for another one that is busy. Costs: one connection for
//! each segment and peer, at its first message.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::gpu::MemoryFile;
use crate::parallel::locked;

/// Limit of a connection, in which processes of one host send a few bytes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The file descriptors of this rank, by the token of their segment, and the thread that sends
/// them. Dropping the value ends the thread.
pub(super) struct MemoryFiles {
    service: u64,
    files: Arc<Mutex<BTreeMap<u64, MemoryFile>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the address of a service. It has no place in the file system, and is gone with the last
/// descriptor of its socket.
fn address(service: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("meshloom-{service:016x}"))
}

/// Refuses processes of other users, who may connect to any address.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let (own, other) = (rustix::process::geteuid(), socket_peercred(stream)?.uid);
    if own == other { Ok(()) } else { Err(io::Error::other(format!("expected user {own:?}, got {other:?}"))) }
}

impl MemoryFiles {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`io::Error`] if the system refuses the socket or the thread.
    pub fn start() -> io::Result<MemoryFiles> {
        let service = RandomState::new().build_hasher().finish();
        let listener = UnixListener::bind_addr(&address(service)?)?;
        let (files, is_over) = (Arc::<Mutex<BTreeMap<u64, MemoryFile>>>::default(), Arc::<AtomicBool>::default());
        let (offered, end) = (files.clone(), is_over.clone());
        let serve = move || {
            for stream in listener.incoming() {
                if end.load(Ordering::Acquire) {
                    break;
                }
                // The other end sees a connection that ends, and reports it.
                if let Err(error) = stream.and_then(|stream| send(&stream, &offered)) {
                    tracing::debug!(%error, "no file descriptor was sent");
                }
            }
        };
        let thread = thread::Builder::new().name("meshloom memory files".into()).spawn(serve)?;
        Ok(MemoryFiles { service, files, is_over, thread: Some(thread) })
    }

    /// Returns the number by which others find the service.
    pub fn service(&self) -> u64 {
        self.service
    }

    /// Offers the descriptor of a segment.
    pub fn offer(&self, token: u64, file: MemoryFile) {
        locked(&self.files).insert(token, file);
    }
}

impl Drop for MemoryFiles {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // The thread waits for a connection.
        let woken = address(self.service).and_then(|address| UnixStream::connect_addr(&address)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Answers one question.
fn send(mut stream: &UnixStream, files: &Mutex<BTreeMap<u64, MemoryFile>>) -> io::Result<()> {
    check_user(stream)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut token = [0; 8];
    stream.read_exact(&mut token)?;
    let files = locked(files);
    let file = files.get(&u64::from_le_bytes(token)).ok_or_else(|| io::Error::other("unknown segment"))?;
    let (mut space, sent) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [file.as_fd()]);
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&sent));
    rustix::net::sendmsg(stream, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Asks the service of another rank for the descriptor of a segment. Blocks for at most 20 seconds.
///
/// # Errors
/// [`io::Error`] if the service is gone, belongs to another user or does not have the segment.
pub(super) fn fetch(service: u64, token: u64) -> io::Result<MemoryFile> {
    let mut stream = UnixStream::connect_addr(&address(service)?)?;
    check_user(&stream)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&token.to_le_bytes())?;
    let (mut space, mut byte) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [0]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    files.flatten().next().ok_or_else(|| io::Error::other("no file descriptor came"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn descriptors_are_sent_by_their_token() {
        let files = MemoryFiles::start().unwrap();
        let path = std::env::current_exe().unwrap();
        files.offer(7, File::open(&path).unwrap().into());
        let mut begin = [0; 4];
        File::from(fetch(files.service(), 7).unwrap()).read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"\x7fELF");
        // The service goes on after a question without an answer.
        assert!(fetch(files.service(), 8).unwrap_err().to_string().contains("no file descriptor"));
        drop(UnixStream::connect_addr(&address(files.service()).unwrap()));
        assert!(fetch(files.service(), 7).is_ok());
        let service = files.service();
        drop(files);
        assert!(fetch(service, 7).is_err());
    }
}
