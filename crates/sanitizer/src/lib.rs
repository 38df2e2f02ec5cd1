//! Runs kernels on the processor as their text says, and finds what a device may not forgive.
//!
//! [`Options::sanitizer`](super::Options::sanitizer) turns it on, `MESHLOOM_SANITIZE=1` in the environment; `MESHLOOM_SANITIZE=32` lets it run kernels
//! in the place of a device with subgroups of 32 lanes.
//!
//! A software renderer takes the invocations of a workgroup one after the other, and a driver may hide an access beyond an array: a kernel that is
//! wrong can be right on one device and not on the next. Here a dispatch runs in an interpreter of naga's modules, which says of each line whether
//!
//! - two invocations access one place of a buffer or of workgroup memory without a barrier between them ([`Problem::Race`]), whatever order a
//!   device would take them in,
//! - an access lies outside of its array ([`Problem::OutOfBounds`]), or reads workgroup memory before anything wrote it ([`Problem::Unwritten`]),
//! - a barrier or an operation of a subgroup is not met by all ([`Problem::Barrier`], [`Problem::Subgroup`]),
//! - a result is undefined: a division of integers by zero, a shift by all bits, an integer of NaN ([`Problem::Undefined`]).
//!
//! What is read in a race, before it is written, or made by an undefined operation does no harm where nothing comes of it (the idle invocations of
//! the last workgroup, a value that `select` leaves aside). So it is followed, as Valgrind's memcheck follows bits (J. Seward and N. Nethercote,
//! USENIX 2005), and reported where a buffer, an atomic, an address or a branch depends on it.
//!
//! `MESHLOOM_SANITIZE=compare` runs the device after it and compares what both have made ([`Difference`](comparison::Difference)): a driver that is
//! wrong, or a kernel whose error it does not see, is found at the first dispatch that goes wrong.
//!
//! With `MESHLOOM_LOG=debug` it also counts the sectors that accesses of a subgroup touch, and conflicts of banks ([`Traffic`](traffic::Traffic)).
//!
//! It is what NVIDIA's compute-sanitizer does for CUDA (racecheck, memcheck, initcheck, synccheck). What it finds is so for the data of that
//! dispatch; a race is found if the two accesses happen in it, in whatever order. It does not prove that there is none with other data.

mod accesses;
mod arithmetic;
mod comparison;
mod expressions;
mod findings;
mod interpreter;
mod memory;
mod operations;
mod program;
mod report;
mod shadow;
mod subgroups;
mod traffic;
mod value;

pub use interpreter::Interpreter;
pub use memory::Memory;
pub use program::Program;

#[cfg(test)]
mod tests;
