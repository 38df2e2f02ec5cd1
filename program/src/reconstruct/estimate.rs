//! `meshloom reconstruct --estimate`: device memory and forces before there is a device.

use meshloom::gpu::bytes;
use serde_json::json;

use super::parameters::Parameters;
use super::problem::density;
use crate::common::Common;
use crate::failure::Failure;
use crate::terminal;

/// Latent vectors that minimizers hold at a time, at most.
const VECTORS: u64 = 12;

pub fn run(common: &Common, parameters: &Parameters) -> Result<(), Failure> {
    let (_, config) = density(parameters)?;
    let warnings =
        parameters.universe.power().and_then(|power| config.warnings(&power)).map_err(meshloom::Error::from)?;
    let shares = common.forecast_shares()?;
    let ranks = shares.ranks();
    // How many more than one have room depends on the devices.
    let groups = parameters.sample_groups(ranks, |groups| groups == 1)?;
    let memory = config
        .gradient_memory(shares.of_groups(groups), parameters.checkpoint_every())
        .map_err(meshloom::Error::from)?;
    let samples = (2 * parameters.pairs).div_ceil(groups) as u64;
    let vector = memory.state / 6;
    let vectors = (VECTORS + samples) * vector;
    let states = memory.states as u64 * memory.state;
    let (least, most) = (memory.total() + vectors, memory.total() + vectors + samples.saturating_sub(1) * states);
    // A product with the metric: a tangent (2 forces each) and a cotangent (3).
    let metric = 5 * memory.forces;
    if common.json {
        terminal::print_object(&json!({
            "command": "reconstruct", "estimate": true, "ranks": ranks, "groups": groups,
            "memory": { "least": least, "most": most, "states": states, "particles": memory.particles, "mesh": memory.mesh, "vectors": vectors },
            "forces": { "run": memory.forces, "metric": metric }, "warnings": warnings,
        }))
    } else {
        let warnings: String = warnings.iter().map(|said| format!("warning: {said}\n")).collect();
        terminal::print(&format!(
            "{ranks} rank(s) in {groups} group(s) of samples; of the largest rank:\n\
             memory {}: {memory}, {} for vectors\n\
             up to {} where there is room to keep the runs of {samples} samples\n\
             a product with the metric takes {metric} forces of {}^3 cells, a run {}\n{warnings}",
            bytes(least),
            bytes(vectors),
            bytes(most),
            config.mesh,
            memory.forces
        ))
    }
}
