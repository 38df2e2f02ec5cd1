//! Kernels in the languages of drivers, as wgpu's compiler writes them for kernels that are
//! trusted: without checks of bounds.

use clap::ValueEnum;
use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage};

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// The text of the library
    Wgsl,
    /// Vulkan's, binary
    Spirv,
    /// Metal's
    Msl,
    /// Direct3D's
    Hlsl,
}

impl Stage {
    /// Extensions of files in the language.
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Stage::Wgsl => &["wgsl", "txt"],
            Stage::Spirv => &["spv"],
            Stage::Msl => &["metal", "msl", "txt"],
            Stage::Hlsl => &["hlsl", "txt"],
        }
    }
}

/// A kernel in a language.
pub enum Output {
    Text(String),
    Binary(Vec<u8>),
}

impl Output {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Output::Text(text) => text.as_bytes(),
            Output::Binary(bytes) => bytes,
        }
    }
}

/// A valid kernel.
pub struct Parsed {
    module: Module,
    info: ModuleInfo,
}

/// Parses and validates WGSL.
///
/// # Errors
/// The compiler's message.
pub fn parse(text: &str) -> Result<Parsed, String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|error| error.emit_to_string(text))?;
    Ok(Parsed { module, info })
}

const UNCHECKED: BoundsCheckPolicies = BoundsCheckPolicies {
    index: BoundsCheckPolicy::Unchecked,
    buffer: BoundsCheckPolicy::Unchecked,
    image_load: BoundsCheckPolicy::Unchecked,
    binding_array: BoundsCheckPolicy::Unchecked,
};

impl Parsed {
    /// Invocations of a workgroup.
    pub fn workgroup(&self) -> u32 {
        self.module.entry_points.first().map_or(0, |entry| entry.workgroup_size.iter().product())
    }

    /// Returns the bytes of the parameters.
    pub fn param_bytes(&self) -> u32 {
        let is_params = |variable: &&naga::GlobalVariable| {
            variable.space == AddressSpace::Immediate || variable.binding.is_some_and(|place| place.binding == 0)
        };
        let params = self.module.global_variables.iter().map(|(_, variable)| variable).find(is_params);
        params.map_or(0, |params| self.module.types[params.ty].inner.size(self.module.to_ctx()))
    }

    /// Returns the kernel in a language other than WGSL.
    ///
    /// # Errors
    /// The feature that the language cannot express, such as double precision in Metal.
    pub fn write(&self, stage: Stage) -> Result<Output, String> {
        match stage {
            Stage::Wgsl => Err("it is in WGSL already".into()),
            Stage::Spirv => self.spirv(),
            Stage::Msl => self.msl(),
            Stage::Hlsl => self.hlsl(),
        }
    }

    fn spirv(&self) -> Result<Output, String> {
        let options = spv::Options {
            lang_version: (1, 3),
            // Names for readers: by default only builds of naga with assertions write them.
            flags: spv::WriterFlags::DEBUG,
            bounds_check_policies: UNCHECKED,
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: false,
            ..Default::default()
        };
        let pipeline = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".into() };
        let words = spv::write_vec(&self.module, &self.info, &options, Some(&pipeline));
        let words = words.map_err(|error| error.to_string())?;
        Ok(Output::Binary(words.into_iter().flat_map(u32::to_le_bytes).collect()))
    }

    fn msl(&self) -> Result<Output, String> {
        let options = msl::Options {
            lang_version: (2, 4),
            fake_missing_bindings: true,
            bounds_check_policies: UNCHECKED,
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: false,
            ..Default::default()
        };
        let pipeline =
            msl::PipelineOptions { entry_point: Some((ShaderStage::Compute, "main".into())), ..Default::default() };
        let (text, written) =
            msl::write_string(&self.module, &self.info, &options, &pipeline).map_err(|error| error.to_string())?;
        written.entry_point_names.into_iter().try_for_each(|name| name.map(drop)).map_err(|error| error.to_string())?;
        Ok(Output::Text(text))
    }

    fn hlsl(&self) -> Result<Output, String> {
        let options = hlsl::Options {
            shader_model: hlsl::ShaderModel::V6_0,
            fake_missing_bindings: true,
            immediates_target: Some(hlsl::BindTarget::default()),
            restrict_indexing: false,
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: false,
            ..Default::default()
        };
        let pipeline = hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, "main".into())) };
        let mut text = String::new();
        let written = hlsl::Writer::new(&mut text, &options, &pipeline).write(&self.module, &self.info, None);
        let written = written.map_err(|error| error.to_string())?;
        written.entry_point_names.into_iter().try_for_each(|name| name.map(drop)).map_err(|error| error.to_string())?;
        Ok(Output::Text(text))
    }
}
