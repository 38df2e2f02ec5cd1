//! Arrays that a kernel binds, and the types of their elements.

/// Element type of an array in WGSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// `f32`
    F32,
    /// `u32`
    U32,
    /// `i32`
    I32,
    /// `vec2<f32>`: a complex number (real, imaginary)
    Complex32,
    /// `f64`, on devices that have it
    F64,
    /// `vec2<f64>`: a complex number (real, imaginary), on devices that have it
    Complex64,
    /// `vec4<f32>`: four numbers that are read and written together
    Vec4,
    /// `vec2<u32>`: two words that are read and written together
    Words2,
    /// `u64`, on devices that have it: only to be added to
    U64,
}

impl Element {
    /// Returns the bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Element::F32 | Element::U32 | Element::I32 => 4,
            Element::Complex32 | Element::Words2 | Element::F64 | Element::U64 => 8,
            Element::Complex64 | Element::Vec4 => 16,
        }
    }

    /// Returns the WGSL type.
    #[must_use]
    pub const fn wgsl(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::U32 => "u32",
            Element::I32 => "i32",
            Element::Complex32 => "vec2<f32>",
            Element::F64 => "f64",
            Element::Complex64 => "vec2<f64>",
            Element::Vec4 => "vec4<f32>",
            Element::Words2 => "vec2<u32>",
            Element::U64 => "u64",
        }
    }

    /// Returns `true` if it is of double precision, which only some devices have.
    pub(crate) const fn is_double(self) -> bool {
        matches!(self, Element::F64 | Element::Complex64)
    }

    const ALL: [Element; 9] = {
        use Element::{Complex32, Complex64, F32, F64, I32, U32, U64, Vec4, Words2};
        [F32, U32, I32, Complex32, Vec4, Words2, F64, Complex64, U64]
    };

    fn of(wgsl: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.wgsl() == wgsl)
    }
}

/// Access of a kernel to an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only read.
    Read,
    /// Read and written; no two invocations touch one element.
    ReadWrite,
    /// Changed by atomic operations (`u32` or `i32`).
    Atomic,
}

/// One array that a kernel binds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The name that the accessors carry.
    pub name: String,
    /// Type of the elements.
    pub element: Element,
    /// Access of the kernel.
    pub access: Access,
}

impl Slot {
    /// Returns the array that a line declares, if it does; `elements` are names of types that stand
    /// for others.
    pub(super) fn declared(line: &str, elements: &[(&'static str, Element)]) -> Option<Result<Self, String>> {
        let declaration = line.trim_start().strip_prefix("var<storage")?;
        let split = || {
            let (access, rest) = declaration.split_once('>')?;
            let (name, rest) = rest.split_once(':')?;
            let ty = rest.trim_start().strip_prefix("array<")?.split_once(';')?.0.trim_end().strip_suffix('>')?.trim();
            let (ty, atomic) = match ty.strip_prefix("atomic<").and_then(|ty| ty.strip_suffix('>')) {
                Some(ty) => (ty, true),
                None => (ty, false),
            };
            let access = match (access.trim_start_matches(',').trim(), atomic) {
                ("read", false) => Access::Read,
                ("read_write", false) => Access::ReadWrite,
                ("read_write", true) => Access::Atomic,
                _ => return None,
            };
            Some((name.trim(), ty, access))
        };
        let Some((name, ty, access)) = split() else {
            return Some(Err(format!(
                "`{}`: expected `var<storage, read> name: array<T>;` or `var<storage, read_write> name: array<T>;`",
                line.trim()
            )));
        };
        let named = elements.iter().find(|(name, _)| *name == ty).map(|(_, element)| *element);
        let Some(element) = named.or_else(|| Element::of(ty)) else {
            let supported = Element::ALL.map(Element::wgsl).join(", ");
            return Some(Err(format!("`{name}`: unsupported element type {ty}; expected one of {supported}")));
        };
        Some(Ok(Slot { name: name.into(), element, access }))
    }
}
