//! The input of `meshloom power`, and a call checked against it.

use std::path::Path;

use meshloom::fft::good_size;
use meshloom::io::{IoError, NpyFile, is_hdf5, printable_path};
use meshloom::mesh::{SpectrumGeometry, Window};

use super::arguments::{Arguments, Contrast, is_box};
use crate::coordinates::{self, PointReader, is_archive};
use crate::failure::Failure;
use crate::particle_type::ParticleType;
use crate::point_values::PointValues;
use crate::space::common_sides;

/// Returns the box of the call, else that which the headers of the files say.
fn box_of(arguments: &Arguments, file: &dyn PointReader, other: Option<&dyn PointReader>) -> Result<[f64; 3], Failure> {
    if let Some(size) = arguments.size {
        return Ok(size);
    }
    let own = match other {
        None => file.space()?.sides,
        Some(other) => common_sides((file.path(), &file.space()?), (other.path(), &other.space()?))?,
    };
    match own {
        None => Err(Failure::Usage("--box is missing: give the sides of the periodic box, as --box 128".into())),
        Some(own) => own.try_into().ok().filter(is_box).ok_or_else(|| {
            let path = printable_path(&arguments.input);
            Failure::Failed(format!("{path}: Header/BoxSize is no box that is periodic along every axis; give --box"))
        }),
    }
}

/// The content of a file, by its shape.
#[derive(Clone, Copy, PartialEq)]
pub enum Content {
    Field([u64; 3]),
    Points(u64),
}

fn open(path: &Path, particles: ParticleType) -> Result<(Box<dyn PointReader>, Content), IoError> {
    let source = match is_hdf5(path) || is_archive(path) {
        true => coordinates::open(path, particles)?,
        false => Box::new(NpyFile::open(path)?),
    };
    let shape = source.shape();
    let wrong = |wanted: &str| IoError::shape(path, &shape, wanted);
    let input = match shape[..] {
        [count, 3] => Content::Points(count),
        [n0, n1, n2] => Content::Field([n0, n1, n2]),
        [_, 2] => return Err(wrong("a spectrum in three dimensions: (N, 3) for points")),
        _ => return Err(wrong("three axes for a field, or (N, 3) for points")),
    };
    if let Content::Field(shape) = input
        && shape.contains(&0)
    {
        return Err(wrong("at least one cell along each axis"));
    }
    Ok((source, input))
}

/// The options that give masses to the points of the input, and to those of `--cross`.
pub const MASSES: &str = "--masses";
pub const CROSS_MASSES: &str = "--cross-masses";

/// An input of a call, opened.
pub struct Input {
    pub file: Box<dyn PointReader>,
    pub content: Content,
    pub masses: Option<PointValues>,
}

impl Input {
    /// Opens a file, and that of the masses of its points.
    ///
    /// # Errors
    /// [`Failure`] for files of other contents, and options that do not suit them.
    pub fn open(path: &Path, masses: Option<(&'static str, &Path)>, particles: ParticleType) -> Result<Self, Failure> {
        let (file, content) = open(path, particles)?;
        let masses = match (masses, content) {
            (None, _) => None,
            (Some((_, path)), Content::Points(count)) => Some(PointValues::open(path, particles, "mass", &[count])?),
            (Some((option, _)), Content::Field(_)) => {
                return Err(Failure::Usage(format!("{option} is for points, and {} is a field", printable_path(path))));
            }
        };
        Ok(Input { file, content, masses })
    }
}

/// A call, checked against its input.
pub struct Measurement<'a> {
    pub arguments: &'a Arguments,
    /// The file.
    pub path: &'a Path,
    pub shape: [u64; 3],
    pub size: [f64; 3],
    /// The window that points are painted with, or that a field is to be corrected for.
    pub window: Option<Window>,
    /// Whether a field is measured as it is.
    pub is_contrast: bool,
    /// The option that gives masses to its points.
    pub masses_option: &'static str,
}

impl<'a> Measurement<'a> {
    /// Creates the measurement of a file; `other` is that of `--cross`, which must be in the same
    /// box.
    pub fn new(
        arguments: &'a Arguments,
        (file, input): (&dyn PointReader, Content),
        other: Option<&dyn PointReader>,
    ) -> Result<Self, Failure> {
        let size = box_of(arguments, file, other)?;
        let usage = |message: &str| Err(Failure::Usage(message.into()));
        let window = arguments.window.unwrap_or_default();
        let (shape, window) = match input {
            Content::Points(count) => (arguments.mesh.unwrap_or([default_mesh(count); 3]), Some(window)),
            Content::Field(shape) => {
                if arguments.mesh.is_some_and(|mesh| mesh != shape) {
                    let [x, y, z] = shape;
                    return usage(&format!("--mesh is for points; this field has its own mesh of {x},{y},{z} cells"));
                }
                if arguments.window.is_some() && !arguments.deconvolve {
                    return usage(
                        "--window is for points; with a field it needs --deconvolve, to say what to divide by",
                    );
                }
                if arguments.interlace {
                    return usage("--interlace is for points; a field is painted already");
                }
                if arguments.shot_noise {
                    return usage("--shot-noise is for points; a field does not tell how many it was made of");
                }
                (shape, arguments.deconvolve.then_some(window))
            }
        };
        if (SpectrumGeometry { shape, size, part: [0..0, 0..0, 0..0] }).bins() == 0 {
            let [x, y, z] = shape;
            let wrong = format!(
                "a mesh of {x},{y},{z} cells has no wave of the box but the mean; take 2 cells along each axis or more"
            );
            return Err(match input {
                Content::Field(_) => Failure::Failed(format!("{}: {wrong}", printable_path(&arguments.input))),
                Content::Points(_) => Failure::Usage(format!("--mesh: {wrong}")),
            });
        }
        let is_contrast = matches!(arguments.contrast, Some(Contrast::Both | Contrast::First));
        Ok(Measurement { arguments, path: &arguments.input, shape, size, window, is_contrast, masses_option: MASSES })
    }

    /// Returns the same measurement of another file, on the same mesh.
    pub fn of_other(&self, path: &'a Path, input: Content) -> Result<Self, Failure> {
        let (name, [x, y, z]) = (printable_path(path), self.shape);
        match input {
            Content::Field(shape) if shape != self.shape => Err(Failure::Failed(format!(
                "{name} has {shape:?} cells, and the first input has a mesh of {x},{y},{z}; a cross-spectrum needs one mesh"
            ))),
            Content::Field(_) if self.arguments.interlace => {
                Err(Failure::Usage(format!("--interlace is for points; {name} is a field, which is painted already")))
            }
            Content::Points(_) if self.window.is_none() => Err(Failure::Usage(format!(
                "{name} holds points and the first input a field; say with --window and --deconvolve what the field was painted with"
            ))),
            _ => {
                let is_contrast = matches!(self.arguments.contrast, Some(Contrast::Both | Contrast::Other));
                Ok(Measurement { path, is_contrast, masses_option: CROSS_MASSES, ..*self })
            }
        }
    }

    pub fn volume(&self) -> f64 {
        self.size.iter().product()
    }
}

/// Twice the mean number of points along an axis, rounded up to an even size that can be
/// transformed.
fn default_mesh(points: u64) -> u64 {
    // The cube root of a cube must not be rounded up by a floating-point error.
    let along = (2.0 * (points as f64).cbrt() - 1e-9).clamp(16.0, 512.0);
    2 * good_size((along / 2.0).ceil() as u64)
}
