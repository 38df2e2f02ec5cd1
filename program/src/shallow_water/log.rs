//! What has been seen of a run on the way.

use meshloom_program::models::shallow_water::{Diagnostics, Picture};

/// Lines of diagnostics, and frames of the animation, which rank 0 has.
#[derive(Default)]
pub struct Log {
    pub lines: Vec<Diagnostics>,
    pub frames: Vec<Picture>,
}
