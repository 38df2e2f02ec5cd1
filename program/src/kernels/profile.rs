//! Properties that the text of a kernel depends on besides the kernel: a device's profile, or
//! limits from a file.

use std::path::Path;

use meshloom::gpu::{ParamsSpace, Profile, Variant, WorkgroupShape};
use serde::Deserialize;

use crate::config_file;
use crate::failure::Failure;

/// Values that shape the text of every kernel.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// Invocations of a workgroup, where a kernel does not fix them.
    workgroup_size: u32,
    /// Elements per invocation of elementwise kernels.
    items: u32,
    /// Windows that every array is cut into.
    pub windows: u32,
    /// Bytes of a window, where there are several.
    window_bytes: u64,
    /// The address space of parameters.
    params: Space,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Space {
    Uniform,
    Immediate,
    Storage,
}

/// The least that WebGPU gives: arrays in one binding of 128 MiB.
impl Default for Shape {
    fn default() -> Self {
        let WorkgroupShape { group, items } = Profile::Gpu.workgroup_shape();
        Shape { workgroup_size: group, items, windows: 1, window_bytes: 1 << 27, params: Space::Uniform }
    }
}

impl Shape {
    /// Creates the shape of the profile with this name, or of the file whose name ends in `.toml`.
    ///
    /// # Errors
    /// [`Failure::Usage`] for other names and values out of range, [`Failure::Failed`] for files
    /// that cannot be read and keys that are unknown.
    pub fn of_profile(name: &str) -> Result<Self, Failure> {
        let path = Path::new(name);
        match name {
            "floor" | "gpu" => Ok(Shape::default()),
            "software" => {
                let WorkgroupShape { group, items } = Profile::Software.workgroup_shape();
                // Software renderers specialise kernels by uniforms, so they get none.
                Ok(Shape { workgroup_size: group, items, params: Space::Storage, ..Shape::default() })
            }
            _ if path.extension().is_some_and(|extension| extension == "toml") => {
                let shape: Shape = config_file::parse(path, &config_file::read(path)?)?;
                shape.check().map_err(|why| Failure::Usage(format!("{name}: {why}")))?;
                Ok(shape)
            }
            _ => Err(Failure::Usage(format!(
                "--profile is `{name}`; it must be floor, software, gpu, or a file that ends in .toml"
            ))),
        }
    }

    fn check(&self) -> Result<(), String> {
        let ranges = [
            ("workgroup_size", u64::from(self.workgroup_size), 1024),
            ("items", self.items.into(), 1024),
            ("windows", self.windows.into(), 64),
        ];
        for (key, value, most) in ranges {
            if !(1..=most).contains(&value) {
                return Err(format!("{key} is {value}; it must be from 1 to {most}"));
            }
        }
        if !self.workgroup_size.is_power_of_two() {
            return Err(format!("workgroup_size is {}; it must be a power of two", self.workgroup_size));
        }
        if !self.window_bytes.is_power_of_two() || !(256..=1 << 33).contains(&self.window_bytes) {
            return Err(format!("window_bytes is {}; it must be a power of two from 256 to 2^33", self.window_bytes));
        }
        Ok(())
    }

    /// Returns the variant of a kernel whose arrays are cut into `windows` windows.
    pub fn variant<'a>(&self, windows: &'a [u32]) -> Variant<'a> {
        let params = match self.params {
            Space::Uniform => ParamsSpace::Uniform,
            Space::Immediate => ParamsSpace::Immediate,
            Space::Storage => ParamsSpace::Storage,
        };
        let shape = WorkgroupShape { group: self.workgroup_size, items: self.items };
        Variant { params, ..Variant::plain(windows, self.window_bytes / 4, shape) }
    }
}
