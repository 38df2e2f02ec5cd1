//! Properties of the machine.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;
use crate::session::{caught, device_is_used};

/// Returns a warning if a software renderer takes the work although this host has a hardware GPU.
#[pyfunction]
pub fn unused_hardware(py: Python<'_>) -> PyResult<Option<String>> {
    let options = meshloom::gpu::Options::from_env().map_err(Failure::from)?;
    py.detach(|| Ok(caught(|| Ok::<_, Failure>(meshloom::gpu::unused_hardware(&options.adapter)))?))
}

/// Returns the adapters that the drivers of this machine offer and that can be used.
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    device_is_used()?;
    let adapters = py.detach(|| caught(|| Ok::<_, Failure>(meshloom::gpu::adapters())))?;
    let describe = |adapter: &meshloom::wgpu::Adapter| {
        let (info, about) = (adapter.get_info(), PyDict::new(py));
        about.set_item("name", &info.name)?;
        about.set_item("kind", format!("{:?}", info.device_type))?;
        about.set_item("backend", info.backend.to_string())?;
        about.set_item("driver", format!("{} {}", info.driver, info.driver_info).trim())?;
        about.set_item("f64", adapter.features().contains(meshloom::wgpu::Features::SHADER_F64))?;
        about.set_item("unsuitable", meshloom::gpu::unsuitable(adapter))?;
        Ok(about)
    };
    adapters.iter().map(describe).collect()
}
