//! Status queries: how a rank that waits for long learns whether the other rank can still send.
//!
//! A rank that has waited for about a second asks the other one for its status: which collective it
//! has called last, or that it has left; and which wait keeps it, if it blocks. Then it follows the
//! chain of these waits (`comm::cycle`), with one query for each step, so that it has at most one
//! query under way for each message that it polls. Ranks answer while they wait themselves, or when
//! they have returned from their body and wait for the end; one that computes answers at its next
//! wait. So a short wait costs no message, and a rank that leaves need not tell all others. The
//! notes (queries, answers, and announcements of a failure or of what a rank has found) travel on
//! an MPI communicator of their own, which all communicators of a family share.

use std::collections::HashMap;
use std::mem::{self, ManuallyDrop};
use std::os::raw::c_int;
use std::sync::{Arc, Mutex};

use ::mpi::ffi;
use bytemuck::{Pod, Zeroable};

use super::{CALLS, Handle, Request, is_alive, ok};
use crate::comm::cycle::{Cycle, deadlock};
use crate::comm::{Call, CommError, Did, Differing, Gone, Mismatch, Result, Subject, Wait, Waits, run};
use crate::parallel::locked;

#[derive(Default)]
struct FoundErrors {
    /// The first mismatch in each communicator that has one, by their numbers.
    mismatches: HashMap<u64, Mismatch>,
    /// The error of the first cycle of ranks that wait for each other, in whatever communicators.
    deadlock: Option<CommError>,
}

/// Errors of several ranks of a family of communicators.
#[derive(Default)]
pub(super) struct Findings(Mutex<FoundErrors>);

impl Findings {
    /// Notes a mismatch unless one is noted already; returns `true` if it does. A mismatch of
    /// collectives replaces one of exchanges, which does not end waits in collectives.
    pub fn note_mismatch(&self, context: u64, found: Mismatch) -> bool {
        let all = &mut locked(&self.0).mismatches;
        let is_news = all.get(&context).is_none_or(|before| before.is_of_exchanges() && !found.is_of_exchanges());
        if is_news {
            all.insert(context, found);
        }
        is_news
    }

    /// Returns the first mismatch in a communicator.
    pub fn mismatch(&self, context: u64) -> Option<Mismatch> {
        locked(&self.0).mismatches.get(&context).copied()
    }

    /// Notes the error of ranks that wait for each other, unless there was one before; returns
    /// whether it does.
    pub fn note_deadlock(&self, error: CommError) -> bool {
        let deadlock = &mut locked(&self.0).deadlock;
        let is_news = deadlock.is_none();
        deadlock.get_or_insert(error);
        is_news
    }

    /// Returns the error of ranks that wait for each other.
    pub fn deadlock(&self) -> Option<CommError> {
        locked(&self.0).deadlock.clone()
    }

    /// Returns `true` if nothing was found.
    pub fn is_empty(&self) -> bool {
        let state = locked(&self.0);
        state.mismatches.is_empty() && state.deadlock.is_none()
    }
}

const TAG: c_int = 0;

/// The last collective that this rank has called in each of its communicators, by their numbers.
#[derive(Default)]
pub(super) struct LastCalls(Mutex<HashMap<u64, Option<Call>>>);

impl LastCalls {
    /// Adds a communicator, in which nothing was called yet.
    pub fn insert(&self, context: u64) {
        locked(&self.0).insert(context, None);
    }

    pub fn set(&self, context: u64, call: &Call) {
        locked(&self.0).insert(context, Some(*call));
    }

    pub fn remove(&self, context: u64) {
        locked(&self.0).remove(&context);
    }

    pub fn get(&self, context: u64) -> Option<Call> {
        locked(&self.0).get(&context).copied().flatten()
    }

    fn status(&self, context: u64) -> Status {
        match locked(&self.0).get(&context) {
            None => Status::Gone(Gone::Dropped),
            Some(None) => Status::Unknown,
            Some(Some(call)) => Status::Called(*call),
        }
    }
}

/// The messages that a wait is about: those of one tag of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub context: u64,
    pub tag: c_int,
}

/// The status of a rank in a communicator.
#[derive(Clone, Copy, Debug)]
pub(super) enum Status {
    /// The last collective that it has called, which may be over.
    Called(Call),
    /// Nothing follows for the wait.
    Unknown,
    /// It will send nothing more there.
    Gone(Gone),
}

/// The answer to a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub status: Status,
    /// The wait that keeps the rank, not a blocking one if nothing does.
    pub wait: Wait,
}

/// A message of this protocol: a query, its answer, or the announcement that the sender fails or
/// has found a mismatch or ranks that wait for each other.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Note {
    context: u64,
    /// The query's number on the rank that sent it.
    query: u64,
    call: Call,
    kind: u32,
    tag: u32,
    /// Call of the sender, in a mismatch.
    found_in: Call,
    /// The sender, and the rank that did otherwise: `call`, or what `other_kind` says.
    rank: u32,
    other: u32,
    other_kind: u32,
    /// Number of waits that are announced, one in each note, and of others that the error counts.
    announced: u32,
    others: u64,
    /// The wait that a query asks about, and the one that keeps its receiver; one of a cycle.
    wait: Wait,
    /// Subjects, in a mismatch of exchanges.
    subjects: [Subject; 2],
}

// Values of `Note::kind`.
const QUERY: u32 = 0;
const CALLED: u32 = 1;
const UNKNOWN: u32 = 2;
const LEFT: u32 = 3;
const DROPPED: u32 = 4;
const FAILURE: u32 = 5;
const MISMATCH: u32 = 6;
const MISMATCH_OF_EXCHANGES: u32 = 7;
const DEADLOCK: u32 = 8;

impl Status {
    /// Returns the kind of a note that carries this status, and its call.
    fn to_note(self) -> (u32, Call) {
        match self {
            Status::Called(call) => (CALLED, call),
            Status::Unknown => (UNKNOWN, Call::zeroed()),
            Status::Gone(Gone::Left) => (LEFT, Call::zeroed()),
            Status::Gone(Gone::Dropped) => (DROPPED, Call::zeroed()),
        }
    }

    fn from_note(note: &Note) -> Status {
        match note.kind {
            CALLED => Status::Called(note.call),
            LEFT => Status::Gone(Gone::Left),
            DROPPED => Status::Gone(Gone::Dropped),
            _ => Status::Unknown,
        }
    }
}

impl Note {
    /// Returns the note of a mismatch in a communicator.
    fn of_mismatch(context: u64, found: &Mismatch) -> Note {
        let (rank, other) = (found.rank as u32, found.other as u32);
        let note = Note { context, rank, other, ..Note::zeroed() };
        let (found_in, did) = match found.differing {
            Differing::Collectives(call, Did::Called(theirs)) => (call, Status::Called(theirs)),
            Differing::Collectives(call, Did::Gone(gone)) => (call, Status::Gone(gone)),
            Differing::Exchanges(subjects) => return Note { kind: MISMATCH_OF_EXCHANGES, subjects, ..note },
        };
        let (other_kind, call) = did.to_note();
        Note { kind: MISMATCH, call, found_in, other_kind, ..note }
    }

    /// Returns the mismatch of a note.
    fn mismatch(&self) -> Mismatch {
        let did = match self.other_kind {
            LEFT => Did::Gone(Gone::Left),
            DROPPED => Did::Gone(Gone::Dropped),
            _ => Did::Called(self.call),
        };
        let differing = match self.kind {
            MISMATCH_OF_EXCHANGES => Differing::Exchanges(self.subjects),
            _ => Differing::Collectives(self.found_in, did),
        };
        Mismatch { rank: self.rank as usize, other: self.other as usize, differing }
    }
}

/// Phase of this rank's body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Left,
    Failing,
}

struct State {
    phase: Phase,
    /// The receive of the next note from any rank, and its buffer.
    incoming: Request,
    note: Box<Note>,
    outgoing: Vec<(Request, Box<Note>)>,
    /// Queries of this rank whose answers are wanted, with those that have come.
    queries: HashMap<u64, Option<Answer>>,
    next_query: u64,
    /// Queries whose answers have not come, wanted or not.
    unanswered: u64,
    /// The lowest other rank that has announced a failure.
    lowest_failing: Option<usize>,
    /// Waits of cycles that other ranks announce, by those ranks.
    announced: HashMap<usize, Vec<Wait>>,
}

/// One rank's end of the protocol.
pub(super) struct StatusProtocol {
    pub comm: ManuallyDrop<Handle>,
    pub rank: usize,
    size: usize,
    pub last_calls: Arc<LastCalls>,
    pub findings: Arc<Findings>,
    pub waits: Arc<Waits>,
    state: Mutex<State>,
}

impl StatusProtocol {
    /// On `comm`, which carries nothing else and has this rank and size.
    pub fn new(comm: Handle, rank: usize, size: usize) -> Result<StatusProtocol> {
        let state = State {
            phase: Phase::Running,
            incoming: Request::null(),
            note: Box::new(Note::zeroed()),
            outgoing: Vec::new(),
            queries: HashMap::new(),
            next_query: 0,
            unanswered: 0,
            lowest_failing: None,
            announced: HashMap::new(),
        };
        let protocol = StatusProtocol {
            comm: ManuallyDrop::new(comm),
            rank,
            size,
            last_calls: Arc::default(),
            findings: Arc::default(),
            waits: Arc::new(Waits::new(rank)),
            state: Mutex::new(state),
        };
        let _calls = locked(&CALLS);
        protocol.post_receive(&mut locked(&protocol.state))?;
        Ok(protocol)
    }

    fn post_receive(&self, state: &mut State) -> Result<()> {
        let (bytes, any, count) = note_as_bytes();
        let place: *mut Note = &mut *state.note;
        // SAFETY: the note keeps its place, and is not read before the request is complete.
        let code = unsafe { ffi::MPI_Irecv(place.cast(), count, bytes, any, TAG, self.comm.0, &mut state.incoming.0) };
        ok(self.rank, "MPI_Irecv", code)
    }

    fn send(&self, state: &mut State, to: usize, note: Note) -> Result<()> {
        let (bytes, _, count) = note_as_bytes();
        let (note, mut request) = (Box::new(note), Request::null());
        let place: *const Note = &*note;
        // SAFETY: the note keeps its place until the request is complete.
        let code = unsafe { ffi::MPI_Isend(place.cast(), count, bytes, to as c_int, TAG, self.comm.0, &mut request.0) };
        ok(self.rank, "MPI_Isend", code)?;
        state.outgoing.push((request, note));
        Ok(())
    }

    /// Asks the rank that `wait` is for, of which a message of `stream` is waited for, for its
    /// status; returns the query's number. The caller holds the lock of MPI calls.
    pub fn query(&self, stream: Stream, wait: Wait) -> Result<u64> {
        let mut state = locked(&self.state);
        let query = state.next_query;
        state.next_query += 1;
        let Stream { context, tag } = stream;
        let note = Note { context, query, kind: QUERY, tag: tag as u32, wait, ..Note::zeroed() };
        self.send(&mut state, wait.peer as usize, note)?;
        state.unanswered += 1;
        state.queries.insert(query, None);
        Ok(query)
    }

    /// Returns the answer to a query, if it has come; the query ends with it.
    pub fn take_answer(&self, query: u64) -> Option<Answer> {
        let mut state = locked(&self.state);
        let answer = state.queries.get(&query).copied().flatten()?;
        state.queries.remove(&query);
        Some(answer)
    }

    /// Ends a query: its answer is not wanted any more.
    pub fn drop_query(&self, query: u64) {
        locked(&self.state).queries.remove(&query);
    }

    /// Handles the notes that have come, and answers queries. The caller holds the lock of MPI
    /// calls. `is_sending` returns whether a detached message to a rank is still under way on a
    /// stream.
    pub fn poll(&self, is_sending: impl Fn(usize, Stream) -> bool) -> Result<()> {
        let mut state = locked(&self.state);
        state.outgoing.retain_mut(|(request, _)| request.test().1.is_none());
        while !state.incoming.is_null() {
            let (code, status) = state.incoming.test();
            ok(self.rank, "MPI_Test", code)?;
            let Some(status) = status else { break };
            let (note, from) = (*state.note, status.MPI_SOURCE as usize);
            self.post_receive(&mut state)?;
            match note.kind {
                // A failing rank ends all others soon, with its own message.
                QUERY if state.phase == Phase::Failing => {}
                QUERY => {
                    let stream = Stream { context: note.context, tag: note.tag as c_int };
                    let nothing = Wait::zeroed();
                    let (status, wait) = match state.phase {
                        _ if is_sending(note.wait.rank as usize, stream) => (Status::Unknown, nothing),
                        Phase::Left => (Status::Gone(Gone::Left), nothing),
                        _ => (self.last_calls.status(note.context), self.waits.keeping(&note.wait).unwrap_or(nothing)),
                    };
                    let (kind, call) = status.to_note();
                    self.send(&mut state, from, Note { kind, call, wait, ..note })?;
                }
                FAILURE => {
                    run::note_ending();
                    state.lowest_failing = Some(state.lowest_failing.map_or(from, |lowest| lowest.min(from)));
                }
                MISMATCH | MISMATCH_OF_EXCHANGES => {
                    self.findings.note_mismatch(note.context, note.mismatch());
                }
                DEADLOCK => self.take_announced(&mut state, from, &note),
                _ => {
                    state.unanswered = state.unanswered.saturating_sub(1);
                    if let Some(answer) = state.queries.get_mut(&note.query) {
                        *answer = Some(Answer { status: Status::from_note(&note), wait: note.wait });
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes one of the notes by which rank `from` announces ranks that wait for each other.
    fn take_announced(&self, state: &mut State, from: usize, note: &Note) {
        let waits = state.announced.entry(from).or_default();
        waits.push(note.wait);
        if waits.len() == note.announced as usize {
            self.findings.note_deadlock(deadlock(waits, note.others as usize));
        }
    }

    /// Returns `true` if all queries of this rank are answered. An answer that arrived after the
    /// end would be received on the next communicator to which MPI gives the number of this one.
    pub fn is_answered(&self) -> bool {
        locked(&self.state).unanswered == 0
    }

    /// Notes that this rank has returned from its body.
    pub fn leave(&self) {
        locked(&self.state).phase = Phase::Left;
    }

    /// Notes that this rank fails. The caller holds the lock of MPI calls.
    pub fn fail(&self) {
        locked(&self.state).phase = Phase::Failing;
    }

    /// Announces to all other ranks that this one fails: higher ones let it report first, and all
    /// know the meaning of the launcher's signal that follows. The caller holds the lock of MPI
    /// calls.
    pub fn announce_failure(&self) -> Result<()> {
        let mut state = locked(&self.state);
        for to in (0..self.size).filter(|&to| to != self.rank) {
            self.send(&mut state, to, Note { kind: FAILURE, ..Note::zeroed() })?;
        }
        Ok(())
    }

    /// Announces this rank's finding to all other `members` of a communicator, unless something was
    /// found in it before; returns `true` if it does. The caller holds the lock of MPI calls.
    pub fn announce_mismatch(&self, context: u64, members: &[usize], found: &Mismatch) -> Result<bool> {
        if !self.findings.note_mismatch(context, *found) {
            return Ok(false);
        }
        let mut state = locked(&self.state);
        for &to in members.iter().filter(|&&member| member != self.rank) {
            self.send(&mut state, to, Note::of_mismatch(context, found))?;
        }
        Ok(true)
    }

    /// Returns the error of ranks that wait for each other, and announces it to all other ranks,
    /// with at most [`NAMED`](crate::comm::cycle::NAMED) notes for each, unless such ranks were
    /// found before. The caller holds the lock of MPI calls.
    pub fn announce_deadlock(&self, cycle: &Cycle) -> Result<CommError> {
        let (waits, others) = cycle.named();
        let error = deadlock(&waits, others);
        if !self.findings.note_deadlock(error.clone()) {
            return Ok(self.findings.deadlock().unwrap_or(error));
        }
        let (announced, others, mut state) = (waits.len() as u32, others as u64, locked(&self.state));
        for to in (0..self.size).filter(|&to| to != self.rank) {
            for &wait in &waits {
                self.send(&mut state, to, Note { kind: DEADLOCK, announced, others, wait, ..Note::zeroed() })?;
            }
        }
        Ok(error)
    }

    /// Returns `true` if no note is on its way out.
    pub fn is_sent(&self) -> bool {
        locked(&self.state).outgoing.is_empty()
    }

    /// Cancels the receive of notes and lets go of those under way. The caller holds the lock of
    /// MPI calls, and MPI is alive.
    pub fn end(&self) {
        let mut state = locked(&self.state);
        let State { incoming, outgoing, .. } = &mut *state;
        if !incoming.is_null() {
            // SAFETY: an active receive; once cancelled, or else complete, its wait returns.
            unsafe {
                let mut status: ffi::MPI_Status = mem::zeroed();
                ffi::MPI_Cancel(&mut incoming.0);
                ffi::MPI_Wait(&mut incoming.0, &mut status);
            }
        }
        for (mut request, note) in outgoing.drain(..) {
            if request.test().1.is_none() {
                mem::forget(note); // MPI may still read it
            }
        }
    }

    /// Returns `true` if a lower rank has announced a failure.
    pub fn lower_rank_fails(&self) -> bool {
        locked(&self.state).lowest_failing.is_some_and(|lowest| lowest < self.rank)
    }
}

/// Returns what calls that send and receive notes need: MPI's type of bytes, its constant for any
/// sender, and the size of a note.
fn note_as_bytes() -> (ffi::MPI_Datatype, c_int, c_int) {
    // SAFETY: reads constants.
    unsafe { (ffi::RSMPI_UINT8_T, ffi::RSMPI_ANY_SOURCE, size_of::<Note>() as c_int) }
}

impl Drop for StatusProtocol {
    fn drop(&mut self) {
        {
            let _calls = locked(&CALLS);
            if is_alive() {
                self.end();
            }
        }
        // While an answer or the note of a finding may still come the communicator is kept, so
        // that no other gets its number, and with it the note.
        if self.is_answered() && self.findings.is_empty() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.comm) };
        }
    }
}
