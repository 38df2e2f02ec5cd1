//! Operators with their derivatives, and maps.

#[path = "../shared/correlated_field.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod correlated_field;
#[path = "../shared/every_operator.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod every_operator;
#[path = "../shared/process_grid.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod process_grid;
#[path = "../shared/operators.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod ranks;

mod algebra;
mod linear_operators;
mod map;
mod operators;
mod paint;
mod pointwise;
mod stacks;
