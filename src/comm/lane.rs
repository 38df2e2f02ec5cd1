//! Streams of messages between two ranks: one per tag of the caller, and one for collectives.

/// The largest tag: what every MPI library carries, less one that collectives use.
pub const MAX_TAG: u32 = 32_766;

/// A stream. Messages of different lanes never match each other's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Messages of the caller, by tag (at most [`MAX_TAG`]).
    User(u32),
    /// Messages of collectives, each with its call at the head.
    Collective,
}
