//! Cosmology, meshes and the particle-mesh run.

#[path = "../shared/process_grid.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod process_grid;
#[path = "../shared/operators.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod ranks;
#[path = "../shared/reference_pm.rs"]
mod reference_pm;

mod cosmology;
mod gradient;
mod light_cone;
mod mass_function;
mod memory_traffic;
mod mesh;
mod migration;
mod paint_traffic;
mod painting;
mod simulation;
mod simulation_operator;
mod third_order;
mod tracers;
