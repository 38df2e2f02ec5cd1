//! Every kernel of the library and of the models.

#[path = "../shared/uniformity.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod uniformity;

mod gpu_compiler;
mod shaders;
mod uniform_flow;
