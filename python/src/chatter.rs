//! Messages of drivers on standard error, which do not pass through the package.

use pyo3::prelude::*;

/// Silences messages of drivers that do not concern the importer of the package, as the program
/// does: libwayland complains without a desktop, which Mesa's device selection queries, and Mesa
/// warns about adapters that are not certified. Existing variables keep their values, and the
/// variables that are set here have no effect with a desktop.
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
