//! The program with HDF5.

#[path = "../shared/cli.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod cli;

mod commands;
mod python;
