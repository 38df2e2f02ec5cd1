//! References on the CPU with established libraries, for `--reference`: rustfft, kiddo, rayon.
//!
//! Only builds with the feature `reference` include them. Others have uninhabited types of the same
//! names, so that benchmarks are written once.

#[cfg(feature = "reference")]
pub mod fft;
#[cfg(feature = "reference")]
pub mod kd;
#[cfg(feature = "reference")]
pub mod shallow_water;

use crate::failure::Failure;

/// Refuses `--reference` in a build without the libraries.
///
/// # Errors
/// [`Failure::Failed`], which names the feature.
pub fn check(wanted: bool) -> Result<(), Failure> {
    if wanted && cfg!(not(feature = "reference")) {
        let why = "--reference needs libraries that this build lacks; build with the feature `reference`";
        return Err(Failure::Failed(why.into()));
    }
    Ok(())
}

/// A function of many items and its sum, by rayon.
#[cfg(feature = "reference")]
pub mod map {
    use rayon::prelude::*;

    /// Name of the reference in reports.
    pub const NAME: &str = "rayon, par_iter over items";

    /// Returns what `map.wgsl` computes for each item; returns the sum.
    pub fn energies(stiffness: &[f32], steps: u32, energies: &mut [f32]) -> f64 {
        let energy = |k: f32| {
            let (mut x, mut v) = (1.0_f32, 0.0_f32);
            for _ in 0..steps {
                v -= 0.01 * (k * x + 0.1 * v);
                x += 0.01 * v;
            }
            0.5 * (v * v + k * x * x)
        };
        energies.par_iter_mut().zip(stiffness).for_each(|(to, &k)| *to = energy(k));
        energies.par_iter().map(|&energy| f64::from(energy)).sum()
    }
}

/// A sort of keys with their index, by rayon.
#[cfg(feature = "reference")]
pub mod sort {
    use rayon::prelude::*;

    /// Name of the reference in reports.
    pub const NAME: &str = "rayon, par_sort_by_key of (u64, u32)";

    /// Sorts by the key; equal ones keep their order.
    pub fn by_key(pairs: &mut [(u64, u32)]) {
        pairs.par_sort_by_key(|pair| pair.0);
    }
}

/// Threads that share the work.
#[cfg(feature = "reference")]
pub fn threads() -> usize {
    rayon::current_num_threads()
}

#[cfg(not(feature = "reference"))]
pub use absent::{fft, kd, map, shallow_water, sort, threads};

/// Placeholders of references in builds without their libraries; [`check`] refuses their use.
#[cfg(not(feature = "reference"))]
mod absent {
    /// A module with a type without values.
    macro_rules! absent {
        ($module:ident, new($($argument:ty),*), $(fn $method:ident($receiver:ty $(, $more:ty)*) -> $result:ty;)*) => {
            pub mod $module {
                pub const NAME: &str = "";

                pub enum Reference {}

                impl Reference {
                    pub fn new($(_: $argument),*) -> Option<Self> {
                        None
                    }

                    $(pub fn $method(self: $receiver $(, _: $more)*) -> $result {
                        match *self {}
                    })*
                }
            }
        };
    }

    absent! { fft, new(meshloom::fft::Values, [u64; 3], Vec<f32>), fn forward(&mut Self) -> (); fn inverse(&mut Self) -> (); }
    absent! { kd, new(&[f32], Option<f32>),
        fn len(&Self) -> usize;
        fn side(&Self) -> f32;
        fn build(&mut Self) -> ();
        fn nearest(&Self, std::num::NonZero<usize>, &mut [(u32, f32)]) -> ();
        fn pairs(&Self, &[f32]) -> Vec<u64>;
        fn groups(&Self, f32) -> Vec<u32>;
    }
    absent! { shallow_water, new(&meshloom_program::models::shallow_water::ShallowWaterConfig, &[f32], &[f32]),
        fn elevation(&Self) -> std::iter::Empty<f32>;
        fn step(&mut Self) -> ();
    }

    pub mod map {
        pub const NAME: &str = "";

        pub fn energies(_: &[f32], _: u32, _: &mut [f32]) -> f64 {
            0.0
        }
    }

    pub mod sort {
        pub const NAME: &str = "";

        pub fn by_key(_: &mut [(u64, u32)]) {}
    }

    pub fn threads() -> usize {
        0
    }
}
