//! Distributed transforms.

#[path = "../shared/fourier.rs"]
mod fourier;

mod boxes;
mod fft;
mod layers;
mod lengths;
mod tuning;
mod whole;
