//! Distributed transforms.

#[path = "../shared/fourier.rs"]
mod fourier;

mod boxes;
mod fft;
mod lengths;
mod tuning;
mod whole;
