//! Device memory that ranks of a host share, and copies between devices.
//!
//! The memory belongs to the driver library of the vendor (`gpu/driver.rs`). Vulkan
//! imports the memory of its own device, other processes map it and copy from it. The unsafe code
//! of this file relies on three facts:
//! - Memory stays mapped and allocated until its [`PeerMemory`] is dropped.
//! - A [`PeerCopies`] waits for its copies when it is dropped, and is dropped before their memory.
//! - The context of the device is current on the thread that calls a function.

use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;

use super::driver::{DriverLibrary, FILE, NOT_READY, Properties, Rights, checked};
use super::{HostPages, import};

/// Flag of streams that do not wait for others, and of events without times.
const NON_BLOCKING: u32 = 1;
const WITHOUT_TIME: u32 = 2;

/// Whether this build has a library to look for.
pub(crate) const IS_BUILT: bool = true;

/// A file descriptor of memory.
pub(crate) type MemoryFile = OwnedFd;

/// A device as the library of its driver knows it.
pub(crate) struct PeerDriver {
    library: DriverLibrary,
    device: c_int,
    context: *mut c_void,
    stream: *mut c_void,
}

// SAFETY: drivers allow calls from any thread on which the context is current, which each call
// here ensures.
unsafe impl Send for PeerDriver {}
// SAFETY: as above.
unsafe impl Sync for PeerDriver {}

impl PeerDriver {
    /// Opens the device of an adapter, which has the same PCI address in both interfaces.
    ///
    /// # Errors
    /// The reason, if the library is missing or does not know the device.
    pub fn open(info: &wgpu::AdapterInfo) -> Result<Arc<PeerDriver>, String> {
        let library = DriverLibrary::load(info)?;
        let address = CString::new(info.device_pci_bus_id.as_str()).map_err(|error| error.to_string())?;
        let mut driver = PeerDriver { library, device: -1, context: null_mut(), stream: null_mut() };
        let functions = &driver.library.functions;
        let mut device = -1;
        // SAFETY: the address ends with a zero byte.
        let status = unsafe { (functions.device_at)(&raw mut device, address.as_ptr()) };
        checked("find the device by its PCI address", status)?;
        // SAFETY: the device is one of the driver's.
        checked("open the device", unsafe { (functions.retain_context)(&raw mut driver.context, device) })?;
        driver.device = device;
        driver.enter()?;
        // SAFETY: a context is current.
        let status = unsafe { (driver.library.functions.create_stream)(&raw mut driver.stream, NON_BLOCKING) };
        checked("create a stream", status)?;
        Ok(Arc::new(driver))
    }

    /// Makes the context of the device current on this thread.
    fn enter(&self) -> Result<(), String> {
        // SAFETY: the context is retained while the value lives.
        checked("use the device", unsafe { (self.library.functions.set_context)(self.context) })
    }

    /// Begins copies between devices.
    ///
    /// # Errors
    /// The reason, if the driver refuses.
    pub fn copy(self: &Arc<Self>, copies: &[PeerCopy<'_>]) -> Result<PeerCopies, String> {
        self.enter()?;
        let functions = &self.library.functions;
        let mut begun = PeerCopies { driver: self.clone(), event: null_mut() };
        // SAFETY: a context is current.
        checked("create an event", unsafe { (functions.create_event)(&raw mut begun.event, WITHOUT_TIME) })?;
        let copied = copies.iter().try_for_each(|copy| {
            let (from, to) =
                (copy.from.address_of(copy.from_byte, copy.bytes)?, copy.to.address_of(copy.to_byte, copy.bytes)?);
            // SAFETY: both ranges lie in mapped memory, which outlives `begun`.
            checked("copy", unsafe { (functions.copy)(to, from, copy.bytes as usize, self.stream) })
        });
        // What was begun before a failure must end before its memory does.
        // SAFETY: the event and the stream are of the current context.
        checked("record an event", unsafe { (functions.record_event)(begun.event, self.stream) })?;
        copied.map(|()| begun)
    }
}

impl Drop for PeerDriver {
    fn drop(&mut self) {
        if self.device < 0 {
            return;
        }
        let functions = &self.library.functions;
        // SAFETY: both were made by this value, whose memory and events are gone. Failures would
        // only keep them.
        unsafe {
            if self.enter().is_ok() && !self.stream.is_null() {
                (functions.destroy_stream)(self.stream);
            }
            (functions.release_context)(self.device);
        }
    }
}

/// A copy of bytes of one memory to another.
pub(crate) struct PeerCopy<'a> {
    pub from: &'a PeerMemory,
    pub from_byte: u64,
    pub to: &'a PeerMemory,
    pub to_byte: u64,
    pub bytes: u64,
}

/// Copies that have begun. Dropping the value waits for them; drop it before their memory.
pub(crate) struct PeerCopies {
    driver: Arc<PeerDriver>,
    event: *mut c_void,
}

// SAFETY: as for the driver.
unsafe impl Send for PeerCopies {}
// SAFETY: as for the driver.
unsafe impl Sync for PeerCopies {}

impl PeerCopies {
    /// Returns `true` once the copies have ended. Does not wait.
    ///
    /// # Errors
    /// The reason, if the driver failed.
    pub fn is_done(&self) -> Result<bool, String> {
        self.driver.enter()?;
        // SAFETY: the event is of the current context.
        match unsafe { (self.driver.library.functions.query_event)(self.event) } {
            NOT_READY => Ok(false),
            status => checked("copy", status).map(|()| true),
        }
    }
}

impl Drop for PeerCopies {
    fn drop(&mut self) {
        if self.event.is_null() || self.driver.enter().is_err() {
            return;
        }
        let functions = &self.driver.library.functions;
        // SAFETY: the event is of the current context and is not used again.
        unsafe {
            (functions.await_event)(self.event);
            (functions.destroy_event)(self.event);
        }
    }
}

/// Memory of the device of this rank or of another one, mapped for the device of this rank.
pub(crate) struct PeerMemory {
    driver: Arc<PeerDriver>,
    handle: u64,
    /// The address for the device; 0 if none is reserved.
    address: u64,
    bytes: usize,
    is_mapped: bool,
}

impl PeerMemory {
    /// Allocates at least `bytes` bytes on the device of `driver`.
    ///
    /// # Errors
    /// The reason, if the driver refuses.
    pub fn create(driver: &Arc<PeerDriver>, bytes: usize) -> Result<PeerMemory, String> {
        driver.enter()?;
        let (functions, properties) = (&driver.library.functions, Properties::of(driver.device));
        let (mut unit, mut handle) = (0, 0);
        // SAFETY: the properties are of this device; 0 asks for the least unit.
        checked("share memory", unsafe { (functions.granularity)(&raw mut unit, &raw const properties, 0) })?;
        let bytes = bytes.next_multiple_of(unit.max(1));
        // SAFETY: as above.
        let status = unsafe { (functions.create)(&raw mut handle, bytes, &raw const properties, 0) };
        checked(&format!("allocate {bytes} bytes"), status)?;
        Self::map(driver, handle, bytes)
    }

    /// Opens `bytes` bytes that another rank has [exported](Self::export).
    ///
    /// # Errors
    /// The reason, if the driver refuses.
    pub fn open(driver: &Arc<PeerDriver>, file: &MemoryFile, bytes: usize) -> Result<PeerMemory, String> {
        driver.enter()?;
        let (mut number, mut handle) = (file.as_raw_fd(), 0);
        let argument = match driver.library.passes_file_by_address {
            true => (&raw mut number).cast(),
            false => number as usize as *mut c_void,
        };
        // SAFETY: the argument has the form that the library expects.
        let status = unsafe { (driver.library.functions.import)(&raw mut handle, argument, FILE) };
        checked("import memory of another rank", status)?;
        Self::map(driver, handle, bytes)
    }

    /// Maps the memory behind a handle, which the value releases.
    fn map(driver: &Arc<PeerDriver>, handle: u64, bytes: usize) -> Result<PeerMemory, String> {
        let (functions, rights) = (&driver.library.functions, Rights::of(driver.device));
        let mut memory = PeerMemory { driver: driver.clone(), handle, address: 0, bytes, is_mapped: false };
        // SAFETY: the driver chooses an address that is free.
        let status = unsafe { (functions.reserve)(&raw mut memory.address, bytes, 0, 0, 0) };
        checked("reserve an address", status)?;
        // SAFETY: the address is reserved for as many bytes; the driver checks those of the handle.
        checked("map memory", unsafe { (functions.map)(memory.address, bytes, 0, handle, 0) })?;
        memory.is_mapped = true;
        // SAFETY: the bytes are mapped.
        let status = unsafe { (functions.set_rights)(memory.address, bytes, &raw const rights, 1) };
        checked("access memory of this device", status)?;
        Ok(memory)
    }

    /// Returns a new file descriptor by which other processes [open](Self::open) the memory.
    ///
    /// # Errors
    /// The reason, if the driver refuses.
    pub fn export(&self) -> Result<MemoryFile, String> {
        self.driver.enter()?;
        let mut file = -1;
        // SAFETY: the handle is of this driver.
        let status = unsafe { (self.driver.library.functions.export)(&raw mut file, self.handle, FILE, 0) };
        checked("export memory", status)?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }

    /// Imports the memory, which must be of the device of Vulkan, as a buffer for copies.
    ///
    /// # Errors
    /// The reason, if a driver refuses.
    pub(super) fn import(self: &Arc<Self>, device: &wgpu::Device, families: &[u32]) -> Result<wgpu::Buffer, String> {
        let file = self.export()?;
        if self.driver.library.has_host_memory {
            let pages = HostPages::of(File::from(file)).map_err(|error| error.to_string())?;
            return import::import(device, families, &Arc::new(pages));
        }
        let (place, source) = ((device, families), import::Source::File(file));
        import::import_source(place, source, self.bytes as u64, Box::new(self.clone()))
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of `bytes` bytes from byte `start` on.
    fn address_of(&self, start: u64, bytes: u64) -> Result<u64, String> {
        match start.checked_add(bytes) {
            Some(end) if end <= self.bytes as u64 => Ok(self.address + start),
            _ => Err(format!("{bytes} bytes from {start} lie outside of {} bytes of memory", self.bytes)),
        }
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        if self.driver.enter().is_err() {
            return;
        }
        let functions = &self.driver.library.functions;
        // SAFETY: no copy uses the memory any more. Failures would only keep it.
        unsafe {
            if self.is_mapped {
                (functions.unmap)(self.address, self.bytes);
            }
            if self.address != 0 {
                (functions.free)(self.address, self.bytes);
            }
            (functions.release)(self.handle);
        }
    }
}
