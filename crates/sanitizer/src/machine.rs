//! Cost model of a kernel on a machine, from its shape: sectors of memory, conflicts of workgroup
//! memory, occupancy. Pure.
//!
//! A device's *limits* determine what runs; a [`Machine`] predicts what runs well. Plans are made
//! for limits and evaluated here, so that a test can compare a shape with a number without a
//! device.
//!
//! - **Sectors.** Memory moves in sectors: a run of `bytes` moves [`Machine::moved`] bytes, wanted
//!   or not.
//! - **Conflicts.** Workgroup memory has banks of 4 bytes; one access of a subgroup takes as many
//!   cycles as the busiest bank has different words ([`Machine::conflicts`]). Elements of 8 and 16
//!   bytes are read in 2 and 4 rounds of fewer invocations.
//! - **Occupancy.** A core keeps as many subgroups in flight as its registers, its workgroup memory
//!   and its slots allow ([`Machine::occupancy`]); a kernel that waits for memory wants
//!   [`Machine::enough`].
//!
//! Figures come from public descriptions of the hardware, not from measurements.

/// A class of hardware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Invocations of a subgroup.
    pub subgroup: u32,
    /// Bytes that memory moves at least.
    pub sector: u32,
    /// Banks of workgroup memory, of 4 bytes each; 1 if conflicts do not matter.
    pub banks: u32,
    /// Registers of 4 bytes that the subgroups of a scheduler share, for each of their lanes.
    pub registers: u32,
    /// Registers that a lane may have at most.
    pub registers_most: u32,
    /// Registers of a lane are given out in this many.
    pub registers_step: u32,
    /// Subgroups of a scheduler at most.
    pub slots: u32,
    /// Schedulers of a core, which share workgroup memory.
    pub schedulers: u32,
    /// Bytes of workgroup memory of a core, and of a workgroup at most.
    pub workgroup_memory: [u32; 2],
    /// Invocations of a workgroup at most.
    pub invocations: u32,
    /// Subgroups of a scheduler that hide the latency of memory.
    pub enough: u32,
}

/// NVIDIA H100 and H200, through Vulkan.
pub const H100: Machine = Machine {
    name: "H100",
    subgroup: 32,
    sector: 32,
    banks: 32,
    registers: 512,
    registers_most: 255,
    registers_step: 8,
    slots: 16,
    schedulers: 4,
    workgroup_memory: [228 << 10, 48 << 10],
    invocations: 1024,
    enough: 6,
};

/// AMD MI300.
pub const MI300: Machine = Machine {
    name: "MI300",
    subgroup: 64,
    sector: 64,
    banks: 32,
    registers: 512,
    registers_most: 512,
    registers_step: 8,
    slots: 8,
    schedulers: 4,
    workgroup_memory: [64 << 10, 64 << 10],
    invocations: 1024,
    enough: 4,
};

/// AMD RDNA 3 (Navi 31).
pub const NAVI31: Machine = Machine {
    name: "Navi31",
    subgroup: 32,
    sector: 64,
    banks: 32,
    registers: 1536,
    registers_most: 256,
    registers_step: 24,
    slots: 16,
    schedulers: 4,
    workgroup_memory: [128 << 10, 64 << 10],
    invocations: 1024,
    enough: 6,
};

/// Apple M2 and later.
pub const APPLE: Machine = Machine {
    name: "Apple",
    subgroup: 32,
    sector: 64,
    banks: 32,
    registers: 384,
    registers_most: 128,
    registers_step: 8,
    slots: 24,
    schedulers: 4,
    workgroup_memory: [60 << 10, 32 << 10],
    invocations: 1024,
    enough: 6,
};

/// Intel Arc (Xe-HPG).
pub const INTEL: Machine = Machine {
    name: "Intel",
    subgroup: 16,
    sector: 64,
    banks: 16,
    registers: 1024,
    registers_most: 128,
    registers_step: 128,
    slots: 8,
    schedulers: 16,
    workgroup_memory: [128 << 10, 64 << 10],
    invocations: 1024,
    enough: 4,
};

/// The GPUs that plans are priced for.
pub const GPUS: [Machine; 5] = [H100, MI300, NAVI31, APPLE, INTEL];

impl Machine {
    /// Returns the bytes that memory moves for a run of `bytes` that begins at a sector.
    #[must_use]
    pub const fn moved(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.sector as u64) * self.sector as u64
    }

    /// Registers of a core, of all lanes.
    #[must_use]
    pub const fn core_registers(&self) -> u64 {
        self.registers as u64 * self.schedulers as u64 * self.subgroup as u64
    }

    /// Cycles that one access of a subgroup to workgroup memory takes, over those that its bytes
    /// need: 1 is without conflicts. `places` are the elements, of `bytes` bytes (4, 8 or 16), that
    /// the invocations of a subgroup access.
    #[must_use]
    pub fn conflicts(&self, places: &[u64], bytes: u32) -> f64 {
        if self.banks == 1 || places.is_empty() {
            return 1.0;
        }
        let words = u64::from(bytes / 4);
        // A round accesses as many words as there are banks.
        let round = (u64::from(self.banks) / words).max(1) as usize;
        let mut cycles = 0;
        for places in places.chunks(round) {
            let mut wanted: Vec<u64> =
                places.iter().flat_map(|place| (0..words).map(move |w| place * words + w)).collect();
            wanted.sort_unstable();
            wanted.dedup();
            let mut banks = vec![0u32; self.banks as usize];
            wanted.iter().for_each(|word| banks[(word % u64::from(self.banks)) as usize] += 1);
            cycles += banks.into_iter().max().unwrap_or(0);
        }
        f64::from(cycles) / places.len().div_ceil(round) as f64
    }

    /// Returns the subgroups in flight on a scheduler, for workgroups of `invocations` invocations
    /// with `registers` registers per lane and `bytes` bytes of workgroup memory; 0 if such a
    /// workgroup does not run.
    #[must_use]
    pub fn occupancy(&self, invocations: u32, registers: u32, bytes: u32) -> u32 {
        let registers = registers.max(1).next_multiple_of(self.registers_step);
        if registers > self.registers_most.next_multiple_of(self.registers_step)
            || invocations > self.invocations
            || bytes > self.workgroup_memory[1]
        {
            return 0;
        }
        let subgroups = invocations.div_ceil(self.subgroup);
        let by_registers = (self.registers / registers).min(self.slots) * self.schedulers / subgroups;
        let by_memory = self.workgroup_memory[0].checked_div(bytes).unwrap_or(by_registers);
        by_registers.min(by_memory) * subgroups / self.schedulers
    }
}

#[cfg(test)]
mod tests {
    use meshloom::gpu::{REGISTERS, SECTOR};

    use super::*;

    #[test]
    fn runs_cost_whole_sectors() {
        assert_eq!([1, 32, 33, 64, 65].map(|bytes| H100.moved(bytes)), [32, 32, 64, 64, 96]);
        assert_eq!(NAVI31.moved(8), 64);
        assert_eq!(GPUS.iter().map(|machine| u64::from(machine.sector)).max(), Some(SECTOR));
        assert_eq!(GPUS.iter().map(Machine::core_registers).min(), Some(REGISTERS));
    }

    #[test]
    fn conflicts_are_words_of_one_bank() {
        let strided = |stride: u64, lanes: u64| (0..lanes).map(|lane| lane * stride).collect::<Vec<_>>();
        assert_eq!(H100.conflicts(&strided(1, 32), 4), 1.0);
        // One word for all is a broadcast.
        assert_eq!(H100.conflicts(&strided(0, 32), 4), 1.0);
        assert_eq!(H100.conflicts(&strided(2, 32), 4), 2.0);
        assert_eq!(H100.conflicts(&strided(32, 32), 4), 32.0);
        assert_eq!(H100.conflicts(&strided(33, 32), 4), 1.0);
        // Complex numbers: half a subgroup a round.
        assert_eq!(H100.conflicts(&strided(1, 32), 8), 1.0);
        assert_eq!(H100.conflicts(&strided(16, 32), 8), 16.0);
        assert_eq!(H100.conflicts(&strided(17, 32), 8), 1.0);
        assert_eq!(MI300.conflicts(&strided(1, 64), 4), 1.0);
    }

    #[test]
    fn occupancy_is_what_runs_out_first() {
        assert_eq!(H100.occupancy(256, 32, 0), 16);
        assert_eq!(H100.occupancy(256, 64, 0), 8);
        assert_eq!(H100.occupancy(256, 65, 0), 6);
        // Four workgroups of 48 KiB.
        assert_eq!(H100.occupancy(256, 32, 48 << 10), 8);
        assert_eq!(H100.occupancy(256, 32, 64 << 10), 0);
        assert_eq!(H100.occupancy(256, 256, 0), 2);
        assert_eq!(H100.occupancy(2048, 32, 0), 0);
        assert_eq!(MI300.occupancy(256, 64, 32 << 10), 2);
    }
}
