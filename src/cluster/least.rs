//! A lower bound of the seconds of a rank, without events.

use super::machine::Machine;
use super::steps::{Start, Step, Work};
use crate::gpu::ExchangePath;
use crate::grid::{Grid, Transfer};

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
