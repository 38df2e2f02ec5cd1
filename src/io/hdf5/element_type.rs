//! The element types of datasets and attributes.

use hdf5_metno::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5_metno::{Container, Result};

use super::queries;
use crate::io::Dtype;

/// The element type of a dataset or attribute, or words for one that is not a number.
pub(super) fn of(container: &Container) -> Result<std::result::Result<Dtype, String>> {
    let found = container.dtype()?;
    // Other types are not examined further: sizes and names of their members may be anything in a broken file.
    if !queries::is_number(&found) {
        return Ok(Err("text or a compound".to_string()));
    }
    if ![1, 2, 4, 8].contains(&found.size()) {
        return Ok(Err(format!("a number of {} bytes", found.size())));
    }
    Ok(match found.to_descriptor()? {
        TypeDescriptor::Float(FloatSize::U4) => Ok(Dtype::F32),
        TypeDescriptor::Float(FloatSize::U8) => Ok(Dtype::F64),
        TypeDescriptor::Integer(size) => Ok(match size {
            IntSize::U1 => Dtype::I8,
            IntSize::U2 => Dtype::I16,
            IntSize::U4 => Dtype::I32,
            IntSize::U8 => Dtype::I64,
        }),
        TypeDescriptor::Unsigned(size) => Ok(match size {
            IntSize::U1 => Dtype::U8,
            IntSize::U2 => Dtype::U16,
            IntSize::U4 => Dtype::U32,
            IntSize::U8 => Dtype::U64,
        }),
        other => Err(other.to_string()),
    })
}
