//! Arrays in device memory, cut into windows.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::Gpu;
use super::error::DeviceError;
use super::source::Element;

/// Elements of the longest array. Kernels index by `u32`, and the last of their workgroups, which come in rows of up to 65,535, may
/// count beyond the end of an array: so much is left free that no such count wraps around.
pub const LONGEST: u64 = (1 << 32) - (1 << 17);

/// A Rust type that lies in device arrays as one [`Element`].
pub trait DeviceElement: bytemuck::Pod {
    /// How WGSL sees it.
    const ELEMENT: Element;
}

impl DeviceElement for f32 {
    const ELEMENT: Element = Element::F32;
}
impl DeviceElement for u32 {
    const ELEMENT: Element = Element::U32;
}
impl DeviceElement for i32 {
    const ELEMENT: Element = Element::I32;
}
impl DeviceElement for [f32; 2] {
    const ELEMENT: Element = Element::Complex32;
}
impl DeviceElement for f64 {
    const ELEMENT: Element = Element::F64;
}
impl DeviceElement for [f64; 2] {
    const ELEMENT: Element = Element::Complex64;
}

/// Where an array lies and who, besides kernels, touches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Device memory.
    Device,
    /// Read by the host after kernels wrote it: mappable where device memory is host memory anyway.
    Outgoing,
    /// Written by the host before kernels read it: likewise.
    Incoming,
}

/// The buffers of one array; they go back to the device's pool with the last handle.
pub(super) struct Storage {
    pub gpu: Gpu,
    pub memory: Memory,
    pub buffers: Vec<wgpu::Buffer>,
    /// Whether the host has them mapped, or has asked for it.
    pub lent: AtomicBool,
}

impl Drop for Storage {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            self.gpu.recycle(self.memory, buffer);
        }
    }
}

/// A handle on an array without its element type, as dispatches take it.
#[derive(Clone)]
pub struct RawArray {
    pub(super) storage: Arc<Storage>,
    pub(super) element: Element,
    pub(super) len: u64,
    /// Where it begins in its buffer; 0 unless it is a part of another array.
    pub(super) start: u64,
    /// Elements a window; a power of two when there is more than one window.
    pub(super) window: u64,
    /// Windows a buffer.
    pub(super) per_buffer: u64,
    /// Whether this handle may be written through.
    pub(super) writable: bool,
}

impl RawArray {
    /// How many windows the array is cut into.
    pub fn windows(&self) -> u32 {
        self.len.div_ceil(self.window).max(1) as u32
    }

    /// Whether the host can map it without a copy.
    pub fn maps_as(&self, memory: Memory) -> bool {
        self.storage.memory == memory && self.storage.gpu.host_visible()
    }

    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> u64 {
        self.element.bytes()
    }

    /// Whether it is the same memory.
    pub(crate) fn shares(&self, other: &RawArray) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// Whether elements of it are elements of `other` too.
    pub(super) fn overlaps(&self, other: &RawArray) -> bool {
        let bytes = |array: &RawArray| [array.start, array.start + array.len].map(|at| at * array.element.bytes());
        let ([a, a_end], [b, b_end]) = (bytes(self), bytes(other));
        self.shares(other) && a < b_end && b < a_end
    }

    /// Refuses, for `what`, a device that does not have it.
    pub(crate) fn on(&self, gpu: &Gpu, what: &str) -> Result<(), DeviceError> {
        let own = &self.storage.gpu;
        if own.0.number == gpu.0.number {
            return Ok(());
        }
        let (own, gpu) = (&own.info().name, &gpu.info().name);
        let why = format!(
            "an array of another device was given (the array is on `{own}`, the work on `{gpu}`, opened apart from it); \
             allocate arrays from the `Gpu` of the recorder"
        );
        Err(DeviceError::Misuse { what: what.into(), why })
    }

    /// Refuses, for `what`, an array that is on its way between ranks.
    pub(super) fn at_rest(&self, what: &str) -> Result<(), DeviceError> {
        if !self.storage.lent.load(Ordering::Acquire) {
            return Ok(());
        }
        let why = "the array is on its way between ranks; finish the transit first".into();
        Err(DeviceError::Misuse { what: what.into(), why })
    }

    /// Refuses, for `what`, to be written through a handle that only shows.
    pub(crate) fn written(&self, what: &str) -> Result<(), DeviceError> {
        if self.writable {
            return Ok(());
        }
        let why = "the array is lent for reading, since kernels index by what it holds; copy it".into();
        Err(DeviceError::Misuse { what: what.into(), why })
    }

    /// Takes it away from the device until the loan is dropped, for its buffers to be mapped.
    pub(crate) fn lend(&self) -> Result<Loan, DeviceError> {
        self.at_rest("Exchange")?;
        if self.storage.lent.swap(true, Ordering::AcqRel) {
            // Another thread was faster; this one is told the same.
            self.at_rest("Exchange")?;
        }
        Ok(Loan(self.storage.clone()))
    }

    /// How many elements of this type it has; none if it has others.
    pub(crate) fn complex_len(&self, element: Element) -> u64 {
        if self.element == element { self.len } else { 0 }
    }

    /// The same memory as elements of another size, as many as fit.
    pub(crate) fn seen_as(&self, element: Element) -> RawArray {
        let (from, to) = (self.element.bytes(), element.bytes());
        let [len, start, window] = [self.len, self.start, self.window].map(|n| n * from / to);
        // An empty array has a window of one element, which may be less than one of these.
        RawArray { element, len, start, window: window.max(1), ..self.clone() }
    }

    /// The buffers it lies in.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &wgpu::Buffer> {
        self.storage.buffers.iter()
    }

    /// The bindings of all windows: buffer, byte offset, bytes.
    pub(super) fn bindings(&self) -> impl Iterator<Item = (&wgpu::Buffer, u64, u64)> {
        let bytes = self.element.bytes();
        (0..u64::from(self.windows())).map(move |w| {
            let len = (self.len - w * self.window).min(self.window).max(1);
            let buffer = &self.storage.buffers[(w / self.per_buffer) as usize];
            let offset = (w % self.per_buffer) * self.window + self.start;
            (buffer, offset * bytes, (len * bytes).next_multiple_of(4))
        })
    }

    /// The contiguous pieces of a range of elements: buffer, byte offset, bytes.
    pub(crate) fn pieces(&self, start: u64, len: u64) -> Vec<(&wgpu::Buffer, u64, u64)> {
        let (bytes, span) = (self.element.bytes(), self.window * self.per_buffer);
        let (mut at, end, mut pieces) = (self.start + start, self.start + start + len, Vec::new());
        while at < end {
            let stop = ((at / span + 1) * span).min(end);
            pieces.push((&self.storage.buffers[(at / span) as usize], (at % span) * bytes, (stop - at) * bytes));
            at = stop;
        }
        pieces
    }
}

/// An array that the host has for itself; see [`RawArray::lend`].
pub(crate) struct Loan(Arc<Storage>);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.lent.store(false, Ordering::Release);
    }
}

/// A typed array in device memory.
///
/// - It is a list of **windows**, each at most one storage binding of the device (or what
///   [`Options::window_bytes`](super::Options::window_bytes) says); kernels see one index over all of them. One window
///   is the common case and costs nothing.
/// - Its contents are undefined until something writes them; debug builds fill them with NaN.
/// - A clone is another handle on the same memory. The memory goes back to the device's pool when the last handle is
///   dropped and all work recorded with it has been submitted.
/// - Indices inside kernels are `u32`: at most [`LONGEST`] elements.
#[derive(Clone)]
pub struct Array<T> {
    raw: RawArray,
    element: PhantomData<T>,
}

impl<T: DeviceElement> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (element, windows) = (T::ELEMENT, self.raw.windows());
        f.debug_struct("Array").field("element", &element).field("len", &self.len()).field("windows", &windows).finish()
    }
}

impl<T: DeviceElement> Array<T> {
    pub(crate) fn new(raw: RawArray) -> Self {
        Array { raw, element: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.raw.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.raw.len == 0
    }

    /// The handle that dispatches take.
    pub fn raw(&self) -> &RawArray {
        &self.raw
    }

    /// A handle to give away: kernels trust in what the array holds, so callers must not change it.
    pub(crate) fn shown(self) -> Array<T> {
        Array::new(RawArray { writable: false, ..self.raw })
    }

    /// A part of the same memory, where the array lies in one window and the part begins at a multiple of 256 bytes.
    pub(crate) fn part(&self, start: u64, len: u64) -> Option<Array<T>> {
        let raw = &self.raw;
        let fits = raw.windows() == 1 && (start * T::ELEMENT.bytes()).is_multiple_of(256) && start + len <= raw.len;
        fits.then(|| Array::new(RawArray { start: raw.start + start, len, window: len.max(1), ..raw.clone() }))
    }

    /// The same memory seen as other elements of the same size (`f32` bits as `u32`) or of twice or half the size.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when it does not divide, [`DeviceError::TooLong`] for more than [`LONGEST`] elements.
    pub fn cast<U: DeviceElement>(&self) -> Result<Array<U>, DeviceError> {
        let (from, to) = (T::ELEMENT.bytes(), U::ELEMENT.bytes());
        let raw = self.raw.seen_as(U::ELEMENT);
        if raw.len * to != self.raw.len * from {
            let why = format!("{} elements of {from} bytes are no whole number of {to} bytes", self.raw.len);
            return Err(DeviceError::Misuse { what: "Array::cast".into(), why });
        }
        if raw.len > LONGEST {
            return Err(DeviceError::TooLong { label: "Array::cast".into(), len: raw.len });
        }
        Ok(Array::new(raw))
    }
}
