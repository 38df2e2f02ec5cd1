//! All tests of the library that work on a device, in one program: for a machine with a GPU on
//! which nothing can be built (`scripts/gpu.sh`). `cargo test` runs them by subject instead.
#![expect(clippy::duplicate_mod, reason = "shared helpers are a module of each subject")]
#![expect(clippy::module_inception, reason = "subjects are programs of their own, too")]

#[path = "../devices/main.rs"]
mod devices;
#[path = "../exchange/main.rs"]
mod exchange;
#[path = "../fft/main.rs"]
mod fft;
#[path = "../fields.rs"]
mod fields;
#[path = "../inference/main.rs"]
mod inference;
#[path = "../operators/main.rs"]
mod operators;
#[path = "../pm/main.rs"]
mod pm;
#[path = "../points/main.rs"]
mod points;
#[path = "../shared/process_grid.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod process_grid;
