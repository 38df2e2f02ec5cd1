//! The description of a machine.

use std::ops::RangeInclusive;

use super::{Start, Step, Work};
use crate::gpu::ExchangePath;
use crate::grid::{Grid, Transfer};

/// A cluster of equal nodes, for forecasts. Rates are in bytes per second, times in seconds.
///
/// [`default`](Self::default) is the first of [`NAMES`](Self::NAMES).
/// `meshloom bench exchange --fit FILE` measures a machine and writes its description as TOML.
///
/// ```
/// use meshloom::cluster::Machine;
/// use meshloom::fft::{Forecast, Spec, TransformTuning};
/// use meshloom::gpu::Profile;
/// use meshloom::grid::Grid;
///
/// let spec = Spec::of::<[f32; 2]>([1024; 3]);
/// let (grid, tuning) = (Grid::auto(spec.cells, 16), TransformTuning::profile(Profile::Gpu));
/// let forecast = Forecast::new(&spec, grid, 0, &tuning, 2 << 20)?;
/// let usual = Machine::named("h100x4").unwrap_or_default();
/// let slow = Machine { nic_rate: usual.nic_rate / 10.0, ..usual.clone() };
/// assert!(forecast.seconds(&slow)?[0] > forecast.seconds(&usual)?[0]);
/// # Ok::<(), meshloom::fft::FftError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields, default))]
pub struct Machine {
    /// Ranks of a node, with consecutive numbers.
    pub ranks_per_node: usize,
    /// Devices of a node, which its ranks use in turn.
    pub devices: usize,
    /// Processor cores of a node for the host threads of its ranks.
    pub cores: usize,
    /// Path of device data to other ranks. [`ExchangePath::Peer`] counts as the ring does: give the
    /// rate of copies between devices as `copy_rate`.
    pub path: ExchangePath,
    /// Whether devices compute on the cores of their node, as software renderers do. A pass then
    /// takes all cores.
    pub devices_use_cores: bool,
    /// Rate at which passes of transforms read and write device memory.
    pub memory_rate: f64,
    /// Rate at which copies within a device read and write its memory.
    pub device_copy_rate: f64,
    /// Rate at which passes over particles read and write device memory: painting, reading,
    /// kicks and drifts.
    pub particle_rate: f64,
    /// Time of a pass beside its bytes.
    pub dispatch_seconds: f64,
    /// Time of the host thread for a submission.
    pub submit_seconds: f64,
    /// Rate of copies between a device and host memory, each way.
    pub copy_rate: f64,
    /// Queues of a device for copies: 0 if passes and copies share one queue, 1 for copies in both
    /// directions, 2 for one queue each way.
    pub copy_queues: usize,
    /// Rate of copies by a host thread, where it copies messages: all that it receives with
    /// [`ExchangePath::Staging`], and those within a node with [`ExchangePath::Mapped`].
    pub host_copy_rate: f64,
    /// Rate at which all devices of a node read and write host memory together.
    pub host_memory_rate: f64,
    /// Time of the host thread for a message, at either end.
    pub message_seconds: f64,
    /// Time of a short message between ranks of a node, beside that of host threads.
    pub local_latency_seconds: f64,
    /// Time of a short message between nodes, beside that of host threads.
    pub latency_seconds: f64,
    /// Network interfaces of a node, which its ranks use in turn.
    pub nics: usize,
    /// Rate of an interface, each way.
    pub nic_rate: f64,
    /// Longest message in bytes that leaves before its receiver asks for it.
    pub eager_bytes: u64,
    /// Nodes that share a switch.
    pub switch_nodes: usize,
    /// Rate of all interfaces of a switch divided by the rate of its links to others; at least 1.
    pub taper: f64,
}

/// A value of a machine that is out of its range.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("machine: `{name}`: expected {rule}, got {value}")]
pub struct MachineError {
    /// The field.
    pub name: &'static str,
    /// Its range.
    pub rule: &'static str,
    /// The value.
    pub value: f64,
}

message_debug!(MachineError);

impl Default for Machine {
    fn default() -> Self {
        Machine::h100(4, 25e9)
    }
}

impl Machine {
    /// Names of the machines that [`named`](Self::named) describes.
    ///
    /// | name | machine |
    /// |---|---|
    /// | `h100x4` | nodes of 4 H100 on PCIe 5 with an NDR200 interface each, as MareNostrum 5 |
    /// | `h100x8` | nodes of 8 H100 on PCIe 5 with an NDR400 interface each, as NVIDIA's DGX H100 |
    /// | `h100x4-staging`, `h100x8-staging` | the same without shared pages: host threads copy |
    pub const NAMES: [&'static str; 4] = ["h100x4", "h100x8", "h100x4-staging", "h100x8-staging"];

    /// Returns the machine of this name, if it is one of [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let base = name.strip_suffix("-staging");
        let machine = match base.unwrap_or(name) {
            "h100x4" => Machine::h100(4, 25e9),
            "h100x8" => Machine::h100(8, 50e9),
            _ => return None,
        };
        let path = if base.is_some() { ExchangePath::Staging } else { ExchangePath::Ring };
        Some(Machine { path, ..machine })
    }

    /// Returns nodes of H100s, each with an interface of `nic_rate`.
    fn h100(devices: usize, nic_rate: f64) -> Self {
        Machine {
            ranks_per_node: devices,
            devices,
            // Two sockets of at least 24 cores, as in both machines: more than there are ranks.
            cores: 48,
            path: ExchangePath::Ring,
            devices_use_cores: false,
            // Measured: a complex transform of 1024^3 cells moves 51.5 GB in 24.2 ms
            // (docs/performance.md, 2026-11-27).
            memory_rate: 2.1e12,
            // Measured there: the device copy of `bench fft`.
            device_copy_rate: 2.77e12,
            // Measured there: a step of 256^3 particles on 512^3 cells takes 12.5 ms, less what its
            // transforms take at `memory_rate`.
            particle_rate: 0.87e12,
            // Measured there: 256^3 takes the time of its bytes at this rate, so that a pass costs
            // a few microseconds at most.
            dispatch_seconds: 3e-6,
            // Assumed: an encoder, a submission and a poll of wgpu take 20 to 40 microseconds.
            submit_seconds: 20e-6,
            // PCIe 5 with 16 lanes: 64 GB/s less the overhead of packets.
            copy_rate: 50e9,
            // wgpu has one queue.
            copy_queues: 0,
            // Assumed: a core copies 10 GB/s between cached pages, and half of that if it writes
            // to the window of a device.
            host_copy_rate: 5e9,
            // Two sockets with eight channels of DDR5-4800 each have 614 GB/s; half of that
            // is assumed for devices.
            host_memory_rate: 300e9,
            // Between the 0.24 microseconds of MPI alone and the 2.2 of an exchange of arrays,
            // measured on two ranks of one host.
            message_seconds: 0.5e-6,
            local_latency_seconds: 0.5e-6,
            // NDR InfiniBand through one switch level, with MPI.
            latency_seconds: 2e-6,
            nics: devices,
            nic_rate,
            // UCX changes its protocol at 8 to 64 KiB.
            eager_bytes: 16 << 10,
            switch_nodes: 32,
            taper: 1.0,
        }
    }

    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// [`MachineError`], which names the first value that is not.
    pub fn check(&self) -> Result<(), MachineError> {
        let count = |name: &'static str, count: usize| (name, count as f64);
        let counts = [
            count("ranks_per_node", self.ranks_per_node),
            count("devices", self.devices),
            count("cores", self.cores),
            count("nics", self.nics),
            count("switch_nodes", self.switch_nodes),
        ];
        let rates = [
            ("memory_rate", self.memory_rate),
            ("device_copy_rate", self.device_copy_rate),
            ("particle_rate", self.particle_rate),
            ("copy_rate", self.copy_rate),
            ("host_copy_rate", self.host_copy_rate),
            ("host_memory_rate", self.host_memory_rate),
            ("nic_rate", self.nic_rate),
        ];
        let times = [
            ("dispatch_seconds", self.dispatch_seconds),
            ("submit_seconds", self.submit_seconds),
            ("message_seconds", self.message_seconds),
            ("local_latency_seconds", self.local_latency_seconds),
            ("latency_seconds", self.latency_seconds),
        ];
        in_range(&counts, "1 to 2^20", 1.0..=f64::from(1 << 20))?;
        in_range(&[count("copy_queues", self.copy_queues)], "0, 1 or 2", 0.0..=2.0)?;
        in_range(&rates, "bytes per second, 1 to 1e18", 1.0..=1e18)?;
        in_range(&times, "seconds, 0 to 1", 0.0..=1.0)?;
        in_range(&[("taper", self.taper)], "1 to 1000", 1.0..=1e3)
    }

    /// Returns the seconds of `passes` passes that read and write `bytes` bytes in all.
    pub(crate) fn pass_seconds(&self, work: Work, passes: u64, bytes: u64) -> f64 {
        let rate = match work {
            Work::Mesh => self.memory_rate,
            Work::Particles => self.particle_rate,
            Work::Copy => self.device_copy_rate,
        };
        passes as f64 * self.dispatch_seconds + bytes as f64 / rate
    }
}

/// Checks that all `values` are in `range`, which `rule` says in words.
fn in_range(
    values: &[(&'static str, f64)],
    rule: &'static str,
    range: RangeInclusive<f64>,
) -> Result<(), MachineError> {
    match values.iter().find(|(_, value)| !range.contains(value)) {
        Some(&(name, value)) => Err(MachineError { name, rule, value }),
        None => Ok(()),
    }
}

/// Returns seconds that the steps of a rank of `grid` take at least: the work of its busiest
/// resource. With equal shares the ranks of a node send as much and share its interfaces.
pub(crate) fn least_seconds(machine: &Machine, grid: &Grid, steps: &[Step]) -> f64 {
    let (mut passes, mut copies, mut host, mut wire) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    let node = machine.ranks_per_node.max(1);
    let nics = if grid.shares().are_equal() { machine.nics.min(node) } else { node };
    let nic_rate = machine.nic_rate * nics as f64 / node as f64;
    for step in steps {
        match step {
            Step::Pass { work, bytes } => passes += machine.pass_seconds(*work, 1, *bytes),
            Step::Start(start) => {
                let Start { line, transfers, element_bytes } = start;
                passes += machine.pass_seconds(Work::Copy, 0, 2 * start.kept_bytes());
                let others = |parts: &[Transfer]| {
                    let others = parts.iter().filter(|part| part.peer != line.place && part.len > 0).copied();
                    others.collect::<Vec<Transfer>>()
                };
                let [send, receive] = [&transfers.send, &transfers.receive].map(|parts| others(parts));
                let bytes = |part: &Transfer| (part.len * element_bytes) as f64;
                let is_apart = |part: &&Transfer| line.rank(part.peer) / node != line.rank(line.place) / node;
                wire += send.iter().filter(is_apart).map(bytes).sum::<f64>() / nic_rate;
                copies += send.iter().chain(&receive).map(bytes).sum::<f64>() / machine.copy_rate;
                host += (send.len() + receive.len()) as f64 * machine.message_seconds;
            }
            Step::Finish => {}
        }
    }
    let device = match (machine.path, machine.copy_queues) {
        (ExchangePath::Mapped, _) => passes,
        (_, 0) => passes + copies,
        (_, queues) => passes.max(copies / queues as f64),
    };
    device.max(host).max(wire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_machines_are_in_range_and_values_out_of_it_are_named() {
        for name in Machine::NAMES {
            assert_eq!(Machine::named(name).unwrap().check(), Ok(()), "{name}");
        }
        assert_eq!(Machine::named(Machine::NAMES[0]), Some(Machine::default()));
        assert_eq!(Machine::named("h100"), None);
        let usual = Machine::default;
        for (machine, name) in [
            (Machine { ranks_per_node: 0, ..usual() }, "ranks_per_node"),
            (Machine { nics: usize::MAX, ..usual() }, "nics"),
            (Machine { copy_queues: 3, ..usual() }, "copy_queues"),
            (Machine { nic_rate: 0.0, ..usual() }, "nic_rate"),
            (Machine { copy_rate: f64::NAN, ..usual() }, "copy_rate"),
            (Machine { latency_seconds: -1.0, ..usual() }, "latency_seconds"),
            (Machine { taper: 0.5, ..usual() }, "taper"),
        ] {
            let error = machine.check().unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }
}
