//! Device data between ranks.

#[path = "../shared/device_collectives.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod bodies;
#[path = "../shared/plans.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod plans;
#[path = "../shared/process_grid.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod process_grid;
#[path = "../shared/deadlocks.rs"]
mod programs;
#[path = "../shared/operators.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod ranks;

mod collectives;
mod deadlocks;
mod exchange;
mod ghost_cells;
mod on_several_ranks;
mod redistribution;
mod ring;
