//! What a message is part of, which its sender and its receiver must both take it for.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use super::CommError;
use crate::hash::{START, fnv1a};

/// Bytes of text.
const TEXT: usize = 56;

/// What a message is part of, such as an exchange of a forward transform: its first piece begins with it, and one that begins with another is refused. Equal where
/// text and settings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Subject {
    /// Of the whole text and of the settings.
    hash: u64,
    /// The beginning of the text.
    text: [u8; TEXT],
}

/// Bytes of the subject at the head of a message.
pub(super) const SUBJECT_BYTES: usize = size_of::<Subject>();

impl Subject {
    /// What `text` says in a few words, for errors.
    pub fn new(text: &str) -> Subject {
        let mut subject = Subject { hash: fnv1a(START, text.as_bytes()), text: [0; TEXT] };
        let end = text.len().min(TEXT);
        subject.text[..end].copy_from_slice(&text.as_bytes()[..end]);
        subject
    }

    /// The same with more that both must have alike.
    pub fn with(self, settings: &[u64]) -> Subject {
        Subject { hash: fnv1a(self.hash, bytemuck::cast_slice(settings)), ..self }
    }

    /// The subject that a message begins with; none that anybody has, where it is shorter.
    fn of_message(data: &[u8]) -> Subject {
        data.get(..SUBJECT_BYTES).map_or(Subject::zeroed(), bytemuck::pod_read_unaligned)
    }

    /// Checks that a message from rank `from` begins with this.
    ///
    /// # Errors
    /// [`CommError::Mismatch`].
    pub(super) fn check(&self, rank: usize, from: usize, data: &[u8]) -> Result<(), CommError> {
        let theirs = Subject::of_message(data);
        if theirs == *self {
            return Ok(());
        }
        let settings = |subject: &Subject| match self.text == theirs.text {
            true => format!("{subject} with settings {:016x}", subject.hash),
            false => subject.to_string(),
        };
        let (called, other_called) = (settings(self), format!("called {}", settings(&theirs)));
        Err(CommError::Mismatch { rank, called, other: from, other_called })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.text.iter().position(|&byte| byte == 0).unwrap_or(TEXT);
        match end {
            // What is cut off because it is longer than what was asked for need not have arrived.
            0 => f.write_str("another exchange"),
            end => f.write_str(&String::from_utf8_lossy(&self.text[..end])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_named_and_settings_told_apart() {
        let [forward, inverse] = ["forward transform", "inverse transform"].map(Subject::new);
        let error = |mine: &Subject, theirs: &Subject| {
            mine.check(1, 4, bytemuck::bytes_of(theirs)).map_err(|error| error.to_string())
        };
        assert!(error(&forward, &forward).is_ok());
        let told = error(&forward, &inverse).unwrap_err();
        assert!(told.contains("rank 1 called forward transform, but rank 4 called inverse transform;"), "{told}");
        let told = error(&forward.with(&[1]), &forward.with(&[2])).unwrap_err();
        assert!(told.matches("forward transform with settings ").count() == 2, "{told}");
        assert!(forward.check(1, 4, &[]).unwrap_err().to_string().contains("rank 4 called another exchange"));
        // Texts that only differ where they are cut off do differ.
        let long = |end: &str| Subject::new(&("x".repeat(60) + end));
        assert!(long("a").to_string() == "x".repeat(TEXT) && long("a") != long("b"));
    }
}
