//! The parameters of elementwise kernels that differ by class of device, in one place.

/// What class of device kernels are shaped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A GPU: wants coalesced accesses and many invocations.
    Gpu,
    /// A processor that plays one: wants few invocations with much work each, and few barriers.
    Software,
}

/// Shape of elementwise kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Invocations a workgroup.
    pub group: u32,
    /// Elements an invocation.
    pub items: u32,
}

impl Profile {
    /// The shape that measured best (`docs/performance.md`).
    pub const fn tuning(self) -> Tuning {
        match self {
            Profile::Gpu => Tuning { group: 256, items: 4 },
            Profile::Software => Tuning { group: 64, items: 16 },
        }
    }
}
