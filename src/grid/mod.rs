//! Geometry of distributed meshes, as pure data: splits, process grids, boxes, ghost cells,
//! redistributions, the order of peers. No device, no communication, no files.

mod boxes;
mod chunks;
mod cost;
mod error;
mod ghost_plan;
mod mesh;
mod process_grid;
mod redistribution;
mod shares;
mod tiling;
mod transfers;

pub use boxes::{Box3, FieldLayout, extent, owner, split, volume};
pub(crate) use chunks::{Chunk, Chunking, Message, chunks};
pub use cost::Cost;
pub use error::LayoutError;
pub use ghost_plan::{Block, GhostPlan, GhostWidths, Link, Sweep};
pub(crate) use mesh::padded;
pub use mesh::{Mesh, MeshOptions};
pub use process_grid::Grid;
pub use redistribution::{BoxCopy, Kept, Redistribution, bricks};
pub use shares::Shares;
pub use transfers::{Transfer, Transfers, peers};
