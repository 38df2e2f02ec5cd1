//! What ranks ask each other when a wait has lasted long.
//!
//! A rank that has waited a while for another asks it where it stands. Ranks answer while they wait themselves, or when
//! they have returned from their body and only wait for the end; one that computes answers later, and nobody minds. So
//! a wait costs no message until it is long, and a rank that leaves need not tell all others. The notes travel on an
//! MPI communicator of their own, which all communicators of a family share.

use std::collections::HashMap;
use std::mem::{self, ManuallyDrop};
use std::os::raw::c_int;
use std::sync::{Arc, Mutex};

use ::mpi::ffi;
use bytemuck::{Pod, Zeroable};

use super::calls::{CALLS, Handle, Request, is_alive, locked, ok};
use crate::comm::Result;
use crate::comm::call::Call;
use crate::comm::gone::Gone;

const TAG: c_int = 0;

/// Where this rank stands in the communicators it has, by their numbers: its last collective, be it over or not.
#[derive(Default)]
pub(super) struct Standings(Mutex<HashMap<u64, Option<Call>>>);

impl Standings {
    pub fn enter(&self, context: u64) {
        locked(&self.0).insert(context, None);
    }

    pub fn begin(&self, context: u64, call: &Call) {
        locked(&self.0).insert(context, Some(*call));
    }

    pub fn drop_out(&self, context: u64) {
        locked(&self.0).remove(&context);
    }

    /// The last collective that this rank has called there.
    pub fn call(&self, context: u64) -> Option<Call> {
        locked(&self.0).get(&context).copied().flatten()
    }

    fn answer(&self, context: u64) -> Answer {
        match locked(&self.0).get(&context) {
            None => Answer::Gone(Gone::Dropped),
            Some(None) => Answer::Nothing,
            Some(Some(call)) => Answer::In(*call),
        }
    }
}

/// What is waited for: a message on this tag of this communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub context: u64,
    pub tag: c_int,
}

/// What a rank says that was asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// This is its last collective there.
    In(Call),
    /// Nothing that would matter.
    Nothing,
    /// Nothing more will come of it there.
    Gone(Gone),
}

/// A question, an answer or the news that its sender fails.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Note {
    context: u64,
    /// The number of the question with the one who asks.
    question: u64,
    call: Call,
    kind: u32,
    tag: u32,
}

const ASKS: u32 = 0;
const IS_IN: u32 = 1;
const SAYS_NOTHING: u32 = 2;
const HAS_LEFT: u32 = 3;
const HAS_DROPPED: u32 = 4;
const FAILS: u32 = 5;

impl Answer {
    fn kind(self) -> (u32, Call) {
        match self {
            Answer::In(call) => (IS_IN, call),
            Answer::Nothing => (SAYS_NOTHING, Call::zeroed()),
            Answer::Gone(Gone::Left) => (HAS_LEFT, Call::zeroed()),
            Answer::Gone(Gone::Dropped) => (HAS_DROPPED, Call::zeroed()),
        }
    }

    fn of(note: &Note) -> Answer {
        match note.kind {
            IS_IN => Answer::In(note.call),
            HAS_LEFT => Answer::Gone(Gone::Left),
            HAS_DROPPED => Answer::Gone(Gone::Dropped),
            _ => Answer::Nothing,
        }
    }
}

/// How far this rank is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Left,
    Failing,
}

struct State {
    stage: Stage,
    /// The receive of the next note from anybody.
    incoming: Request,
    note: Box<Note>,
    outgoing: Vec<(Request, Box<Note>)>,
    /// Questions of this rank, with the answers that have come.
    questions: HashMap<u64, Option<Answer>>,
    next_question: u64,
    /// Questions whose answers have not come, wanted or not.
    unanswered: u64,
    /// The lowest other rank that said it fails.
    lowest_failing: Option<usize>,
}

/// The notes of one rank.
pub(super) struct Inquiries {
    comm: ManuallyDrop<Handle>,
    rank: usize,
    size: usize,
    pub standings: Arc<Standings>,
    state: Mutex<State>,
}

impl Inquiries {
    /// On a communicator of their own, of this rank and size.
    pub fn new(comm: Handle, rank: usize, size: usize) -> Result<Inquiries> {
        let state = State {
            stage: Stage::Running,
            incoming: Request::null(),
            note: Box::new(Note::zeroed()),
            outgoing: Vec::new(),
            questions: HashMap::new(),
            next_question: 0,
            unanswered: 0,
            lowest_failing: None,
        };
        let inquiries = Inquiries {
            comm: ManuallyDrop::new(comm),
            rank,
            size,
            standings: Arc::default(),
            state: Mutex::new(state),
        };
        let _calls = locked(&CALLS);
        inquiries.listen(&mut locked(&inquiries.state))?;
        Ok(inquiries)
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn comm(&self) -> ffi::MPI_Comm {
        self.comm.0
    }

    fn listen(&self, state: &mut State) -> Result<()> {
        let (kind, any, count) = bytes_from_anybody();
        let place: *mut Note = &mut *state.note;
        // SAFETY: the note keeps its place, and is not read before the request is complete.
        let code = unsafe { ffi::MPI_Irecv(place.cast(), count, kind, any, TAG, self.comm.0, &mut state.incoming.0) };
        ok(self.rank, "MPI_Irecv", code)
    }

    fn send(&self, state: &mut State, to: usize, note: Note) -> Result<()> {
        let (kind, _, count) = bytes_from_anybody();
        let (note, mut request) = (Box::new(note), Request::null());
        let place: *const Note = &*note;
        // SAFETY: the note keeps its place until the request is complete.
        let code = unsafe { ffi::MPI_Isend(place.cast(), count, kind, to as c_int, TAG, self.comm.0, &mut request.0) };
        ok(self.rank, "MPI_Isend", code)?;
        state.outgoing.push((request, note));
        Ok(())
    }

    /// Asks a rank where it stands. The lock must be held.
    pub fn ask(&self, whom: usize, stream: Stream) -> Result<u64> {
        let mut state = locked(&self.state);
        let question = state.next_question;
        state.next_question += 1;
        let note = Note { context: stream.context, question, call: Call::zeroed(), kind: ASKS, tag: stream.tag as u32 };
        self.send(&mut state, whom, note)?;
        state.unanswered += 1;
        state.questions.insert(question, None);
        Ok(question)
    }

    /// The answer to a question, if it has come.
    pub fn answer(&self, question: u64) -> Option<Answer> {
        locked(&self.state).questions.get(&question).copied().flatten()
    }

    /// No answer is wanted any more.
    pub fn forget(&self, question: u64) {
        locked(&self.state).questions.remove(&question);
    }

    /// Takes in and answers what has come. The lock must be held. `is_sending` says whether a message to a rank, which
    /// nobody waits for any more, is still under way.
    pub fn poll(&self, is_sending: impl Fn(usize, Stream) -> bool) -> Result<()> {
        let mut state = locked(&self.state);
        state.outgoing.retain_mut(|(request, _)| request.test().1.is_none());
        while !state.incoming.is_null() {
            let (code, status) = state.incoming.test();
            ok(self.rank, "MPI_Test", code)?;
            let Some(status) = status else { break };
            let (note, from) = (*state.note, status.MPI_SOURCE as usize);
            self.listen(&mut state)?;
            match note.kind {
                // One that fails has other things to say.
                ASKS if state.stage == Stage::Failing => {}
                ASKS => {
                    let stream = Stream { context: note.context, tag: note.tag as c_int };
                    let answer = match state.stage {
                        _ if is_sending(from, stream) => Answer::Nothing,
                        Stage::Left => Answer::Gone(Gone::Left),
                        _ => self.standings.answer(note.context),
                    };
                    let (kind, call) = answer.kind();
                    self.send(&mut state, from, Note { kind, call, ..note })?;
                }
                FAILS => {
                    state.lowest_failing = Some(state.lowest_failing.map_or(from, |lowest| lowest.min(from)));
                }
                _ => {
                    state.unanswered = state.unanswered.saturating_sub(1);
                    if let Some(answer) = state.questions.get_mut(&note.question) {
                        *answer = Some(Answer::of(&note));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether nobody owes this rank an answer. One that came after the end would be taken for a message of the next
    /// communicator that gets the number of this one.
    pub fn is_answered(&self) -> bool {
        locked(&self.state).unanswered == 0
    }

    /// From now on this rank has returned from its body.
    pub fn leave(&self) {
        locked(&self.state).stage = Stage::Left;
    }

    /// Tells higher ranks, which give way to it, that this one fails. The lock must be held.
    pub fn tell_failure(&self) -> Result<()> {
        let mut state = locked(&self.state);
        state.stage = Stage::Failing;
        for to in self.rank + 1..self.size {
            self.send(&mut state, to, Note { kind: FAILS, ..Note::zeroed() })?;
        }
        Ok(())
    }

    /// Nobody asks any more. The lock must be held, and MPI be alive.
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

    /// Whether a lower rank is known to fail too.
    pub fn lower_rank_fails(&self) -> bool {
        locked(&self.state).lowest_failing.is_some_and(|lowest| lowest < self.rank)
    }
}

/// The type of bytes, any sender, and the bytes of a note.
fn bytes_from_anybody() -> (ffi::MPI_Datatype, c_int, c_int) {
    // SAFETY: reads constants.
    unsafe { (ffi::RSMPI_UINT8_T, ffi::RSMPI_ANY_SOURCE, size_of::<Note>() as c_int) }
}

impl Drop for Inquiries {
    fn drop(&mut self) {
        {
            let _calls = locked(&CALLS);
            if is_alive() {
                self.end();
            }
        }
        // While somebody owes an answer the communicator stays, lest another gets its number.
        if self.is_answered() {
            // SAFETY: nobody uses it any more.
            unsafe { ManuallyDrop::drop(&mut self.comm) };
        }
    }
}
