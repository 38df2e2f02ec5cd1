//! Classes of devices, and what kernels are shaped like on them.

/// Class of device that kernels are tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A GPU: wants coalesced accesses and many invocations.
    Gpu,
    /// A software renderer on a processor: wants few invocations with much work each, and few
    /// barriers.
    Software,
}

/// Shape of elementwise kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkgroupShape {
    /// Invocations per workgroup: `GROUP` in WGSL.
    pub group: u32,
    /// Elements per invocation: `ITEMS`.
    pub items: u32,
}

impl Profile {
    /// Returns the shape for the class: measured on software renderers (`benches/results`),
    /// chosen by counting for GPUs, and measured there as part of what uses it.
    #[must_use]
    pub const fn workgroup_shape(self) -> WorkgroupShape {
        match self {
            Profile::Gpu => WorkgroupShape { group: 256, items: 4 },
            Profile::Software => WorkgroupShape { group: 64, items: 16 },
        }
    }
}

/// Bytes that plans count memory in: the largest sector of common GPUs. Memory of an H100 gives two
/// of its sectors at once, and caches of processors have lines as long.
pub const SECTOR: u64 = 64;

/// Bytes of the rows that tiles along strided axes take where they can. Shorter rows are read at
/// four fifths of the speed of an H100's memory: each opens a page of DRAM and takes a translation.
pub const ROW: u64 = 128;

/// Registers that plans give to all invocations of a workgroup: the least that a core of common
/// GPUs has. Where a kernel takes more, a driver spills or refuses.
pub const REGISTERS: u64 = 48 << 10;
