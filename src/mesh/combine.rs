//! Elementwise combinations of fields.

use crate::gpu::{Access, Array, DeviceError, Element, Kernel, KernelSource, Recorder};

/// `y = a y + b x` and `y = a y + b x + c x z`, on arrays of one length.
pub struct Combine {
    linear: Kernel,
    product: Kernel,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    count: u32,
    a: f32,
    b: f32,
    c: f32,
}

impl Default for Combine {
    fn default() -> Self {
        let kernel = |product: bool| {
            let source = KernelSource::new("mesh::combine", include_str!("../../shaders/mesh/combine.wgsl"))
                .fields("count: u32, a: f32, b: f32, c: f32")
                .flag("product", product)
                .array("x", Element::F32, Access::Read)
                .array("y", Element::F32, Access::ReadWrite);
            Kernel::trusted(if product { source.array("z", Element::F32, Access::Read) } else { source })
        };
        Combine { linear: kernel(false), product: kernel(true) }
    }
}

impl Combine {
    /// Records `y = a y + b x`. With `a == 0`, `y` may be undefined before.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the lengths differ.
    pub fn linear(
        &self,
        recorder: &mut Recorder,
        a: f64,
        y: &Array<f32>,
        b: f64,
        x: &Array<f32>,
    ) -> Result<(), DeviceError> {
        same(y, x)?;
        let params = Params { count: y.len() as u32, a: a as f32, b: b as f32, c: 0.0 };
        recorder.each(&self.linear, &[x.raw(), y.raw()], &params, y.len())
    }

    /// Records `y = a y + c x z`. With `a == 0`, `y` may be undefined before.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the lengths differ.
    pub fn product(
        &self,
        recorder: &mut Recorder,
        a: f64,
        y: &Array<f32>,
        c: f64,
        [x, z]: [&Array<f32>; 2],
    ) -> Result<(), DeviceError> {
        same(y, x)?;
        same(y, z)?;
        let params = Params { count: y.len() as u32, a: a as f32, b: 0.0, c: c as f32 };
        recorder.each(&self.product, &[x.raw(), y.raw(), z.raw()], &params, y.len())
    }

    /// Its kernels, for tests that go over all of the library's kernels.
    #[doc(hidden)]
    pub fn sources(&self) -> Vec<KernelSource> {
        [&self.linear, &self.product].map(|kernel| kernel.source().clone()).into()
    }
}

fn same(y: &Array<f32>, x: &Array<f32>) -> Result<(), DeviceError> {
    if y.len() == x.len() {
        return Ok(());
    }
    Err(DeviceError::Misuse { what: "Combine".into(), why: format!("arrays of {} and {} elements", y.len(), x.len()) })
}
