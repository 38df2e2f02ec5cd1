//! Streams of messages between two ranks: one per tag of the caller, one for collectives, and some
//! for the layers above.

use std::ops::Range;

/// The largest tag of a caller's messages. Every MPI library carries 4097 more: those of exchanges
/// of device data, and one that collectives use.
pub const MAX_TAG: u32 = 28_670;

/// Tags that are reserved for the layers above; messages of callers cannot have them.
pub(crate) const RESERVED_TAGS: Range<u32> = MAX_TAG + 1..32_767;

/// Tags of the messages of exchanges, from the first of [`RESERVED_TAGS`] on. Credits, which a
/// receiver returns for messages that it has copied itself, have the tags as far above.
pub(crate) const EXCHANGE_TAGS: u32 = (RESERVED_TAGS.end - RESERVED_TAGS.start) / 2;

/// A stream. Messages of different lanes never match each other's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Messages of the caller, by tag (at most [`MAX_TAG`]), and of the layers above
    /// ([`RESERVED_TAGS`]).
    User(u32),
    /// Messages of collectives, each with its call at the head.
    Collective,
}

impl Lane {
    /// Returns `true` if it is of a layer above, which exchanges.
    pub fn is_reserved(self) -> bool {
        matches!(self, Lane::User(tag) if RESERVED_TAGS.contains(&tag))
    }

    /// Returns its tag: that of its messages, or the one above all others for collectives.
    pub fn tag(self) -> u32 {
        match self {
            Lane::User(tag) => tag,
            Lane::Collective => RESERVED_TAGS.end,
        }
    }
}
