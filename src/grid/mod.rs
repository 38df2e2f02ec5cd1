//! Geometry of distributed meshes, as pure data: splits, process grids, boxes, ghost cells,
//! redistributions, the order of peers. No device, no communication, no files.

mod boxes;
mod chunks;
mod cost;
mod error;
mod field;
mod ghost_plan;
mod ghost_widths;
mod mesh;
mod peers;
mod process_grid;
mod redistribution;
mod shares;
mod split;
mod tiling;
mod transfers;

pub use boxes::{Box3, extent, volume};
pub(crate) use chunks::{Chunk, Chunking, Message, chunks};
pub use cost::Cost;
pub use error::LayoutError;
pub use field::FieldLayout;
pub use ghost_plan::{Block, GhostPlan, Link, Sweep};
pub use ghost_widths::GhostWidths;
pub(crate) use mesh::padded;
pub use mesh::{Mesh, MeshOptions};
pub use peers::peers;
pub use process_grid::Grid;
pub use redistribution::{BoxCopy, Kept, Redistribution, bricks};
pub use shares::Shares;
pub use split::{owner, split};
pub use transfers::{Transfer, Transfers};
