//! `Send` and `Sync` for types that hold those of wgpu.

/// Implements `Send` and `Sync` for a type with fields of these types, which have them.
///
/// The compiler would otherwise follow the types of wgpu wherever the type is sent or shared, more
/// steps than the default `recursion_limit` of crates that use the library allows.
macro_rules! shallow_send_sync {
    ($type:ty: $($field:ty),+) => {
        // SAFETY: the fields have the trait, as is checked below.
        unsafe impl Send for $type {}
        // SAFETY: as above.
        unsafe impl Sync for $type {}
        const _: () = {
            const fn check<T: Send + Sync>() {}
            $(check::<$field>();)+
        };
    };
}
