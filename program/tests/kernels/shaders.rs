//! Every kernel of the library as text, without a GPU: it compiles for every backend with what any
//! device has, and its shape keeps within what any device allows.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex};

use super::uniformity::{Scope, check as check_meetings};
use meshloom::fft::{self, Limits, Precision};
use meshloom::gpu::Variant as Form;
use meshloom::gpu::{Access, KernelSource, ParamsSpace, Profile, Slot, WindowBinding, WorkgroupShape};
use meshloom::points::neighbors::{self, GroupShape, Lanes};
use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess};

/// Limits of any device.
const FLOOR: Limits = Limits {
    workgroup_bytes: 16384,
    invocations: 256,
    points: 16,
    alone: 16,
    shared: true,
    columns: 16,
    cache_bytes: 0,
};
/// Lines of one invocation each, as on software renderers.
const SOFTWARE: Limits = Limits { workgroup_bytes: 32768, alone: 64, shared: false, ..FLOOR };
/// Few points and columns, which gives other shapes.
const NARROW: Limits = Limits { points: 4, alone: 1, columns: 4, ..FLOOR };
/// Limits of GPUs: NVIDIA's give 48 KiB to a workgroup, AMD's and Intel's 64, Apple's 32.
const GPUS: [Limits; 3] = [gpu(48), gpu(64), gpu(32)];

const fn gpu(kib: u64) -> Limits {
    Limits { workgroup_bytes: kib << 10, invocations: 1024, ..FLOOR }
}

const STORAGE_BUFFERS: usize = 8;
const PARAMS_BYTES: u32 = 256;
/// Words of a window.
const WINDOW: u64 = 1 << 20;

/// One of each kind: alone, every radix, several stages, convolutions, and several passes of both.
const LENGTHS: [u64; 20] = [1, 2, 5, 7, 16, 22, 31, 37, 60, 74, 96, 105, 169, 256, 323, 1000, 1024, 4096, 5183, 8192];
/// One of each kind on software renderers.
const SOFTWARE_LENGTHS: [u64; 11] = [1, 7, 31, 60, 74, 105, 256, 323, 1000, 4096, 5183];
/// Kernels whose shape depends on how much a workgroup may have.
const LONG: [u64; 7] = [256, 512, 1000, 1024, 2039, 4096, 8192];
/// Kernels that are tested in many windows and with other limits.
const SOME: [u64; 5] = [1, 15, 37, 64, 360];

/// Rooms whose kernels take stacks.
const STACKED: [&str; 4] = ["exchange::", "inference::", "mesh::", "operators::"];

/// A kernel in one form.
struct Variant {
    name: String,
    source: Arc<KernelSource>,
    windows: Vec<u32>,
    limits: Limits,
    /// Kernels of transforms.
    precision: Option<Precision>,
    text: String,
    /// The module that naga made of the text, or why it is refused.
    checked: Result<(Module, ModuleInfo), String>,
}

/// Parses, and validates with no capability beyond the baseline.
fn check(text: &str) -> Result<(Module, ModuleInfo), String> {
    check_with(text, Capabilities::empty())
}

fn check_with(text: &str, capabilities: Capabilities) -> Result<(Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    if capabilities.contains(Capabilities::SUBGROUP) {
        validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    }
    let info = validator.validate(&module).map_err(|e| e.emit_to_string(text))?;
    Ok((module, info))
}

/// Numbers of windows of each of `slots`: one, the same number, different ones.
fn windows(slots: usize) -> Vec<Vec<u32>> {
    let mixed = (0..slots as u32).map(|slot| 1 + slot % 3).collect();
    vec![vec![1; slots], vec![7; slots], mixed]
}

fn slots(source: &KernelSource) -> Vec<Slot> {
    source.slots().unwrap()
}

/// Returns a kernel's form with this number of windows.
fn form(windows: &[u32], shape: WorkgroupShape, subgroup_barrier: bool) -> Form<'_> {
    Form { subgroup_barrier, ..Form::plain(windows, WINDOW, shape) }
}

/// Returns `true` if a kernel uses operations across a subgroup.
fn has_subgroups(source: &KernelSource) -> bool {
    let windows = vec![1; slots(source).len()];
    let text = source.wgsl(&form(&windows, Profile::Gpu.workgroup_shape(), false)).unwrap();
    text.lines().any(|line| line.split("//").next().unwrap().contains("subgroup"))
}

/// All variants that differ in more than the value of a constant that nothing uses, not checked
/// yet.
#[derive(Default)]
struct Texts {
    seen: HashSet<String>,
    variants: Vec<Variant>,
    written: usize,
}

impl Texts {
    fn add(
        &mut self,
        source: &Arc<KernelSource>,
        windows: &[u32],
        shape: WorkgroupShape,
        limits: Limits,
        precision: Option<Precision>,
    ) {
        self.add_form(source, &form(windows, shape, has_subgroups(source)), limits, precision);
    }

    fn add_form(&mut self, source: &Arc<KernelSource>, form: &Form<'_>, limits: Limits, precision: Option<Precision>) {
        let &Form { windows, shape: WorkgroupShape { group, items }, stacked, .. } = form;
        let stack = if stacked { "in a stack, " } else { "" };
        let name = format!("{} in {windows:?} windows, {stack}{group} x {items}, {limits:?}", source.label());
        let text = source.wgsl(form).unwrap_or_else(|e| panic!("{name}: {e}"));
        self.written += 1;
        let unused = text.matches("ITEMS").count() == 1;
        let key = if unused { text.replace(&format!("const ITEMS: u32 = {items}u;"), "") } else { text.clone() };
        if self.seen.insert(key) {
            let (source, windows, checked) = (source.clone(), windows.to_vec(), Err(String::new()));
            self.variants.push(Variant { name, source, windows, limits, precision, text, checked });
        }
    }
}

static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(|| {
    let mut texts = Texts::default();
    let baseline = meshloom_program::kernels().into_iter().filter(|source| !has_subgroups(source));
    for source in baseline.map(Arc::new) {
        let slots = slots(&source).len();
        for windows in windows(slots) {
            texts.add(&source, &windows, Profile::Gpu.workgroup_shape(), FLOOR, None);
        }
        // Kernels of models also run in stacks, if strides fit beside their parameters.
        let is_of_models = STACKED.iter().any(|room| source.label().starts_with(room));
        let params = source.param_fields().last().map_or(0, |last| last.offset);
        if is_of_models && params + 16 * slots.div_ceil(4) + 16 <= PARAMS_BYTES as usize {
            let shape = Profile::Gpu.workgroup_shape();
            texts.add_form(&source, &Form { stacked: true, ..form(&vec![1; slots], shape, false) }, FLOOR, None);
        }
        // Text that depends on the windows does not depend on the shape.
        texts.add(&source, &vec![1; slots], Profile::Software.workgroup_shape(), FLOOR, None);
    }
    // Transforms have workgroups of their own, whatever the shape of other kernels.
    for (precision, lengths, limits, many) in [
        (Precision::Single, &LENGTHS[..], FLOOR, false),
        (Precision::Single, &SOFTWARE_LENGTHS, SOFTWARE, false),
        (Precision::Single, &LONG, GPUS[0], false),
        (Precision::Single, &LONG, GPUS[1], false),
        (Precision::Single, &LONG, GPUS[2], false),
        (Precision::Single, &SOME, NARROW, false),
        (Precision::Single, &SOME[..2], FLOOR, true),
        (Precision::Double, &SOME, FLOOR, false),
        (Precision::Double, &SOME, SOFTWARE, false),
    ] {
        for source in fft::line_kernels(precision, lengths, limits).into_iter().map(Arc::new) {
            let slots = slots(&source).len();
            for windows in if many { windows(slots) } else { vec![vec![1; slots]] } {
                texts.add(&source, &windows, Profile::Gpu.workgroup_shape(), limits, Some(precision));
            }
        }
    }
    for (precision, limits) in [(Precision::Single, FLOOR), (Precision::Single, GPUS[0]), (Precision::Double, FLOOR)] {
        let sources = fft::whole_kernels(precision, limits);
        assert!(sources.len() > 20, "{} whole transforms", sources.len());
        for source in sources.into_iter().map(Arc::new) {
            let windows = vec![1; slots(&source).len()];
            texts.add(&source, &windows, Profile::Gpu.workgroup_shape(), limits, Some(precision));
        }
    }
    let Texts { mut variants, written, .. } = texts;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(variants.iter_mut());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some(variant) = next else { break };
                    variant.checked = match variant.precision {
                        Some(Precision::Double) => check_with(&variant.text, Capabilities::FLOAT64),
                        _ => check(&variant.text),
                    };
                }
            });
        }
    });
    println!("{written} variants of kernels, {} distinct", variants.len());
    variants
});

/// Fails with the first of what is wrong with variants, if anything is.
#[track_caller]
fn report(wrong: impl Iterator<Item = String>) {
    let wrong: Vec<String> = wrong.collect();
    let first = wrong[..wrong.len().min(20)].join("\n");
    assert!(wrong.is_empty(), "{} of {} variants:\n{first}", wrong.len(), VARIANTS.len());
}

/// Holds every valid variant against a rule.
#[track_caller]
fn over_all(rule: impl Fn(&Variant, &Module, &ModuleInfo) -> Result<(), String>) {
    report(VARIANTS.iter().filter_map(|v| {
        let (module, info) = v.checked.as_ref().ok()?;
        rule(v, module, info).err().map(|why| format!("{}: {why}", v.name))
    }));
}

#[test]
fn every_kernel_is_valid_with_baseline_capabilities() {
    report(VARIANTS.iter().filter_map(|v| v.checked.as_ref().err().map(|why| format!("{}: {why}", v.name))));
    let slots = |n: usize| VARIANTS.iter().any(|v| slots(&v.source).len() == n);
    assert!(slots(2) && slots(3) && slots(4) && slots(6), "kernels are missing");
}

/// Features that a kernel needs beyond the baseline.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Double,
    Subgroups,
}

impl Needs {
    fn of(variant: &Variant) -> Self {
        if variant.precision == Some(Precision::Double) { Needs::Double } else { Needs::Nothing }
    }
}

/// Writes `module` for a backend, checked or not, and gives the first thing that went wrong.
fn write(module: &Module, info: &ModuleInfo, checked: bool, needs: Needs) -> Result<(), String> {
    let subgroups = needs == Needs::Subgroups;
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    let bounds_check_policies =
        BoundsCheckPolicies { index: policy, buffer: policy, image_load: policy, binding_array: policy };
    let entry_point = Some((ShaderStage::Compute, "main".to_string()));
    let spirv = || {
        let options = spv::Options {
            lang_version: if subgroups { (1, 3) } else { (1, 0) },
            capabilities: Some(match needs {
                Needs::Nothing => [spv::Capability::Shader].into_iter().collect(),
                Needs::Double => [spv::Capability::Shader, spv::Capability::Float64].into_iter().collect(),
                Needs::Subgroups => {
                    use spv::Capability::{
                        GroupNonUniform, GroupNonUniformArithmetic, GroupNonUniformBallot, GroupNonUniformShuffle,
                        GroupNonUniformVote, Shader,
                    };
                    [
                        Shader,
                        GroupNonUniform,
                        GroupNonUniformArithmetic,
                        GroupNonUniformBallot,
                        GroupNonUniformShuffle,
                        GroupNonUniformVote,
                    ]
                    .into_iter()
                    .collect()
                }
            }),
            bounds_check_policies,
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: checked,
            emit_int_div_checks: checked,
            ..Default::default()
        };
        let pipeline = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".into() };
        spv::write_vec(module, info, &options, Some(&pipeline)).map(drop).map_err(|e| e.to_string())
    };
    let metal = || {
        let options = msl::Options {
            lang_version: if subgroups { (2, 4) } else { (2, 0) },
            fake_missing_bindings: true,
            bounds_check_policies,
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: checked,
            emit_int_div_checks: checked,
            ..Default::default()
        };
        let pipeline = msl::PipelineOptions { entry_point: entry_point.clone(), ..Default::default() };
        let (_, written) = msl::write_string(module, info, &options, &pipeline).map_err(|e| e.to_string())?;
        written.entry_point_names.into_iter().try_for_each(|name| name.map(drop)).map_err(|e| e.to_string())
    };
    let direct = || {
        let options = hlsl::Options {
            shader_model: if subgroups { hlsl::ShaderModel::V6_0 } else { hlsl::ShaderModel::V5_1 },
            fake_missing_bindings: true,
            immediates_target: Some(hlsl::BindTarget::default()),
            restrict_indexing: checked,
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: checked,
            ..Default::default()
        };
        let pipeline = hlsl::PipelineOptions { entry_point: entry_point.clone() };
        let mut text = String::new();
        let mut writer = hlsl::Writer::new(&mut text, &options, &pipeline);
        let written = writer.write(module, info, None).map_err(|e| e.to_string())?;
        written.entry_point_names.into_iter().try_for_each(|name| name.map(drop)).map_err(|e| e.to_string())
    };
    let run = |name: &str, backend: &dyn Fn() -> Result<(), String>| {
        let outcome = catch_unwind(AssertUnwindSafe(backend)).unwrap_or_else(|_| Err("panics".into()));
        outcome.map_err(|why| format!("{name} (checked: {checked}): {why}"))
    };
    run("SPIR-V", &spirv)?;
    if needs == Needs::Double {
        // Only Vulkan has double precision.
        return Ok(());
    }
    run("MSL", &metal)?;
    run("HLSL", &direct)
}

#[test]
fn every_kernel_is_written_for_vulkan_metal_and_direct3d_unchecked() {
    over_all(|v, module, info| write(module, info, false, Needs::of(v)));
}

#[test]
fn every_kernel_is_written_for_vulkan_metal_and_direct3d_checked() {
    over_all(|v, module, info| write(module, info, true, Needs::of(v)));
}

/// Checks the kernels with parameters as immediate data, which differ in a line from the others.
#[test]
fn every_kernel_takes_its_parameters_as_immediate_data() {
    let sources: Vec<_> = meshloom_program::kernels().into_iter().filter(|source| !has_subgroups(source)).collect();
    let mut immediate = 0;
    for source in sources {
        let windows = vec![1; slots(&source).len()];
        let plain = form(&windows, Profile::Gpu.workgroup_shape(), false);
        let text = source.wgsl(&Form { params: ParamsSpace::Immediate, ..plain }).unwrap();
        immediate += u32::from(text.contains("\nvar<immediate> params: Params;"));
        assert!(!text.contains("@binding(0)"), "{}", source.label());
        let (module, info) = check_with(&text, Capabilities::IMMEDIATES).unwrap_or_else(|why| panic!("{why}"));
        for checked in [false, true] {
            write(&module, &info, checked, Needs::Nothing).unwrap_or_else(|why| panic!("{}: {why}", source.label()));
        }
    }
    assert!(immediate > 100, "{immediate}");
}

#[test]
fn kernels_with_subgroups_are_valid_and_written_where_there_are_some() {
    // Searches have no barriers, except those that count in workgroup memory.
    let forms = [(4, 4, 8), (8, 8, 4), (32, 64, 1)];
    let forms =
        forms.map(|(least, workgroup, slots)| GroupShape { lanes: Lanes::Subgroup { least, workgroup }, slots });
    let searches = forms.into_iter().flat_map(|form| neighbors::kernels_in(form, &[1, 32]));
    let searches = searches.map(|source| (source, false));
    let listed = meshloom_program::kernels().into_iter().filter(has_subgroups).map(|source| (source, true));
    let sources: Vec<_> = listed.chain(searches).collect();
    assert!(sources.len() > 6, "kernels are missing");
    for (source, barriered) in sources {
        let all = windows(slots(&source).len());
        for windows in if barriered { &all[..] } else { &all[..1] } {
            let name = format!("{} in {windows:?} windows", source.label());
            let shape = Profile::Gpu.workgroup_shape();
            let text = source.wgsl(&form(windows, shape, false)).unwrap();
            let (module, info) = check_with(&text, Capabilities::SUBGROUP).unwrap_or_else(|e| panic!("{name}: {e}"));
            let invocations: u32 = module.entry_points[0].workgroup_size.iter().product();
            assert!(u64::from(invocations) <= FLOOR.invocations, "{name}");
            // Large tiles are for devices with the memory.
            let most = if name.contains("sort_large_sweep") { 28 << 10 } else { FLOOR.workgroup_bytes };
            assert!(u64::from(workgroup_bytes(&module)) <= most, "{name}");
            let barriers = check_meetings(&module, Scope::Workgroup).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(barriers > 0, barriered || workgroup_bytes(&module) > 0, "{name}");
            assert_eq!(packed(&module), Ok(()), "{name}");
            // Barriers of a subgroup, where devices have them: Vulkan's.
            let text = source.wgsl(&form(windows, shape, true)).unwrap();
            let capabilities = Capabilities::SUBGROUP | Capabilities::SUBGROUP_BARRIER;
            check_with(&text, capabilities).unwrap_or_else(|e| panic!("{name}, with barriers: {e}"));
            for checked in [false, true] {
                write(&module, &info, checked, Needs::Subgroups).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
    }
}

/// Returns the bytes of all globals in a space, as WebGPU counts workgroup memory.
fn workgroup_bytes(module: &Module) -> u32 {
    let globals = module.global_variables.iter().filter(|(_, global)| global.space == AddressSpace::WorkGroup);
    globals.map(|(_, global)| module.types[global.ty].inner.size(module.to_ctx()).next_multiple_of(16)).sum()
}

#[test]
fn arrays_in_one_window_fit_the_floor_of_devices() {
    over_all(|v, module, _| {
        let [entry] = &module.entry_points[..] else { return Err("not one entry point".into()) };
        let invocations: u32 = entry.workgroup_size.iter().product();
        let bytes = workgroup_bytes(module);
        let buffers = module.global_variables.iter();
        let buffers = buffers.filter(|(_, global)| matches!(global.space, AddressSpace::Storage { .. })).count();
        if entry.name != "main" || u64::from(invocations) > v.limits.invocations {
            return Err(format!("{}: {invocations} invocations", entry.name));
        }
        if u64::from(bytes) > v.limits.workgroup_bytes {
            return Err(format!("{bytes} bytes of workgroup memory"));
        }
        if v.windows.iter().all(|&w| w == 1) && buffers > STORAGE_BUFFERS {
            return Err(format!("{buffers} storage buffers"));
        }
        Ok(())
    });
}

#[test]
fn bindings_are_params_and_then_the_windows_of_each_slot() {
    over_all(|v, module, _| {
        let mut expected = vec![AddressSpace::Uniform];
        for (slot, &windows) in slots(&v.source).iter().zip(&v.windows) {
            let write = if slot.access == Access::Read { StorageAccess::empty() } else { StorageAccess::STORE };
            let space = AddressSpace::Storage { access: StorageAccess::LOAD | write };
            expected.extend(std::iter::repeat_n(space, windows as usize));
        }
        let globals = module.global_variables.iter();
        let bound: BTreeMap<_, _> = globals
            .filter_map(|(_, global)| Some(((global.binding?.group, global.binding?.binding), global.space)))
            .collect();
        let expected: BTreeMap<_, _> = (0..).map(|binding| (0, binding)).zip(expected).collect();
        if bound == expected { Ok(()) } else { Err(format!("{bound:?}")) }
    });
}

/// `params` as WGSL lays it out.
struct Layout<'a> {
    /// Name, offset and size.
    fields: Vec<(&'a str, u32, u32)>,
    span: u32,
}

fn params(module: &Module) -> Result<Layout<'_>, String> {
    let uniform = module.global_variables.iter().find(|(_, global)| global.space == AddressSpace::Uniform);
    let (_, uniform) = uniform.ok_or("no params")?;
    let naga::TypeInner::Struct { members, span } = &module.types[uniform.ty].inner else {
        return Err("params is not a struct".into());
    };
    let size = |member: &naga::StructMember| module.types[member.ty].inner.size(module.to_ctx());
    let fields = members.iter().map(|m| (m.name.as_deref().unwrap_or(""), m.offset, size(m))).collect();
    Ok(Layout { fields, span: *span })
}

/// Checks that a struct is laid out as `#[repr(C)]` does it from fields that bytemuck accepts: one
/// behind the other, without padding between them. (Behind the last the host's 256 bytes of a
/// dispatch go on.)
fn packed(module: &Module) -> Result<(), String> {
    let Layout { fields, span } = params(module)?;
    let mut end = 0;
    for (name, offset, size) in fields {
        if offset != end {
            return Err(format!("{} bytes of padding before `{name}`", offset - end));
        }
        end += size;
    }
    if span > PARAMS_BYTES { Err(format!("params of {span} bytes")) } else { Ok(()) }
}

#[test]
fn params_have_no_padding_and_are_small() {
    over_all(|_, module, _| packed(module));
    let of = |fields: &str| {
        let text = format!(
            "struct Params {{ {fields} }} @group(0) @binding(0) var<uniform> params: Params;
             @compute @workgroup_size(1) fn main() {{ _ = params.a; }}"
        );
        packed(&check(&text).unwrap().0)
    };
    assert_eq!(of("a: u32, b: f32"), Ok(()));
    assert!(of("a: u32, b: vec2<f32>").unwrap_err().contains("before `b`"));
    assert_eq!(of("a: vec4<u32>, b: f32"), Ok(()));
    assert!(of("a: array<vec4<u32>, 17>").unwrap_err().contains("272 bytes"));
}

#[test]
fn params_are_where_rust_has_them() {
    over_all(|v, module, _| {
        let expected = v.source.param_fields();
        let Layout { fields, .. } = params(module)?;
        let strides = fields.first().filter(|first| first.0 == "copy_strides").map_or(0, |strides| strides.2);
        let own = &fields[usize::from(strides > 0)..];
        let alike = own
            .iter()
            .zip(expected)
            .all(|(have, want)| (have.0, (have.1 - strides) as usize) == (want.name, want.offset));
        if alike && own.len() >= expected.len() { Ok(()) } else { Err(format!("{fields:?}, Rust has {expected:?}")) }
    });
}

#[test]
fn every_barrier_stands_in_uniform_control_flow() {
    over_all(|v, module, info| {
        let count = check_meetings(module, Scope::Workgroup)?;
        let main = info.get_entry_point(0);
        let mut globals = module.global_variables.iter();
        let shares =
            globals.any(|(handle, global)| global.space == AddressSpace::WorkGroup && !main[handle].is_empty());
        // Lanes that share memory wait for each other, and no other lanes do. Lines that one
        // invocation transforms in loops keep them in workgroup memory of its own.
        let alone = v.text.contains("let lane = 0u;");
        if (shares && !alone) == (count > 0) {
            Ok(())
        } else {
            Err(format!("{count} barriers, workgroup memory: {shares}"))
        }
    });
    assert!(VARIANTS.iter().any(|v| {
        v.checked.as_ref().is_ok_and(|(module, _)| check_meetings(module, Scope::Workgroup).is_ok_and(|n| n > 4))
    }));
}

#[test]
fn the_baseline_refuses_what_not_every_device_has() {
    let of = |globals: &str, body: &str| {
        check(&format!(
            "{globals}
             @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) lane: u32) {{ {body} }}"
        ))
        .map(drop)
    };
    assert_eq!(of("", "var x = f32(lane); x += 1.0;"), Ok(()));
    for (globals, body, why) in [
        ("", "var x = f64(lane); x += 1.0lf;", "FLOAT64"),
        ("enable subgroups;", "var x = subgroupAdd(lane); x += 1u;", "subgroup"),
        ("@group(0) @binding(0) var<storage, read_write> x: atomic<f32>;", "atomicAdd(&x, 1.0);", "FLOAT32_ATOMIC"),
        ("var<immediate> x: u32;", "var y = x; y += 1u;", "IMMEDIATES"),
    ] {
        let error = of(globals, body).expect_err(body);
        assert!(error.contains(why), "{globals} {body}: {error}");
    }
}

/// In SPIR-V alone, since windows are bound together through Vulkan only.
#[test]
fn windows_that_are_bound_together_are_indexed_like_memory() {
    let capabilities = Capabilities::SUBGROUP
        | Capabilities::FLOAT64
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_INT64_ATOMIC_ALL_OPS
        | Capabilities::STORAGE_BUFFER_BINDING_ARRAY
        | Capabilities::STORAGE_BUFFER_BINDING_ARRAY_NON_UNIFORM_INDEXING;
    let mut written = 0;
    for source in meshloom_program::kernels() {
        let windows = vec![3; slots(&source).len()];
        let plain = form(&windows, Profile::Gpu.workgroup_shape(), false);
        let text = source.wgsl(&Form { binding: WindowBinding::BindingArray, ..plain }).unwrap();
        assert!(!text.contains("switch i >>"), "{}", source.label());
        // No place may choose a binding that is not there, not even one that a masked lane has
        // left: SwiftShader crashes.
        for at in text.split("_windows[").skip(1) {
            assert!(at.starts_with("min(i >> ") && at.contains(", 2u)].at["), "{}: {at:.40}", source.label());
        }
        let (module, info) = check_with(&text, capabilities).unwrap_or_else(|e| panic!("{}: {e}", source.label()));
        let options = naga::back::spv::Options::default();
        naga::back::spv::write_vec(&module, &info, &options, None)
            .unwrap_or_else(|e| panic!("{}: {e}", source.label()));
        written += 1;
    }
    assert!(written > 50, "kernels are missing");
}
