//! Functions of NVIDIA's and AMD's drivers for device memory that processes share.
//!
//! Both libraries have the same functions with the same arguments, under other names: those of the
//! CUDA driver interface (12.0) and of HIP (ROCm 6). They are found when the program runs.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

/// Kind of a location: a device.
const DEVICE: c_int = 1;
/// Allocations whose memory stays where it is.
const PINNED: c_int = 1;
/// Rights to read and write.
const READ_WRITE: c_int = 3;
/// Handles that are file descriptors.
pub(super) const FILE: c_int = 1;
/// Result of a query for an event that is still to come.
pub(super) const NOT_READY: c_int = 600;
/// The first version of HIP that takes a file descriptor by value, as CUDA does: 7.1.
const HIP_FILES_BY_VALUE: c_int = 70_100_000;

/// The place of memory.
#[repr(C)]
pub(super) struct Location {
    kind: c_int,
    device: c_int,
}

/// Properties of an allocation that can be shared as a file descriptor.
#[repr(C)]
pub(super) struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    windows: *const c_void,
    flags: [u8; 8],
}

impl Properties {
    pub fn of(device: c_int) -> Properties {
        let location = Location { kind: DEVICE, device };
        Properties { kind: PINNED, handles: FILE, location, windows: std::ptr::null(), flags: [0; 8] }
    }
}

/// The rights of a device to mapped memory.
#[repr(C)]
pub(super) struct Rights {
    location: Location,
    rights: c_int,
}

impl Rights {
    pub fn of(device: c_int) -> Rights {
        Rights { location: Location { kind: DEVICE, device }, rights: READ_WRITE }
    }
}

/// A driver library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vendor {
    Nvidia,
    Amd,
}

/// Variable with the path of a library that takes the place of NVIDIA's.
const LIBRARY_VARIABLE: &str = "MESHLOOM_PEER_LIBRARY";
/// Symbol of a library whose memory is host memory and whose file descriptors are memory files.
const HOST_MEMORY_SYMBOL: &[u8] = b"meshloom_host_memory\0";

macro_rules! functions {
    ($($name:ident($($argument:ty),*) = $cuda:literal, $hip:literal;)*) => {
        /// The functions of a driver library; each returns 0 or an error.
        pub(super) struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            fn find(library: &Library, vendor: Vendor) -> Result<Functions, String> {
                Ok(Functions {
                    $($name: {
                        let name = if vendor == Vendor::Nvidia { $cuda } else { $hip };
                        // SAFETY: both vendors' functions have these arguments.
                        let found = unsafe { library.get(name.as_bytes()) };
                        *found.map_err(|_| format!("the driver library has no function {name}"))?
                    },)*
                })
            }
        }
    };
}

functions! {
    initialize(c_uint) = "cuInit", "hipInit";
    version(*mut c_int) = "cuDriverGetVersion", "hipRuntimeGetVersion";
    device_at(*mut c_int, *const c_char) = "cuDeviceGetByPCIBusId", "hipDeviceGetByPCIBusId";
    retain_context(*mut *mut c_void, c_int) = "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain";
    release_context(c_int) = "cuDevicePrimaryCtxRelease_v2", "hipDevicePrimaryCtxRelease";
    set_context(*mut c_void) = "cuCtxSetCurrent", "hipCtxSetCurrent";
    granularity(*mut usize, *const Properties, c_int) =
        "cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity";
    create(*mut u64, usize, *const Properties, c_ulonglong) = "cuMemCreate", "hipMemCreate";
    release(u64) = "cuMemRelease", "hipMemRelease";
    export(*mut c_int, u64, c_int, c_ulonglong) = "cuMemExportToShareableHandle", "hipMemExportToShareableHandle";
    import(*mut u64, *mut c_void, c_int) = "cuMemImportFromShareableHandle", "hipMemImportFromShareableHandle";
    reserve(*mut u64, usize, usize, u64, c_ulonglong) = "cuMemAddressReserve", "hipMemAddressReserve";
    free(u64, usize) = "cuMemAddressFree", "hipMemAddressFree";
    map(u64, usize, usize, u64, c_ulonglong) = "cuMemMap", "hipMemMap";
    unmap(u64, usize) = "cuMemUnmap", "hipMemUnmap";
    set_rights(u64, usize, *const Rights, usize) = "cuMemSetAccess", "hipMemSetAccess";
    copy(u64, u64, usize, *mut c_void) = "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync";
    create_stream(*mut *mut c_void, c_uint) = "cuStreamCreate", "hipStreamCreateWithFlags";
    destroy_stream(*mut c_void) = "cuStreamDestroy_v2", "hipStreamDestroy";
    create_event(*mut *mut c_void, c_uint) = "cuEventCreate", "hipEventCreateWithFlags";
    record_event(*mut c_void, *mut c_void) = "cuEventRecord", "hipEventRecord";
    query_event(*mut c_void) = "cuEventQuery", "hipEventQuery";
    await_event(*mut c_void) = "cuEventSynchronize", "hipEventSynchronize";
    destroy_event(*mut c_void) = "cuEventDestroy_v2", "hipEventDestroy";
}

/// A driver library that has been loaded and initialized.
pub(super) struct DriverLibrary {
    pub functions: Functions,
    /// Whether a file descriptor is passed by its address.
    pub passes_file_by_address: bool,
    /// Whether its memory is host memory; see [`HOST_MEMORY_SYMBOL`].
    pub has_host_memory: bool,
    /// Keeps the functions in memory.
    _library: Library,
}

impl DriverLibrary {
    /// Loads the library of the vendor of an adapter.
    ///
    /// # Errors
    /// The reason, if there is none, or it lacks a function.
    pub fn load(info: &wgpu::AdapterInfo) -> Result<DriverLibrary, String> {
        let replacement = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
        let (vendor, names) = match (replacement, info.vendor) {
            (Some(path), _) => (Vendor::Nvidia, vec![path]),
            (None, 0x10de) => (Vendor::Nvidia, vec!["libcuda.so.1".into()]),
            (None, 0x1002) => {
                let versions = ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"];
                (Vendor::Amd, versions.map(Into::into).to_vec())
            }
            (None, vendor) => return Err(format!("expected a device of NVIDIA or AMD, got vendor {vendor:#06x}")),
        };
        // SAFETY: the libraries of drivers may be loaded at any time; the user answers for others.
        let open = |name| unsafe { Library::new(name) };
        let library = names.iter().find_map(|name| open(name).ok());
        let library = library.ok_or_else(|| format!("cannot load {}", names[0].display()))?;
        let functions = Functions::find(&library, vendor)?;
        // SAFETY: only the existence of the symbol is asked for.
        let has_host_memory = unsafe { library.get::<*const c_void>(HOST_MEMORY_SYMBOL) }.is_ok();
        let mut version = 0;
        // SAFETY: the first call of the library has no condition, the second gets a place to write.
        let status = unsafe {
            match (functions.initialize)(0) {
                0 => (functions.version)(&raw mut version),
                failed => failed,
            }
        };
        checked("initialize", status)?;
        let passes_file_by_address = vendor == Vendor::Amd && version < HIP_FILES_BY_VALUE;
        Ok(DriverLibrary { functions, passes_file_by_address, has_host_memory, _library: library })
    }
}

/// Returns an error of the driver in words.
pub(super) fn checked(action: &str, status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("the driver cannot {action} (error {status})")) }
}
