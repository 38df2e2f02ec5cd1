//! What a search asks of a callback on neighbours; the module above documents it for callers.

use crate::gpu::{Callback, DeviceError};

/// What kernels import the text as.
pub(super) const MODULE: &str = "neighbors::callback";

const PLACE: &str = "Callback on neighbors";

/// Refuses a text that lacks one of the functions.
pub(super) fn check(callback: &Callback) -> Result<(), DeviceError> {
    callback.check(PLACE, &["fn begin", "fn each", "fn end"])?;
    if callback.defines("alias State") || callback.defines("struct State") {
        return Ok(());
    }
    let why = "the text has no type `State`; define it with `alias State = ...;` or `struct State { ... }`".to_string();
    Err(DeviceError::Misuse { what: PLACE.into(), why })
}

/// Whether a query may end before its last neighbour.
pub(super) fn stops(callback: &Callback) -> bool {
    callback.defines("fn done")
}

/// Returns `true` if the text uses the displacement of a neighbor.
pub(super) fn takes_offset(callback: &Callback) -> bool {
    callback.defines("offset")
}
