//! Where the pairs of a histogram are counted.

use super::group_shape::GroupShape;

/// Bins that an invocation counts in registers, one for each edge.
pub(super) const FEW_BINS: u32 = 16;
/// Bins that a workgroup counts in its memory, 8 KiB.
pub(super) const WORKGROUP_BINS: u32 = 2048;

/// Where pairs are counted before they are added to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tally {
    /// In registers of each invocation, then in workgroup memory.
    Registers,
    /// In workgroup memory.
    Workgroup,
    /// Nowhere: each is added to the result.
    Result,
}

impl Tally {
    /// Software renderers, whose invocations have several queries each, count few bins in registers: an access to workgroup memory takes them as
    /// long as comparing with all edges. On a GPU the registers would cost half of the groups in flight.
    pub fn of(form: GroupShape, bins: u32) -> Self {
        match bins {
            ..=FEW_BINS if form.slots > 1 => Tally::Registers,
            ..=WORKGROUP_BINS => Tally::Workgroup,
            _ => Tally::Result,
        }
    }
}
