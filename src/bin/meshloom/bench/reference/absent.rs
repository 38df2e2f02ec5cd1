//! What stands for the libraries in builds without them. [`check`](super::check) refuses their use before anything runs.

/// Transforms.
pub mod fft {
    use meshloom::fft::Values;

    /// What is measured.
    pub const NAME: &str = "";

    /// Never there.
    pub enum Reference {}

    impl Reference {
        /// None.
        pub fn new(_: Values, _: [u64; 3], _: Vec<f32>) -> Option<Self> {
            None
        }

        pub fn forward(&mut self) {
            match *self {}
        }

        pub fn inverse(&mut self) {
            match *self {}
        }
    }
}

/// Searches.
pub mod kd {
    use std::num::NonZero;

    /// What is measured.
    pub const NAME: &str = "";

    /// Never there.
    pub enum Reference {}

    impl Reference {
        /// None.
        pub fn new(_: &[f32], _: Option<f32>) -> Option<Self> {
            None
        }

        pub fn len(&self) -> usize {
            match *self {}
        }

        pub fn side(&self) -> f32 {
            match *self {}
        }

        pub fn build(&mut self) {
            match *self {}
        }

        pub fn nearest(&self, _: NonZero<usize>, _: &mut [(u32, f32)]) {
            match *self {}
        }

        pub fn pairs(&self, _: &[f32]) -> Vec<u64> {
            match *self {}
        }

        pub fn groups(&self, _: f32) -> Vec<u32> {
            match *self {}
        }
    }
}

/// Sorts.
pub mod sort {
    /// What is measured.
    pub const NAME: &str = "";

    /// Does nothing: nothing is measured.
    pub fn by_key(_: &mut [(u64, u32)]) {}
}

/// No threads.
pub fn threads() -> usize {
    0
}
