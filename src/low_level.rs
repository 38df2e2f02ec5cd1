//! Types for authors of kernels, plans and exchanges.
//!
//! These types are public and documented, but may change between minor versions before 1.0.
//! Programs that work with fields and particles need none of them.
//!
//! | task | types |
//! |---|---|
//! | a kernel of your own | [`KernelSource`], [`Kernel`], [`kernel_params!`](crate::kernel_params), [`Recorder`], [`Array`] |
//! | functions inside kernels of the library | [`Callback`] |
//! | the parts of a rank | [`Rank::parts`](crate::Rank::parts), [`Parts`], [`GridComms`], [`Exchange`] |
//! | transforms of arrays | [`Transform`], [`Filter`], [`Spec`], [`Plan`], [`Route`], [`TransformOptions`] |
//! | ghost cells and redistributions of arrays | [`GhostCells`], [`GhostPlan`], [`Reshape`], [`Redistribution`], [`FieldLayout`], [`Grid`] |
//! | collectives of arrays | [`Collectives`] |
//! | points on one rank | [`Cloud`], [`Builder`], [`Tree`], [`Ghosts`], [`NearestSearch`], [`RadiusSearch`], [`Components`] |
//! | parallel primitives | [`Scan`], [`Reduce`], [`Sort`], [`Permute`] |

pub use crate::exchange::collectives::Collectives;
pub use crate::exchange::ghost_cells::GhostCells;
pub use crate::exchange::{Exchange, GridComms, Reshape};
pub use crate::fft::{
    Filter, Limits, Plan, Route, Spec, Transform, TransformCallbacks, TransformOptions, TransformTuning,
};
pub use crate::gpu::primitives::{Permute, Reduce, Scan, Sort};
pub use crate::gpu::{Access, Array, Callback, Element, Kernel, KernelSource, RawArray, Recorder, Slot, Variant};
pub use crate::grid::{BoxCopy, FieldLayout, GhostPlan, Grid, Redistribution};
pub use crate::io::PartCrc;
pub use crate::points::Cloud;
pub use crate::points::ghosts::Ghosts;
pub use crate::points::neighbors::{Components, NearestSearch, RadiusSearch};
pub use crate::points::tree::{Builder, Tree};
pub use crate::rank::Parts;
