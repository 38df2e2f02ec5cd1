//! Pointwise functions in WGSL and their derivatives.
//!
//! A [`Pointwise`] is a function `fn f(x: f32, v: vec3<f32>, ..) -> f32` (or a vector) that is
//! applied to every element of fields. Its derivatives are found from the compiler form of the
//! text, and consecutive functions become one.
//!
//! ```text
//! WGSL text -> naga's functions -> graph of scalars -> derivatives, more of the graph -> WGSL of one kernel
//!              (parsed, checked)   (lower)             (derive)                          (write)
//! ```

mod builtins;
mod derive;
mod error;
mod expressions;
mod function;
mod graph;
mod kernel;
mod lower;

pub use error::PointwiseError;
pub use function::{Argument, Pointwise};
pub(super) use graph::Binary;
pub(super) use kernel::{Form, PointwiseParams, kernel, samples};

use graph::{Graph, Node, Op};
use lower::{Lowering, Result, Value};
