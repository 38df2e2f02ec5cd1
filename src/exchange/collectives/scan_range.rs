//! Which ranks a scan combines, and in which order; pure.

/// In which order blocks of ranks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// In rank order.
    Up,
    /// The last rank's first.
    Down,
}

impl Order {
    /// Returns the place of a rank's block.
    pub fn place(self, rank: usize, ranks: usize) -> usize {
        match self {
            Order::Up => rank,
            Order::Down => ranks - 1 - rank,
        }
    }
}

/// Which ranks' numbers a scan combines on each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanRange {
    /// The first rank up to this one.
    UpTo,
    /// The ranks before this one.
    Before,
    /// The last rank down to this one.
    From,
    /// The ranks after this one, the last first.
    After,
}

impl ScanRange {
    /// Returns the range of those ranks in whose range a rank is: what the adjoint of a sum
    /// combines.
    pub fn transposed(self) -> Self {
        match self {
            ScanRange::UpTo => ScanRange::From,
            ScanRange::Before => ScanRange::After,
            ScanRange::From => ScanRange::UpTo,
            ScanRange::After => ScanRange::Before,
        }
    }

    /// Returns `true` if a rank is in its own range.
    pub fn has_own(self) -> bool {
        matches!(self, ScanRange::UpTo | ScanRange::From)
    }

    /// Returns the rank at which scans begin.
    pub fn end(self, ranks: usize) -> usize {
        self.order().place(0, ranks)
    }

    pub(super) fn order(self) -> Order {
        if matches!(self, ScanRange::UpTo | ScanRange::Before) { Order::Up } else { Order::Down }
    }

    pub(super) fn operation(self) -> &'static str {
        match self {
            ScanRange::UpTo => "scan",
            ScanRange::Before => "scan_exclusive",
            ScanRange::From => "scan_down",
            ScanRange::After => "scan_down_exclusive",
        }
    }
}
