//! The program, command by command.

#[path = "../shared/cli.rs"]
mod cli;
#[path = "../../../tests/shared/documents.rs"]
mod markdown;
#[path = "../../../tests/shared/reference_pm.rs"]
mod reference_pm;

mod documents;
mod features;
mod fft;
mod fof;
mod infer;
mod kernels;
mod neighbors;
mod nonlinear;
mod output;
mod pictures;
mod power;
mod reconstruct;
mod shallow_water;
mod shares;
mod simulate;
mod sort;
mod trace;
mod vendors;
