//! Arrays that messages are sent from and received into without staging.

use super::host_memory::span;
use crate::comm::Span;
use crate::gpu::{DeviceError, Gpu, Loan, Map, MemoryKind, RawArray};
use crate::grid::Transfer;

/// An array that is mapped, or will be as soon as the device has finished with it. Nothing else can
/// use it meanwhile.
pub(super) enum MappedArray {
    Asked { map: Map, loan: Loan },
    Mapped(Span),
    Failed,
}

impl MappedArray {
    /// Returns `true` if an array of `kind` can be: where the host sees the device's memory, and
    /// the array lies in one buffer.
    pub fn suits(array: &RawArray, kind: MemoryKind) -> bool {
        array.maps_as(kind) && array.buffers().count() == 1
    }

    /// Asks for the mapping; does not wait.
    pub fn begin(gpu: &Gpu, array: &RawArray, mode: wgpu::MapMode) -> Result<Self, DeviceError> {
        let loan = array.lend()?;
        let buffer = array.buffers().next();
        let buffer = buffer.ok_or_else(|| DeviceError::Lost("an array has no buffer".into()))?;
        Ok(MappedArray::Asked { map: Map::begin(gpu, buffer, mode, buffer.size()), loan })
    }

    /// Returns `true` if the mapping is still to come.
    pub fn awaits_device(&self) -> bool {
        matches!(self, MappedArray::Asked { .. })
    }

    /// Returns the bytes of its buffer, once they are mapped.
    pub fn span(&mut self) -> Result<Option<&Span>, DeviceError> {
        if let MappedArray::Asked { map, .. } = self
            && map.is_ready()?
            && let MappedArray::Asked { map, loan } = std::mem::replace(self, MappedArray::Failed)
        {
            *self = MappedArray::Mapped(span(map, loan)?);
        }
        Ok(match self {
            MappedArray::Mapped(span) => Some(span),
            _ => None,
        })
    }
}

/// Returns the bytes of a part, given the bytes `whole` of the buffer of `array`.
pub(super) fn part_of(array: &RawArray, part: &Transfer, whole: &Span) -> Span {
    let pieces = array.pieces(part.start, part.len);
    let [start, bytes] = pieces.first().map_or([0; 2], |&(_, offset, bytes)| [offset, bytes].map(|n| n as usize));
    whole.part(start, bytes)
}
