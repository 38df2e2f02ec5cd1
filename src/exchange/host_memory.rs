//! Mapped memory that messages are sent from and received into.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::comm::{Memory, Span};
use crate::gpu::{DeviceError, Map, MappedBytes};

/// Mapped bytes, and what must outlive them: it is dropped when they are unmapped.
struct MappedMemory<K> {
    bytes: MappedBytes,
    _keeper: K,
}

// SAFETY: the bytes stay mapped and in their place until they are dropped. They belong to a chunk
// or an array that is lent to an exchange, which sends or receives each byte once; those of a
// mapping for reading are only sent.
unsafe impl<K: Send + Sync> Memory for MappedMemory<K> {
    fn place(&self) -> NonNull<u8> {
        self.bytes.place()
    }

    fn bytes(&self) -> usize {
        self.bytes.bytes()
    }
}

/// Returns the bytes of a mapping that is ready. They are unmapped, and then `keeper` is dropped,
/// when the last message that uses them is done.
pub(super) fn span(map: Map, keeper: impl Send + Sync + 'static) -> Result<Span, DeviceError> {
    Ok(Span::new(Arc::new(MappedMemory { bytes: MappedBytes::new(map)?, _keeper: keeper })))
}
