//! The program with HDF5.

#[path = "../shared/cli.rs"]
mod cli;

mod commands;
mod python;
