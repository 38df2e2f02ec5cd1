//! Checks the bindings and parameters of a caller's text before a driver sees it. Pure.

use std::ops::RangeInclusive;

use wgpu::naga::{AddressSpace, GlobalVariable, Handle, Module, Type, TypeInner, front::wgsl};

use super::params::ParamField;

/// Bytes that the parameters of a kernel may have: to the end of the last field, or with the
/// padding behind it.
pub(super) type Extent = RangeInclusive<u64>;

/// Returns the bytes that the parameters of the kernel `text` take. It binds `arrays` windows, and
/// has parameters if `has_params`, at binding 0 or as immediate data, which begin with the fields
/// of `layout`.
///
/// Refuses fields that Rust has at other offsets, entry points besides `main`, and bindings or
/// immediate data that the text declares itself: they would reach arrays without the accessors, or
/// have no contents at all.
pub(super) fn params(text: &str, arrays: u32, has_params: bool, layout: &[ParamField]) -> Result<Extent, String> {
    let module = wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
    if let Some(other) = module.entry_points.iter().find(|entry| entry.name != "main") {
        return Err(format!("it has the entry point `{}` besides `main`; remove it", other.name));
    }
    let (mut seen, mut extent) = (vec![false; arrays as usize + 1], 0..=0);
    seen[0] = !has_params;
    for (_, variable) in module.global_variables.iter() {
        let Some(binding) = binding_of(variable) else { continue };
        let free = seen.get_mut(binding).filter(|seen| !**seen);
        let Some(seen) = free else { return Err(own_binding(variable)) };
        *seen = true;
        if binding == 0 {
            offsets_agree(&module, variable.ty, layout)?;
            extent = extent_of(&module, variable.ty);
        }
    }
    Ok(extent)
}

/// Returns the binding of a variable in group 0, and the one of parameters for immediate data; no
/// kernel has the greatest number, which stands for other groups.
fn binding_of(variable: &GlobalVariable) -> Option<usize> {
    if variable.space == AddressSpace::Immediate {
        return Some(0);
    }
    variable.binding.map(|place| if place.group == 0 { place.binding as usize } else { usize::MAX })
}

/// Explains why a variable is refused that has a place of its own.
fn own_binding(variable: &GlobalVariable) -> String {
    let name = variable.name.as_deref().unwrap_or("a variable");
    match variable.binding {
        Some(place) => format!(
            "`{name}` has a binding of its own, @group({}) @binding({}); declare it without, and use its accessors",
            place.group, place.binding
        ),
        None => format!("`{name}` is immediate data of its own; declare `var<uniform> params: Params;`"),
    }
}

/// Compares where Rust and WGSL have the fields of parameters.
fn offsets_agree(module: &Module, ty: Handle<Type>, layout: &[ParamField]) -> Result<(), String> {
    let TypeInner::Struct { members, .. } = &module.types[ty].inner else { return Ok(()) };
    layout.iter().zip(members).try_for_each(|(field, member)| field.check_offset(member.offset as usize))
}

fn extent_of(module: &Module, ty: Handle<Type>) -> Extent {
    let TypeInner::Struct { members, span } = &module.types[ty].inner else { return 0..=0 };
    let end = members.last().map_or(0, |last| last.offset + module.types[last.ty].inner.size(module.to_ctx()));
    u64::from(end)..=u64::from(*span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::KernelParams;

    const MAIN: &str = "@compute @workgroup_size(1) fn main() {}\n";

    #[test]
    fn parameters_end_where_wgsl_says() {
        let extent = |fields: &str| {
            let text =
                format!("struct Params {{ {fields} }}\n@group(0) @binding(0) var<uniform> params: Params;\n{MAIN}");
            params(&text, 0, true, &[]).unwrap()
        };
        assert_eq!(extent("count: u32, factor: f32"), 8..=8);
        assert_eq!(extent("side: vec3<f32>, count: u32"), 16..=16);
        assert_eq!(extent("count: u32, side: vec3<f32>"), 28..=32);
        assert_eq!(extent("starts: array<vec4<u32>, 3>, count: u32"), 52..=64);
        let immediate = format!("struct Params {{ count: u32, factor: f32 }}\nvar<immediate> params: Params;\n{MAIN}");
        assert_eq!(params(&immediate, 0, true, &[]), Ok(8..=8));
        assert!(params(&(immediate + "var<immediate> more: u32;"), 0, true, &[]).unwrap_err().contains("`more`"));
        assert_eq!(params(MAIN, 0, false, &[]), Ok(0..=0));
    }

    #[test]
    fn fields_at_other_offsets_are_refused() {
        crate::gpu::kernel_params! { struct Good { side: [f32; 4], count: u32, pad: u32, half: [f32; 2] } }
        crate::gpu::kernel_params! { struct Bad { count: u32, half: [f32; 2] } }
        fn verdict<P: KernelParams>() -> Result<Extent, String> {
            let fields: Vec<_> = P::fields().iter().map(|field| format!("{}: {}", field.name, field.wgsl)).collect();
            let fields = fields.join(", ");
            let text =
                format!("struct Params {{ {fields} }}\n@group(0) @binding(0) var<uniform> params: Params;\n{MAIN}");
            params(&text, 0, true, &P::fields())
        }
        assert_eq!(verdict::<Good>(), Ok(32..=32));
        let why = verdict::<Bad>().unwrap_err();
        assert!(why.contains("`half: vec2<f32>` is at byte 4 in Rust and at byte 8"), "{why}");
    }

    #[test]
    fn bindings_and_entry_points_beside_those_that_were_declared_are_refused() {
        let declared = "@group(0) @binding(1) var<storage, read> x_0: array<u32>;\n";
        let with = |more: &str| params(&format!("{declared}{more}{MAIN}"), 1, false, &[]);
        assert_eq!(with(""), Ok(0..=0));
        assert_eq!(with("var<private> mine: u32; var<workgroup> ours: array<u32, 4>;"), Ok(0..=0));
        for (more, name) in [
            ("@group(0) @binding(2) var<storage, read_write> stolen: array<u32>;", "stolen"),
            ("@group(0) @binding(1) var<storage, read_write> again: array<u32>;", "again"),
            ("@group(1) @binding(1) var<storage, read_write> elsewhere: array<u32>;", "elsewhere"),
            ("@group(0) @binding(4000000000) var<uniform> far: u32;", "far"),
            ("@group(0) @binding(0) var<uniform> undeclared: array<vec4<u32>, 100>;", "undeclared"),
            ("var<immediate> smuggled: u32;", "smuggled"),
            ("@compute @workgroup_size(1) fn second() {}", "second"),
        ] {
            let why = with(more).unwrap_err();
            assert!(why.contains(name), "{why}");
        }
    }
}
