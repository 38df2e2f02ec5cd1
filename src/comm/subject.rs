//! The operation that a message belongs to, on which its sender and its receiver must agree.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::hash::{START, fnv1a};

/// Bytes of text.
const TEXT: usize = 56;

/// The operation that a message belongs to, such as an exchange of a forward transform: its first
/// piece begins with the subject, and a message with another one is refused. Equal if text and
/// settings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Subject {
    /// Hash of the whole text and of the settings.
    hash: u64,
    /// The beginning of the text.
    text: [u8; TEXT],
}

/// Bytes of the subject at the head of a message.
pub(super) const SUBJECT_BYTES: usize = size_of::<Subject>();

impl Subject {
    /// Returns what `text` says in a few words, for errors.
    pub fn new(text: &str) -> Subject {
        let mut subject = Subject { hash: fnv1a(START, text.as_bytes()), text: [0; TEXT] };
        let end = text.len().min(TEXT);
        subject.text[..end].copy_from_slice(&text.as_bytes()[..end]);
        subject
    }

    /// Returns `true` if it is of no operation.
    pub(super) fn is_none(&self) -> bool {
        *self == Subject::zeroed()
    }

    /// Adds settings on which both ranks must agree.
    pub fn with(self, settings: &[u64]) -> Subject {
        Subject { hash: fnv1a(self.hash, bytemuck::cast_slice(settings)), ..self }
    }

    /// Returns the subject that a message begins with; none that anybody has, where it is shorter.
    pub(super) fn of_message(data: &[u8]) -> Subject {
        data.get(..SUBJECT_BYTES).map_or(Subject::zeroed(), bytemuck::pod_read_unaligned)
    }

    /// Both in words, by which they differ.
    pub(super) fn beside(&self, theirs: &Subject) -> [String; 2] {
        [self, theirs].map(|subject| match self.text == theirs.text {
            true => format!("{subject} with settings {:016x}", subject.hash),
            false => subject.to_string(),
        })
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
        assert_eq!(forward.beside(&inverse), ["forward transform", "inverse transform"]);
        let [one, two] = [1, 2].map(|setting| forward.with(&[setting]));
        let told = one.beside(&two);
        assert!(told.iter().all(|text| text.starts_with("forward transform with settings ")) && told[0] != told[1]);
        assert!(Subject::of_message(bytemuck::bytes_of(&one)) == one);
        assert_eq!(forward.beside(&Subject::of_message(&[]))[1], "another exchange");
        // Texts that only differ where they are cut off do differ.
        let long = |end: &str| Subject::new(&("x".repeat(60) + end));
        assert!(long("a").to_string() == "x".repeat(TEXT) && long("a") != long("b"));
    }
}
