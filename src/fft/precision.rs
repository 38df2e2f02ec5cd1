//! Single and double precision.

use super::error::FftError;
use crate::gpu::{Capabilities, Element};

/// The precision of a transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// `f32`, on every device.
    #[default]
    Single,
    /// `f64`, on devices with double precision (natively, in Vulkan).
    Double,
}

impl Precision {
    /// Returns the bytes of a real number.
    pub const fn bytes(self) -> u64 {
        match self {
            Precision::Single => 4,
            Precision::Double => 8,
        }
    }

    /// Returns the real element of arrays.
    pub const fn real(self) -> Element {
        match self {
            Precision::Single => Element::F32,
            Precision::Double => Element::F64,
        }
    }

    /// Returns the complex element of arrays.
    pub const fn complex(self) -> Element {
        match self {
            Precision::Single => Element::Complex32,
            Precision::Double => Element::Complex64,
        }
    }

    /// Checks that a device supports the precision.
    ///
    /// # Errors
    /// [`FftError::NoDouble`] if it does not.
    pub fn check(self, device: &str, capabilities: &Capabilities) -> Result<(), FftError> {
        match self {
            Precision::Double if !capabilities.f64 => Err(FftError::NoDouble { device: device.into() }),
            _ => Ok(()),
        }
    }

    /// Returns an exact WGSL literal.
    pub(super) fn literal(self, value: f64) -> String {
        let text = match self {
            Precision::Single => format!("{:?}f", value as f32),
            Precision::Double => format!("{value:?}lf"),
        };
        if text.starts_with('-') { format!("({text})") } else { text }
    }
}
