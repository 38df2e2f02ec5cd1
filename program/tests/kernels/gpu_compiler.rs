//! The GPU form of every kernel, compiled by a real GPU's compiler without the GPU: RADV, Mesa's
//! driver for AMD, compiles for hardware that is not there (`RADV_FORCE_FAMILY`) and says what
//! became of a kernel. Nothing is dispatched.
//!
//! Where the driver is absent the tests say so and pass; `make test` installs it (package
//! mesa-vulkan-drivers).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use ash::{khr, vk};
use meshloom::fft::{self, Limits, Precision};
use meshloom::gpu::{KernelSource, Profile, Variant};
use meshloom::mesh;
use meshloom::points::neighbors::{self, GroupShape, Lanes};
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

/// Variable that says that this process is a child that compiles for the family of
/// `RADV_FORCE_FAMILY`.
const CHILD: &str = "MESHLOOM_TEST_COMPILER";

/// Lengths of transforms: those of meshes, of every radix, and by Bluestein's algorithm.
const LENGTHS: [u64; 6] = [60, 256, 512, 1024, 2039, 4096];

/// Workgroup memory of GPUs.
const LIMITS: Limits = Limits {
    workgroup_bytes: 48 << 10,
    invocations: 1024,
    points: 16,
    alone: 16,
    shared: true,
    columns: 16,
    cache_bytes: 0,
};

/// Grouping of searches on GPUs: by subgroups of 32 and more, or where there are none by
/// workgroups of 32.
const GROUPS: [GroupShape; 2] = [
    GroupShape { lanes: Lanes::Subgroup { least: 32, workgroup: 64 }, slots: 1 },
    GroupShape { lanes: Lanes::Workgroup(32), slots: 1 },
];

/// Returns the kernels that a GPU gets.
fn kernels() -> Vec<KernelSource> {
    let transforms = fft::line_kernels(Precision::Single, &LENGTHS, LIMITS);
    // The tuner tries lines of two stages.
    let two_stages = Limits { points: 32, alone: 32, ..LIMITS };
    let transforms = transforms.into_iter().chain(fft::line_kernels(Precision::Single, &[512, 1024], two_stages));
    let transforms = transforms.chain(fft::whole_kernels(Precision::Single, LIMITS));
    let serial = |source: &KernelSource| source.fixed_group() == Some(8);
    let search = |source: &KernelSource| source.label().starts_with("neighbors::") && source.fixed_group().is_some();
    let others = meshloom_program::kernels().into_iter().filter(move |source| !serial(source) && !search(source));
    let searches = GROUPS.into_iter().flat_map(|form| neighbors::kernels_in(form, &[1, 32]));
    let searches = searches.filter(search);
    others
        .filter(|source| !source.label().starts_with("fft::"))
        .chain(searches)
        .chain(transforms)
        .chain(mesh::kernels_of_features())
        .collect()
}

/// A kernel as wgpu gives it to a driver.
struct Binary {
    words: Vec<u32>,
    /// Storage buffers behind the parameters.
    arrays: u32,
    subgroups: bool,
}

fn binary(source: &KernelSource) -> Result<Binary, String> {
    let windows = vec![1; source.slots().map_err(|e| e.to_string())?.len()];
    let shape = Profile::Gpu.workgroup_shape();
    let variant = Variant::plain(&windows, 1 << 20, shape);
    let text = source.wgsl(&variant).map_err(|e| e.to_string())?;
    let module = naga::front::wgsl::parse_str(&text).map_err(|e| e.emit_to_string(&text))?;
    let subgroups = text.contains("subgroup");
    let mut capabilities = if subgroups { Capabilities::SUBGROUP } else { Capabilities::empty() };
    if text.contains("u64") {
        capabilities |= Capabilities::SHADER_INT64 | Capabilities::SHADER_INT64_ATOMIC_ALL_OPS;
    }
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|e| e.emit_to_string(&text))?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = spv::Options {
        lang_version: (1, 3),
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..Default::default()
    };
    let pipeline = spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: "main".into() };
    let words = spv::write_vec(&module, &info, &options, Some(&pipeline)).map_err(|e| e.to_string())?;
    Ok(Binary { words, arrays: windows.len() as u32, subgroups })
}

/// Statistics of a kernel from the compiler.
type Statistics = BTreeMap<String, u64>;

/// A device without hardware.
struct Device {
    device: ash::Device,
    statistics: khr::pipeline_executable_properties::Device,
}

impl Device {
    fn open(entry: &ash::Entry) -> Self {
        // SAFETY: structures live as long as the calls that read them; nothing is destroyed before
        // the process ends.
        unsafe {
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
            let info = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&info, None).unwrap();
            let physical = instance.enumerate_physical_devices().unwrap()[0];
            let mut executable =
                vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default().pipeline_executable_info(true);
            let mut sizes = vk::PhysicalDeviceSubgroupSizeControlFeatures::default().subgroup_size_control(true);
            let features = vk::PhysicalDeviceFeatures::default().robust_buffer_access(true).shader_int64(true);
            let mut atomics = vk::PhysicalDeviceShaderAtomicInt64Features::default().shader_buffer_int64_atomics(true);
            let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
            let names = [khr::pipeline_executable_properties::NAME.as_ptr(), c"VK_EXT_subgroup_size_control".as_ptr()];
            let info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .enabled_extension_names(&names)
                .enabled_features(&features)
                .push_next(&mut executable)
                .push_next(&mut atomics)
                .push_next(&mut sizes);
            let device = instance.create_device(physical, &info, None).unwrap();
            let statistics = khr::pipeline_executable_properties::Device::new(&instance, &device);
            Device { device, statistics }
        }
    }

    fn compile(&self, binary: &Binary) -> Result<Statistics, vk::Result> {
        let binding = |number: u32| {
            let ty = match number {
                0 => vk::DescriptorType::UNIFORM_BUFFER_DYNAMIC,
                _ => vk::DescriptorType::STORAGE_BUFFER,
            };
            let binding = vk::DescriptorSetLayoutBinding::default().binding(number).descriptor_type(ty);
            binding.descriptor_count(1).stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0..=binary.arrays).map(binding).collect();
        // wgpu lets the size vary where the device was opened with subgroups.
        let varying = match binary.subgroups {
            true => vk::PipelineShaderStageCreateFlags::ALLOW_VARYING_SUBGROUP_SIZE,
            false => vk::PipelineShaderStageCreateFlags::empty(),
        };
        // SAFETY: as above; the SPIR-V was validated by naga.
        unsafe {
            let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let sets = [self.device.create_descriptor_set_layout(&set, None)?];
            let layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
            let layout = self.device.create_pipeline_layout(&layout, None)?;
            let module = vk::ShaderModuleCreateInfo::default().code(&binary.words);
            let module = self.device.create_shader_module(&module, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main")
                .flags(varying);
            let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
            let info = info.flags(vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR);
            let made = self.device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            let pipeline = made.map_err(|(_, error)| error)?[0];
            let which = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline);
            let found = self.statistics.get_pipeline_executable_statistics(&which)?;
            let found = found.iter().map(|statistic| {
                let name = statistic.name_as_c_str().unwrap_or(c"?");
                (name.to_string_lossy().into_owned(), statistic.value.u64)
            });
            let found = found.collect();
            self.device.destroy_pipeline(pipeline, None);
            self.device.destroy_shader_module(module, None);
            Ok(found)
        }
    }
}

/// Compiles every kernel and prints a line for each: what a child does.
fn compile_all() {
    // SAFETY: the loader is the system's.
    let entry = unsafe { ash::Entry::load() }.unwrap();
    let device = Device::open(&entry);
    let kernels = kernels();
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(source) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome =
                        binary(source).and_then(|binary| device.compile(&binary).map_err(|error| error.to_string()));
                    lines.lock().unwrap().push((source.label().to_string(), outcome));
                }
            });
        }
    });
    for (label, outcome) in lines.into_inner().unwrap() {
        match outcome {
            Ok(found) => {
                let [scratch, spilled, waves, code] =
                    ["Scratch size", "Spilled VGPRs", "Subgroups per SIMD", "Code size"].map(|name| found[name]);
                println!("KERNEL\t{label}\t\t{scratch}\t{spilled}\t{waves}\t{code}");
            }
            Err(error) => println!("KERNEL\t{label}\t{error:?}"),
        }
    }
}

/// Budget of a kernel.
struct Budget {
    /// Beginning of its label; the first line that fits counts.
    label: &'static str,
    /// Bytes of memory of its own per subgroup, for spilled registers and arrays that do not fit
    /// into registers.
    scratch: u64,
    /// Subgroups in flight per scheduler at least, on RDNA 3 (of 32) and on GCN (of 10).
    waves: [u64; 2],
    /// Bytes of code.
    code: u64,
}

const fn budget(label: &'static str, scratch: u64, waves: [u64; 2], code: u64) -> Budget {
    Budget { label, scratch, waves, code }
}

/// Upper bounds that hold for compilers of Mesa 22 and 25. The newer one counts what workgroup
/// memory leaves of subgroups, too. What is bound by memory wants no scratch and many waves; lines
/// with scratch are debts: filters of Bluestein's lengths with several results hold a spectrum
/// beside a convolution.
const BUDGETS: &[Budget] = &[
    budget("exchange::encode", 0, [20, 5], 4096),
    budget("exchange::", 0, [24, 8], 4096),
    budget("fft::Copy", 0, [24, 8], 2048),
    budget("fft::Backward(60) to vectors", 0, [8, 2], 16384),
    budget("fft::Backward(256) to vectors", 0, [8, 2], 16384),
    budget("fft::Backward(512) to vectors", 0, [8, 2], 16384),
    budget("fft::Backward(1024) to vectors", 0, [8, 2], 16384),
    budget("fft::Backward(4096) to vectors", 0, [8, 2], 16384),
    budget("fft::Spread", 0, [8, 2], 24576),
    budget("fft::Filter(1)(2039)", 0, [6, 1], 30720),
    budget("fft::Filter(3)(2039)", 8192, [6, 1], 31744),
    budget("fft::Forward(2039)", 0, [6, 1], 17408),
    budget("fft::Backward(2039)", 0, [6, 1], 16384),
    budget("fft::Filter(1)(4096)", 0, [6, 1], 16384),
    budget("fft::Filter(3)(4096)", 0, [6, 1], 18432),
    budget("fft::Forward(4096)", 0, [6, 1], 16384),
    budget("fft::Backward(4096)", 0, [6, 1], 16384),
    budget("fft::Filter(3)(1024)", 0, [8, 2], 17408),
    budget("fft::Forward(1024)", 0, [8, 2], 17408),
    budget("fft::Filter(3)(60)", 0, [8, 1], 16384),
    // Two or three transforms in one kernel.
    budget("fft::whole", 0, [8, 2], 18432),
    budget("fft::", 0, [8, 2], 16384),
    budget("mesh::kick_drift", 0, [24, 4], 10240),
    budget("mesh::power_bins", 0, [16, 4], 4096),
    budget("mesh::force_adjoint", 0, [24, 4], 12288),
    budget("mesh::force_tangent", 0, [18, 3], 14592),
    budget("mesh::paint_tangent", 0, [24, 4], 9216),
    budget("mesh::paint", 0, [24, 5], 10240),
    budget("mesh::readout_vectors", 0, [24, 5], 9216),
    budget("mesh::readout", 0, [24, 4], 7168),
    budget("mesh::tile_count", 0, [24, 5], 10240),
    budget("mesh::tile_order", 0, [24, 8], 2048),
    // Workgroup memory leaves that many.
    budget("mesh::tile_", 0, [20, 5], 10240),
    budget("mesh::", 0, [24, 8], 6144),
    budget("shallow_water::step", 0, [20, 4], 4096),
    budget("shallow_water::", 0, [24, 8], 2304),
    budget("pm::light_cone", 0, [16, 3], 14336),
    budget("pm::", 0, [24, 7], 14336),
    budget("neighbors::link_", 0, [24, 8], 2048),
    budget("neighbors::sort_rows", 0, [24, 8], 4096),
    budget("neighbors::link", 0, [16, 4], 8192),
    budget("neighbors::within", 0, [16, 4], 9728),
    budget("neighbors::nearest", 0, [10, 2], 20480),
    budget("primitives::scan_apply", 0, [20, 6], 4096),
    budget("primitives::sort_codes", 0, [16, 4], 4096),
    budget("primitives::sort_count", 0, [24, 6], 4096),
    budget("primitives::sort_scatter", 0, [24, 8], 4096),
    budget("primitives::sort_sweep", 0, [6, 1], 32768),
    budget("primitives::sort_large_sweep", 0, [6, 1], 32768),
    budget("primitives::sort_alone", 0, [6, 1], 20480),
    budget("primitives::sort_runs_alone", 0, [6, 1], 20480),
    budget("primitives::sort_short_runs", 0, [24, 7], 4096),
    budget("primitives::sort_splitters", 0, [8, 2], 2048),
    budget("primitives::sort_long_runs", 0, [24, 8], 4608),
    budget("points::hilbert", 0, [24, 8], 8192),
    // One invocation: integers in place of f64.
    budget("inference::step_scalars", 0, [24, 6], 11264),
    budget("inference::direction_scalars", 0, [24, 6], 12288),
    // Sixteen directions, each in lines of its own.
    budget("inference::directions", 0, [24, 6], 10752),
    budget("inference::amplitude", 0, [24, 7], 5888),
    budget("tree::leaves", 0, [12, 3], 4096),
    budget("", 0, [24, 8], 4096),
];

fn check(line: &str, generation: usize) -> Result<(), String> {
    let mut fields = line.split('\t').skip(1);
    let mut text = || fields.next().unwrap_or_default();
    let (label, error) = (text(), text());
    if !error.is_empty() {
        return Err(format!("{label}: {error}"));
    }
    let mut number = || text().parse::<u64>().unwrap();
    let (scratch, spilled, waves, code) = (number(), number(), number(), number());
    let budget = BUDGETS.iter().find(|budget| label.starts_with(budget.label)).unwrap();
    let kept = scratch <= budget.scratch
        && (spilled == 0 || budget.scratch > 0)
        && waves >= budget.waves[generation]
        && code <= budget.code;
    let found = format!("{scratch} bytes of scratch, {spilled} registers spilled, {waves} waves, {code} bytes of code");
    if kept { Ok(()) } else { Err(format!("{label}: {found}")) }
}

/// RADV, where it is installed.
fn radv() -> Option<PathBuf> {
    let drivers = fs::read_dir("/usr/share/vulkan/icd.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let named = env::var_os("MESHLOOM_TEST_RADV").map(PathBuf::from);
    named.into_iter().chain(drivers).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("radeon_icd")) && path.is_file()
    })
}

/// Compiles for a family of GPUs in a process of its own, which the driver may end. `names` are
/// those that it had from version to version.
fn family(names: &[&str], generation: usize) {
    if env::var_os(CHILD).is_some() {
        return;
    }
    let Some(radv) = radv() else {
        println!("RADV is not installed (MESHLOOM_TEST_RADV names its file): nothing was compiled for {names:?}");
        return;
    };
    for name in names {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "--nocapture", "gpu_compiler::kernels_are_compiled"]).env(CHILD, "1");
        child.env("RADV_FORCE_FAMILY", name).env("VK_DRIVER_FILES", &radv).env("VK_ICD_FILENAMES", &radv);
        child.env("MESA_SHADER_CACHE_DISABLE", "true");
        let output = child.output().unwrap();
        let [text, wrong] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        if output.status.code() == Some(2) || wrong.contains("Unknown family") || text.contains("Unknown family") {
            println!("this driver does not know {name}: {text}");
            continue;
        }
        assert!(output.status.success(), "{name}: {}\n{text}\n{wrong}", output.status);
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("KERNEL\t")).collect();
        assert!(lines.len() > 100, "{name}: {} kernels\n{text}", lines.len());
        let wrong: Vec<String> = lines.iter().filter_map(|line| check(line, generation).err()).collect();
        assert!(wrong.is_empty(), "{name}: {} of {} kernels\n{}", wrong.len(), lines.len(), wrong.join("\n"));
        println!("{} kernels compiled for {name}", lines.len());
        return;
    }
}

#[test]
fn kernels_are_compiled() {
    if env::var_os(CHILD).is_some() {
        compile_all();
    }
}

#[test]
fn kernels_keep_within_their_budgets_on_rdna3() {
    family(&["gfx1100", "navi31"], 0);
}

#[test]
fn kernels_keep_within_their_budgets_on_gcn() {
    family(&["vega10"], 1);
}
