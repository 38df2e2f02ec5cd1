//! Groups of points: what they have in common, and who belongs to them.

mod catalogue;
mod error;

pub use catalogue::{Catalogue, Members, Order, Selection, catalogue};
pub use error::FofError;
