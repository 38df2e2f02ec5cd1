//! Runs the kernels of `meshloom` on the processor as their text says, and finds what a device may
//! not forgive.
//!
//! [`options`] opens devices as [`Options::from_env`](meshloom::gpu::Options::from_env) does and
//! understands `MESHLOOM_SANITIZE`; [`Sanitizer`] is the
//! [`DispatchObserver`](meshloom::gpu::DispatchObserver) that it gives to a device.
//!
//! A software renderer takes the invocations of a workgroup one after the other, and a driver may
//! hide an access beyond an array: a kernel that is wrong can be right on one device and not on the
//! next. Here a dispatch runs in an interpreter of naga's modules, which reports for each line if
//!
//! - two invocations access one place of a buffer or of workgroup memory without a barrier between
//!   them (a race), whatever order a device would take them in,
//! - an access lies outside of its array, or reads workgroup memory before anything wrote it,
//! - a barrier or an operation of a subgroup is not reached by all invocations,
//! - a result is undefined: a division of integers by zero, a shift by all bits, an integer of NaN.
//!
//! A value that is read in a race, before it is written, or made by an undefined operation does no
//! harm where no result depends on it (the idle invocations of the last workgroup, a value that
//! `select` does not take). So the interpreter follows it, as Valgrind's memcheck follows bits (J.
//! Seward and N. Nethercote, USENIX 2005), and reports it where a buffer, an atomic, an address or
//! a branch depends on it.
//!
//! [`Sanitizer::Compare`] runs the device after the interpreter and compares the results of both. A
//! driver that is wrong, or a kernel whose error the interpreter does not see, is found at the
//! first dispatch that goes wrong.
//!
//! With `MESHLOOM_LOG=debug` the program also prints the sectors that accesses of a subgroup touch,
//! and conflicts of banks, for an H100 as [`machine`] describes it.
//!
//! NVIDIA's compute-sanitizer does the same for CUDA (racecheck, memcheck, initcheck, synccheck). A
//! finding holds for the data of that dispatch. A race is found if both accesses happen in it, in
//! any order. A run without findings says nothing about other data.

mod accesses;
mod arithmetic;
mod comparison;
mod expressions;
mod findings;
mod interpreter;
pub mod machine;
mod memory;
pub mod memory_system;
mod observer;
mod operations;
mod program;
mod report;
mod shadow;
mod subgroups;
mod traffic;
mod value;

pub use observer::{Sanitizer, options};

#[cfg(test)]
mod tests;
