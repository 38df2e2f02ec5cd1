//! Shared by all error types.

/// Implements `Debug` of an error type: `{:?}` prints the message, which is what a `main` that
/// returns an error prints; `{:#?}` prints the type as well.
macro_rules! message_debug {
    ($error:ident) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match f.alternate() {
                    true => f.debug_tuple(stringify!($error)).field(&format_args!("{self}")).finish(),
                    false => std::fmt::Display::fmt(self, f),
                }
            }
        }
    };
}

/// Implements `From` between error types. An error that wraps another one is converted as what it
/// wraps, so that an error of a device is the same variant in every layer.
///
/// - `A from B { X, Y; Z }`: the contents of `B::X` and `B::Y` are converted to `A`; any other `B`
///   becomes `A::Z`.
/// - `A from B { X, Y } or misuse "field"`: any other `B` becomes a misuse of the named thing.
/// - `A from B via C`: `B` is converted to `C` first.
///
/// Conversions must not lead in a circle, which would end in a stack overflow: `A from B via C`
/// needs a conversion from `C` to `A` that does not use `B`.
macro_rules! error_from {
    () => {};
    ($to:ident from $from:ident via $via:ident $($more:tt)*) => {
        impl From<$from> for $to {
            fn from(error: $from) -> Self {
                $via::from(error).into()
            }
        }
        error_from! { $($more)* }
    };
    ($to:ident from $from:ident { $($inner:ident),* } or misuse $what:literal $($more:tt)*) => {
        impl From<$from> for $to {
            fn from(error: $from) -> Self {
                match error {
                    $($from::$inner(error) => error.into(),)*
                    error => DeviceError::Misuse { what: $what.into(), why: error.to_string() }.into(),
                }
            }
        }
        error_from! { $($more)* }
    };
    ($to:ident from $from:ident { $($inner:ident),* $(; $rest:ident)? } $($more:tt)*) => {
        impl From<$from> for $to {
            fn from(error: $from) -> Self {
                match error {
                    $($from::$inner(error) => error.into(),)*
                    $(error => $to::$rest(error),)?
                }
            }
        }
        error_from! { $($more)* }
    };
}
