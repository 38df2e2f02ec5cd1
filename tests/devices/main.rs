//! Devices, kernels and what is built of them.

mod device;
mod guest;
mod pipeline_cache;
mod primitives;
mod soundness;
