//! Drivers that talk: they write to standard error by themselves, past everything that this program prints.

use std::env;
use std::ffi::OsString;

/// Keeps drivers from saying what is no concern of this program's user.
///
/// - Mesa's device selection asks for the desktop's display, and libwayland complains where there is no desktop. A display
///   that cannot be there makes it give up without a word. (To switch the selection off would change which adapter comes
///   first.)
/// - Mesa warns of adapters that are not certified; `meshloom devices` says what they can do.
///
/// What the user has set stays as it is.
///
/// # Safety
/// No other thread may run yet, since the environment is changed.
pub unsafe fn silence() {
    let is_absolute = |name: &str| env::var_os(name).is_some_and(|path| path.as_encoded_bytes().starts_with(b"/"));
    let set = |name: &str, value: &str| {
        // SAFETY: promised by the caller.
        unsafe { env::set_var(name, OsString::from(value)) }
    };
    // Just where libwayland would complain.
    if cfg!(target_os = "linux") && !is_absolute("XDG_RUNTIME_DIR") && !is_absolute("WAYLAND_DISPLAY") {
        set("WAYLAND_DISPLAY", "/dev/null");
    }
    if env::var_os("MESA_VK_IGNORE_CONFORMANCE_WARNING").is_none() {
        set("MESA_VK_IGNORE_CONFORMANCE_WARNING", "true");
    }
}
