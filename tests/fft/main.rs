//! Distributed transforms.

#[path = "../shared/fourier.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod fourier;

mod boxes;
mod fft;
mod lengths;
mod tuning;
