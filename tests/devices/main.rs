//! Devices, kernels and what is built of them.

mod device;
#[path = "../shared/events.rs"]
mod events;
mod guest;
mod levels;
mod pipeline_cache;
mod primitives;
mod soundness;
