//! Messages of drivers on standard error, which do not pass through the package.

use pyo3::prelude::*;

/// Keeps drivers from messages that do not concern who imports the package, as the program does:
/// libwayland complains where there is no desktop, which Mesa's device selection asks for one, and
/// Mesa of adapters that are not certified. Variables that are set are left as they are, and what
/// is set here is seen by nobody who could reach a desktop.
pub fn silence(py: Python<'_>) -> PyResult<()> {
    let environment = py.import("os")?.getattr("environ")?;
    let is_absolute = |name: &str| -> PyResult<bool> {
        environment.call_method1("get", (name, ""))?.call_method1("startswith", ("/",))?.extract()
    };
    if cfg!(target_os = "linux") && !is_absolute("XDG_RUNTIME_DIR")? && !is_absolute("WAYLAND_DISPLAY")? {
        environment.set_item("WAYLAND_DISPLAY", "/dev/null")?;
    }
    environment.call_method1("setdefault", ("MESA_VK_IGNORE_CONFORMANCE_WARNING", "true"))?;
    Ok(())
}
