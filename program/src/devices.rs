//! `meshloom devices`: the adapters of this machine.

use clap::Args;
use meshloom::exchange::tested_path;
use meshloom::gpu::{
    AdapterSelector, DeviceError, Gpu, Options, Profile, adapters, bytes, memory, unsuitable, unused_hardware,
};
use meshloom::wgpu::{Adapter, AdapterInfo};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::terminal;

#[derive(Args)]
pub struct Arguments {
    /// Print one JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if adapters().is_empty() {
        let none = DeviceError::NoAdapter { why: "the drivers offer none".into() };
        return Err(Failure::Failed(none.to_string()));
    }
    // As a run would open it, whatever the adapter.
    let options = meshloom_sanitizer::options().map_err(|error| Failure::Usage(error.to_string()))?;
    let (mut objects, mut text) = (Vec::new(), String::new());
    for (index, adapter) in adapters().iter().enumerate() {
        let (object, lines) = describe(index, adapter, &options);
        objects.push(object);
        text += &(lines.join("\n   ") + "\n");
    }
    let usable = objects.iter().any(|object| object["usable"] == json!(true));
    match arguments.json {
        true => terminal::print_object(&json!({ "devices": objects }))?,
        false => terminal::print(&text)?,
    }
    if let Some(warning) = unused_hardware(&options.adapter) {
        terminal::warn(&warning);
    }
    if !usable {
        let why = "every adapter is below what kernels need".into();
        return Err(Failure::Failed(DeviceError::NoAdapter { why }.to_string()));
    }
    Ok(())
}

/// Returns an adapter as an object and as lines of text.
fn describe(index: usize, adapter: &Adapter, options: &Options) -> (Value, Vec<String>) {
    let (info, memory) = (adapter.get_info(), memory(adapter));
    let pci = match info.device_pci_bus_id.as_str() {
        "" => String::new(),
        bus => format!(", PCI {bus}"),
    };
    let mut object = json!({
        "index": index, "name": info.name, "type": format!("{:?}", info.device_type),
        "backend": format!("{:?}", info.backend), "driver": info.driver, "driver_info": info.driver_info,
        "pci": info.device_pci_bus_id, "memory": memory,
    });
    let mut lines = vec![
        format!("{index}: {} ({:?}, {:?})", info.name, info.device_type, info.backend),
        format!("driver    {} {}{pci}", info.driver, info.driver_info),
    ];
    let options = Options { adapter: AdapterSelector::Index(index), ..options.clone() };
    let opened = match unsuitable(adapter) {
        Some(why) => Err(why),
        None => Gpu::open(&options, 0).map_err(|error| error.to_string()),
    };
    match opened {
        Err(why) => {
            lines.push(format!("unusable  {why}"));
            object["usable"] = json!(false);
            object["why"] = json!(why);
        }
        Ok(gpu) => {
            let (heap, able) = (memory.map_or("unknown".into(), bytes), gpu.capabilities());
            let [window, buffer] = [able.window_bytes, able.buffer_bytes].map(bytes);
            lines.push(format!("memory    {heap}; {window} per binding, {buffer} per buffer"));
            describe_capabilities(&gpu, &info, &mut object, &mut lines);
        }
    }
    (object, lines)
}

/// Adds the limits and optional features of an adapter that could be opened.
fn describe_capabilities(gpu: &Gpu, info: &AdapterInfo, object: &mut Value, lines: &mut Vec<String>) {
    let able = gpu.capabilities();
    let features = [
        ("f64", able.f64),
        ("atomic u64", able.atomic_u64),
        ("subgroups", able.subgroups),
        ("timestamps", able.timestamps),
        ("binding arrays", able.binding_arrays > 0),
        ("host-visible memory", able.host_visible),
    ];
    let features: Vec<&str> = features.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
    let profile = match able.profile {
        Profile::Gpu => "gpu",
        Profile::Software => "software",
    };
    let optional = if features.is_empty() { "none".into() } else { features.join(", ") };
    let (smallest, largest) = (info.subgroup_min_size, info.subgroup_max_size);
    lines.push(format!(
        "kernels   {} storage buffers, {} of workgroup memory, {} invocations per workgroup",
        able.bindings,
        bytes(able.workgroup_bytes.into()),
        able.invocations
    ));
    lines.push(format!("optional  {optional}; subgroups of {smallest} to {largest}"));
    lines.push(format!("profile   {profile}"));
    describe_exchange(gpu, object, lines);
    object["usable"] = json!(true);
    object["profile"] = json!(profile);
    object["features"] = json!(features);
    object["limits"] = json!({
        "binding_bytes": able.window_bytes, "buffer_bytes": able.buffer_bytes, "storage_buffers": able.bindings,
        "workgroup_bytes": able.workgroup_bytes, "invocations": able.invocations,
        "subgroup_min": smallest, "subgroup_max": largest,
    });
}

/// Adds the path to other ranks of the host, and why faster ones are impossible.
fn describe_exchange(gpu: &Gpu, object: &mut Value, lines: &mut Vec<String>) {
    match tested_path(gpu) {
        Ok(tested) => {
            object["exchange"] = json!(tested.path.name());
            let refused: Vec<Value> = tested
                .refused
                .iter()
                .map(|refused| json!({ "path": refused.path.name(), "why": refused.why }))
                .collect();
            object["refused_exchange"] = json!(refused);
            let queues = gpu.capabilities().copy_queues;
            object["copy_queues"] = json!(queues);
            lines.push(match queues {
                0 => format!("exchange  {}", tested.path),
                1 => format!("exchange  {}, with a queue for copies", tested.path),
                _ => format!("exchange  {}, with {queues} queues for copies", tested.path),
            });
            lines
                .extend(tested.refused.iter().map(|refused| format!("          no {}: {}", refused.path, refused.why)));
        }
        Err(error) => {
            object["exchange"] = Value::Null;
            lines.push(format!("exchange  fails: {error}"));
        }
    }
}
