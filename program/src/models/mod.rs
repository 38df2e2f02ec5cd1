//! Models that the program runs.

pub mod shallow_water;
