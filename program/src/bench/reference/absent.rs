//! Placeholders of the references in builds without their libraries. [`check`](super::check) refuses their use before anything
//! runs.

/// Transforms.
pub mod fft {
    use meshloom::fft::Values;

    /// Name of the reference in reports.
    pub const NAME: &str = "";

    /// A type without values.
    pub enum Reference {}

    impl Reference {
        /// Always none.
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

    /// Name of the reference in reports.
    pub const NAME: &str = "";

    /// A type without values.
    pub enum Reference {}

    impl Reference {
        /// Always none.
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

/// Steps of the shallow-water model.
pub mod shallow_water {
    use meshloom_program::models::shallow_water::ShallowWaterConfig;

    /// Name of the reference in reports.
    pub const NAME: &str = "";

    /// A type without values.
    pub enum Reference {}

    impl Reference {
        /// Always none.
        pub fn new(_: &ShallowWaterConfig, _: &[f32], _: &[f32]) -> Option<Self> {
            None
        }

        pub fn elevation(&self) -> std::iter::Empty<f32> {
            match *self {}
        }

        pub fn step(&mut self) {
            match *self {}
        }
    }
}

/// Maps.
pub mod map {
    /// Name of the reference in reports.
    pub const NAME: &str = "";

    /// Never called.
    pub fn energies(_: &[f32], _: u32, _: &mut [f32]) -> f64 {
        0.0
    }
}

/// Sorts.
pub mod sort {
    /// Name of the reference in reports.
    pub const NAME: &str = "";

    /// Never called.
    pub fn by_key(_: &mut [(u64, u32)]) {}
}

/// No threads.
pub fn threads() -> usize {
    0
}
