//! The types of numbers in a file.

use hdf5_metno::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5_metno::{Container, Result};

use super::ask;
use crate::io::Dtype;

/// The type of the elements of a dataset or attribute, or words for one that is no number.
pub(super) fn of(container: &Container) -> Result<std::result::Result<Dtype, String>> {
    let found = container.dtype()?;
    // No other type is looked into: sizes and names of its members are whatever the file says.
    if !ask::is_number(&found) {
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
