//! Files.

#[path = "../shared/mutants.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod mutation;

mod files;
mod mutants;
mod npz;
