//! Likelihoods, fits and samples.

#[path = "../shared/events.rs"]
mod events;
#[path = "../shared/field_models.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod field_models;
#[path = "../shared/host_models.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod host_models;
#[path = "../shared/process_grid.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod process_grid;
#[path = "../shared/inference.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod shared;

mod convergence;
mod device;
mod evaluations;
mod host;
mod levels;
mod lock_step;
mod models;
mod preconditioner;
mod ranks;
mod samplers;
mod steps;
