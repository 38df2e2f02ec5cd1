//! Arrays that a kernel binds, the types of their elements, and its parameters: one definition for
//! Rust and for WGSL.

/// Largest `params` of a kernel in bytes; also the alignment of a dispatch's parameters.
pub(super) const PARAMS: u64 = 256;

/// One field of a kernel's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamField {
    /// Its name in both languages.
    pub name: &'static str,
    /// Its type in WGSL.
    pub wgsl: String,
    /// Offset in the Rust struct, in bytes.
    pub offset: usize,
}

impl ParamField {
    /// Refuses a field that WGSL has at another byte, which is `expected`.
    pub(super) fn check_offset(&self, expected: usize) -> Result<(), String> {
        let ParamField { name, wgsl, offset } = self;
        if *offset == expected {
            return Ok(());
        }
        Err(format!(
            "the parameter `{name}: {wgsl}` is at byte {offset} in Rust and at byte {expected} in WGSL; reorder the fields, \
             or add some before it"
        ))
    }
}

/// Returns the declarations of `fields` in WGSL, with commas between them.
pub(super) fn declarations(fields: &[ParamField]) -> String {
    fields.iter().map(|field| format!("{}: {}", field.name, field.wgsl)).collect::<Vec<_>>().join(", ")
}

/// A Rust struct that a kernel sees as its variable `params`. Made by
/// [`kernel_params!`](crate::kernel_params).
///
/// # Safety
/// `fields` names every field with its offset.
pub unsafe trait KernelParams: bytemuck::NoUninit + 'static {
    /// Returns the fields, in order.
    fn fields() -> Vec<ParamField>;
}

/// No parameters: an empty slice of nothing.
// SAFETY: a type without fields has no offsets to name.
unsafe impl KernelParams for () {
    fn fields() -> Vec<ParamField> {
        Vec::new()
    }
}

/// Parameters in two parts, such as those that several kernels share and those of one of them: all
/// fields are in one struct in WGSL.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JointParams<A, B> {
    pub common: A,
    pub own: B,
}

// SAFETY: both parts consist of numbers of four bytes, so that no padding lies between or behind
// them.
unsafe impl<A: KernelParams, B: KernelParams> bytemuck::NoUninit for JointParams<A, B> {}

// SAFETY: all fields of both parts, each with its offset in its part and that of the part.
unsafe impl<A: KernelParams, B: KernelParams> KernelParams for JointParams<A, B> {
    fn fields() -> Vec<ParamField> {
        const { assert!(size_of::<Self>() <= PARAMS as usize, "parameters of a kernel have at most 256 bytes") };
        let begin = std::mem::offset_of!(Self, own);
        let own = B::fields().into_iter().map(|field| ParamField { offset: begin + field.offset, ..field });
        A::fields().into_iter().chain(own).collect()
    }
}

/// Types of fields of parameters: a number, two or four of them (a vector), or rows of four (an
/// array of vectors). The trait is sealed.
pub trait ParamType: bytemuck::NoUninit + sealed::Sealed {
    /// Returns the type in WGSL.
    fn wgsl() -> String;
}

mod sealed {
    /// Keeps [`ParamType`](super::ParamType) to the types of this module.
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($rust:ty = $wgsl:literal),*) => {$(
        impl sealed::Sealed for $rust {}
        impl sealed::Sealed for [$rust; 2] {}
        impl sealed::Sealed for [$rust; 4] {}
        impl<const N: usize> sealed::Sealed for [[$rust; 4]; N] {}
        impl ParamType for $rust {
            fn wgsl() -> String { $wgsl.into() }
        }
        impl ParamType for [$rust; 2] {
            fn wgsl() -> String { concat!("vec2<", $wgsl, ">").into() }
        }
        impl ParamType for [$rust; 4] {
            fn wgsl() -> String { concat!("vec4<", $wgsl, ">").into() }
        }
        impl<const N: usize> ParamType for [[$rust; 4]; N] {
            fn wgsl() -> String { format!(concat!("array<vec4<", $wgsl, ">, {}>"), N) }
        }
    )*};
}
numbers!(u32 = "u32", i32 = "i32", f32 = "f32");

/// Defines the parameters of a kernel: a `#[repr(C)]` struct that is copied to the device as it is,
/// and its twin in WGSL for [`KernelSource::params`](crate::gpu::KernelSource::params).
///
/// Fields are `u32`, `i32`, `f32`, `[T; 2]` (`vec2<T>`), `[T; 4]` (`vec4<T>`) and `[[T; 4]; N]`
/// (`array<vec4<T>, N>`), at most 256 bytes in all. WGSL puts a `vec2` at a multiple of 8 bytes, a
/// `vec4` at one of 16; where Rust puts a field elsewhere, the kernel is refused with the name of
/// the field.
///
/// ```
/// meshloom::kernel_params! {
///     /// What `scale.wgsl` takes.
///     pub struct Scale {
///         /// Elements.
///         pub count: u32,
///         /// What they are multiplied by.
///         pub factor: f32,
///     }
/// }
/// let source = meshloom::gpu::KernelSource::new("example::scale", "
///     var<uniform> params: Params;
///     var<storage, read_write> x: array<f32>;
///     fn each(i: u32) { store_x(i, params.factor * load_x(i)); }
///     #each params.count
/// ").params::<Scale>();
/// ```
#[macro_export]
macro_rules! kernel_params {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $ty:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq)]
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $ty),+ }

        const _: () = {
            let sum = 0 $(+ ::core::mem::size_of::<$ty>())+;
            assert!(::core::mem::size_of::<$name>() == sum, "Rust pads these parameters; add fields where it does");
            assert!(sum <= 256, "parameters of a kernel have at most 256 bytes");
        };

        // SAFETY: numbers only, in C's order, without padding, as was just asserted.
        unsafe impl $crate::bytemuck::NoUninit for $name {}

        // SAFETY: all fields, with the offsets that the compiler says.
        unsafe impl $crate::gpu::KernelParams for $name {
            fn fields() -> ::std::vec::Vec<$crate::gpu::ParamField> {
                vec![$($crate::gpu::ParamField {
                    name: stringify!($field),
                    wgsl: <$ty as $crate::gpu::ParamType>::wgsl(),
                    offset: ::core::mem::offset_of!($name, $field),
                }),+]
            }
        }
    };
}

kernel_params! {
    /// The number of elements, for kernels that take no more.
    pub(crate) struct CountParams {
        pub count: u32,
    }
}

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
