//! `Debug` of errors: the message, which is what a `main` that returns an error prints.

/// Implements `Debug` of an error type: `{:?}` prints its message, `{:#?}` its type as well.
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
