//! Messages of drivers on standard error, which do not pass through this program.

use std::env;
use std::ffi::OsString;

/// Silences messages of drivers that do not concern this program's user.
///
/// - Mesa's device selection asks for the desktop's display, and libwayland complains where there
///   is none. With the name of a display that cannot exist it gives up silently. (Switching
///   the selection off would change the order of the adapters.)
/// - Mesa warns of adapters that are not certified; `meshloom devices` says what they can do.
///
/// Variables that the user has set are left as they are.
///
/// # Safety
/// No other thread may run yet, since the environment is changed.
pub unsafe fn silence() {
    let is_absolute = |name: &str| env::var_os(name).is_some_and(|path| path.as_encoded_bytes().starts_with(b"/"));
    let set = |name: &str, value: &str| {
        // SAFETY: promised by the caller.
        unsafe { env::set_var(name, OsString::from(value)) }
    };
    // The condition under which libwayland complains.
    if cfg!(target_os = "linux") && !is_absolute("XDG_RUNTIME_DIR") && !is_absolute("WAYLAND_DISPLAY") {
        set("WAYLAND_DISPLAY", "/dev/null");
    }
    if env::var_os("MESA_VK_IGNORE_CONFORMANCE_WARNING").is_none() {
        set("MESA_VK_IGNORE_CONFORMANCE_WARNING", "true");
    }
}
