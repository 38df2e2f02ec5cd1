//! Collective checks: that all ranks have the same value, and that none has a fault.

use std::fmt::{Debug, Display};

use bytemuck::Pod;

use super::error::with_rank;
use super::{CommError, Communicator, Op, Result};
use crate::hash::{START, fnv1a};

impl Communicator {
    /// Returns the first rank whose `value` differs in its bits from that of rank 0; `None` if all
    /// agree. Collective; the result is equal on all ranks. Call it before work that would hang or
    /// mix up data if the values of ranks differed.
    ///
    /// ```
    /// use meshloom::comm::run_threads;
    ///
    /// let found = run_threads(3, |comm| comm.first_to_differ([0.5_f32, 1.0, 0.5][comm.rank()]))?;
    /// assert_eq!(found, [Some(1); 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn first_to_differ<T: Pod>(&self, value: T) -> Result<Option<usize>> {
        let all = self.all_gather(&[value])?;
        let bytes = |value: &T| bytemuck::bytes_of(value).to_vec();
        Ok(all.iter().position(|other| bytes(other) != bytes(&all[0])))
    }

    /// Checks that every rank calls an operation with the same arguments, which are compared by
    /// their `Debug` texts. Collective; one all-gather of 8 bytes, and texts only after a
    /// difference.
    ///
    /// ```
    /// use meshloom::comm::{CommError, run_threads};
    ///
    /// let texts = run_threads(3, |comm| {
    ///     let count = if comm.rank() == 2 { 7 } else { 5 };
    ///     let error = comm.agree("knn", &[("radius", &0.5), ("count", &count)]).unwrap_err();
    ///     Ok::<_, CommError>(error.to_string())
    /// })?;
    /// assert_eq!(texts[0], "knn: `count` differs between ranks: rank 0 has 5, rank 2 has 7; \
    ///     pass the same value on all ranks");
    /// assert!(texts.iter().all(|text| *text == texts[0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`CommError::Differ`] on all ranks, with the first argument that differs.
    /// - As [`first_to_differ`](Self::first_to_differ).
    pub fn agree(&self, call: &str, arguments: &[(&str, &dyn Debug)]) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        let text = |values: &[(&str, &dyn Debug)]| -> Vec<String> {
            values.iter().map(|(name, value)| format!("{name}\0{value:?}")).collect()
        };
        let own = text(arguments);
        let hash =
            own.iter().fold(fnv1a(START, call.as_bytes()), |hash, text| fnv1a(fnv1a(hash, text.as_bytes()), &[0]));
        let Some(rank) = self.first_to_differ(hash).map_err(|error| error.within(call))? else { return Ok(()) };
        let own = std::iter::once(format!("operation\0{call:?}")).chain(own).collect::<Vec<_>>().join("\x01");
        let [reference, other] = [self.text_of(0, &own)?, self.text_of(rank, &own)?];
        let fields = |text: &str| -> Vec<(String, String)> {
            let field = |text: &str| text.split_once('\0').map(|(name, value)| (name.to_owned(), value.to_owned()));
            text.split('\x01').filter_map(field).collect()
        };
        let (reference, other) = (fields(&reference), fields(&other));
        let differing = reference.iter().zip(&other).find(|(reference, other)| reference != other);
        let (argument, reference, value) = match differing {
            Some(((name, reference), (_, value))) => (name.clone(), reference.clone(), value.clone()),
            None => {
                let count = |fields: &[(String, String)]| format!("{} arguments", fields.len() - 1);
                ("arguments".into(), count(&reference), count(&other))
            }
        };
        let [value, reference] = [value, reference].map(shortened);
        Err(CommError::Differ { call: call.into(), argument, rank, value, reference })
    }

    /// Returns the text of `root` on all ranks. Collective.
    fn text_of(&self, root: usize, own: &str) -> Result<String> {
        let mut text = if self.rank() == root { own.as_bytes().to_vec() } else { Vec::new() };
        let mut len = [text.len() as u64];
        self.broadcast(root, &mut len)?;
        text.resize(len[0] as usize, 0);
        self.broadcast(root, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns what the first rank with a fault says of it, after its number where there are
    /// several ranks; `None` if no rank has one. Collective; the result is the same on all ranks.
    /// To be called with what is wrong with a rank's own part, before work that would wait for a
    /// rank that leaves with an error of its own.
    ///
    /// ```
    /// use meshloom::comm::run_threads;
    ///
    /// let found = run_threads(2, |comm| comm.first_fault((comm.rank() == 1).then_some("there is a hole")))?;
    /// assert_eq!(found, vec![Some("rank 1: there is a hole".to_string()); 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`first_to_differ`](Self::first_to_differ).
    pub fn first_fault(&self, fault: Option<&str>) -> Result<Option<String>> {
        if self.size() == 1 {
            return Ok(fault.map(String::from));
        }
        Ok(self.first_failed(fault)?.map(|(rank, text)| with_rank(rank, &text)))
    }

    /// Runs local work, which may fail, on every rank: if it fails on any, all ranks return an
    /// error with the same message. Collective, one reduction.
    ///
    /// The first rank that failed, and those with the same message, return their own error, all
    /// others [`CommError::Elsewhere`](super::CommError::Elsewhere) with its message. No message
    /// between ranks is left over, so that the program can do something else instead. `work` must
    /// not call a collective of this communicator unless an error in it ends that call on all
    /// ranks.
    ///
    /// ```
    /// use meshloom::comm::{CommError, run_threads};
    /// use meshloom::{Error, io::NpyFile};
    ///
    /// let texts = run_threads(3, |comm| {
    ///     let opened = comm.together(|| match comm.rank() {
    ///         1 => NpyFile::open("missing.npy").map(drop).map_err(Error::from),
    ///         _ => Ok(()),
    ///     });
    ///     comm.barrier()?;
    ///     Ok::<_, CommError>(opened.unwrap_err().to_string())
    /// })?;
    /// assert!(texts[1].starts_with("missing.npy: no such file"));
    /// assert_eq!([&texts[0], &texts[2]], [&format!("rank 1: {}", texts[1]); 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - The error of `work` on the first rank that fails.
    /// - [`Elsewhere`](super::CommError::Elsewhere) on the other ranks then.
    /// - As [`first_to_differ`](Self::first_to_differ) if `work` succeeds here.
    pub fn together<T, E: Display + From<CommError>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let outcome = work();
        if self.size() == 1 {
            return outcome;
        }
        let fault = outcome.as_ref().err().map(E::to_string);
        // Ranks that fail alike, and the one that others report, keep the type of the error.
        let is_own = |rank: usize, message: &str| {
            fault.as_ref().is_some_and(|own| own == message || with_rank(self.rank(), own) == with_rank(rank, message))
        };
        match (self.first_failed(fault.as_deref()), outcome) {
            (Ok(Some((rank, message))), Err(error)) if is_own(rank, &message) => Err(error),
            (Ok(Some((rank, message))), _) => Err(CommError::Elsewhere { rank, message }.into()),
            (Ok(None), outcome) => outcome,
            // Ranks that are out of step cannot be told; this error says why they are.
            (Err(_), Err(error)) => Err(error),
            (Err(error), Ok(_)) => Err(error.into()),
        }
    }

    /// Returns the first rank with a fault and the text of it.
    pub(crate) fn first_failed(&self, fault: Option<&str>) -> Result<Option<(usize, String)>> {
        let none = self.size() as u64;
        let [first] = self.reduced([if fault.is_some() { self.rank() as u64 } else { none }], Op::Min)?;
        if first == none {
            return Ok(None);
        }
        let root = first as usize;
        Ok(Some((root, self.text_of(root, fault.unwrap_or_default())?)))
    }
}

/// Characters of an argument that a message shows.
const SHOWN: usize = 200;

/// Returns the beginning of a long text.
fn shortened(text: String) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}
