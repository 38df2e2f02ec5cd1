//! Devices, kernels and what is built of them.

mod device;
mod guest;
mod levels;
mod pipeline_cache;
mod primitives;
mod soundness;
