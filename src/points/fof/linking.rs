//! The linking length of friends-of-friends groups.

use super::error::FofError;
use crate::points::Domain;

/// The linking length: absolute, or in units of the mean separation.
///
/// ```
/// use meshloom::points::fof::Linking;
/// use meshloom::points::Domain;
///
/// let domain = Domain::new(&[10.0, 10.0, 10.0])?;
/// assert_eq!(Linking::Separations(0.2).length(&domain, 1000)?, 0.2);
/// assert_eq!(Linking::Length(0.5).length(&domain, 1000)?, 0.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Linking {
    /// A length, in the units of the coordinates: 0 or more.
    Length(f64),
    /// The linking parameter b: a length in units of the mean separation `(V / N)^(1 / dims)`,
    /// which needs all axes to be periodic.
    Separations(f64),
}

impl Linking {
    /// Returns the length among `total` points, rounded to `f32`: points up to that distance,
    /// inclusive, are linked.
    ///
    /// # Errors
    /// [`FofError::Length`] unless it is a number from 0 on, [`FofError::Volume`] for separations
    /// where an axis is open.
    pub fn length(&self, domain: &Domain, total: u64) -> Result<f32, FofError> {
        let (Linking::Length(value) | Linking::Separations(value)) = *self;
        if value.is_nan() || value < 0.0 {
            return Err(FofError::Length { value });
        }
        let Linking::Separations(parameter) = *self else { return Ok(value as f32) };
        let sides = (0..domain.dims()).map(|axis| domain.side(axis).map(f64::from));
        let Some(volume) = sides.product::<Option<f64>>() else { return Err(FofError::Volume) };
        Ok((parameter * (volume / total.max(1) as f64).powf(1.0 / domain.dims() as f64)) as f32)
    }
}
