//! The transform of a file: which one, of which mesh, in which precision.

use meshloom::fft::{Precision, Spec};
use meshloom::io::{Dtype, IoError, NpyFile};

use super::arguments::Arguments;

/// A transform of a file.
pub struct FileTransform {
    /// NumPy's name of the transform.
    pub name: &'static str,
    pub inverse: bool,
    pub precision: Precision,
    pub spec: Spec,
    /// The array in the input file, as a mesh.
    pub input: [u64; 3],
    /// The array in the output file, as a mesh.
    pub output: [u64; 3],
    axes: usize,
}

impl FileTransform {
    /// Opens the input and checks that it can be transformed as the call says.
    ///
    /// # Errors
    /// [`IoError`] for files of another shape or type.
    pub fn new(arguments: &Arguments) -> Result<(FileTransform, NpyFile), IoError> {
        let file = NpyFile::open(arguments.input())?.accept_integers();
        let shape = |wanted: &str| IoError::shape(file.path(), file.shape(), wanted);
        // Arrays of fewer axes are meshes with axes of one cell, which cost nothing.
        let input = match *file.shape() {
            [n] => [1, 1, n],
            [n0, n1] => [1, n0, n1],
            [n0, n1, n2] => [n0, n1, n2],
            _ => return Err(shape("an array of 1, 2 or 3 axes")),
        };
        if input.contains(&0) {
            return Err(shape("at least one element along each axis"));
        }
        let dtype = file.dtype();
        if arguments.real && !arguments.inverse && dtype.is_complex() {
            return Err(IoError::element_type(
                file.path(),
                dtype,
                "a real one such as float32 (or a call without --real)",
            ));
        }
        let precision = arguments.precision.map_or(
            match dtype {
                Dtype::F32 | Dtype::C64 => Precision::Single,
                _ => Precision::Double,
            },
            Precision::from,
        );
        let spec = match (arguments.inverse, arguments.real) {
            (_, false) => Spec::of::<[f32; 2]>(input),
            (false, true) => Spec::of::<f32>(input),
            (true, true) => {
                let n = arguments.last_size.unwrap_or(2 * (input[2] - 1));
                if n == 0 {
                    return Err(shape("a half spectrum of two or more modes along the last axis, or --last-size 1,"));
                }
                real_inverse(input, n)
            }
        };
        let spec = Spec { precision, ..spec.norm(arguments.norm.into()).natural() };
        let (name, output) = match (arguments.inverse, arguments.real) {
            (false, false) => ("fftn", spec.spectrum()),
            (true, false) => ("ifftn", spec.cells),
            (false, true) => ("rfftn", spec.spectrum()),
            (true, true) => ("irfftn", spec.cells),
        };
        let transform = FileTransform {
            name,
            inverse: arguments.inverse,
            precision,
            spec,
            input,
            output,
            axes: file.shape().len(),
        };
        Ok((transform, file))
    }

    /// Returns the shape of the output array.
    pub fn output_shape(&self) -> &[u64] {
        &self.output[3 - self.axes..]
    }

    /// Returns `true` if numbers of this type may have more digits than the transform's precision.
    pub fn loses_digits(&self, dtype: Dtype) -> bool {
        self.precision == Precision::Single && dtype.is_integer() && dtype.bytes() >= 4
    }
}

/// Returns the transform whose inverse makes `n` real cells of each row of `modes`. As in NumPy
/// modes beyond `n / 2 + 1` are ignored, and missing ones are zero.
fn real_inverse(modes: [u64; 3], n: u64) -> Spec {
    let [n0, n1, have] = modes;
    let spec = Spec::of::<f32>([n0, n1, n]);
    if have > n / 2 {
        return spec;
    }
    // With an odd number of cells every mode but the first has a conjugate twin: none of those
    // given is dropped or counted once.
    spec.modes([n0, n1, 2 * have - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_half_spectrum_is_as_wide_as_what_is_there() {
        for have in 1..8 {
            for n in 1..20 {
                let spec = real_inverse([2, 3, have], n);
                assert_eq!(spec.spectrum(), [2, 3, have.min(n / 2 + 1)], "{have} modes, {n} cells");
                assert!(spec.check().is_ok() && spec.points == [2, 3, n]);
            }
        }
    }
}
