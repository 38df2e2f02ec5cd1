//! Arrays in device memory, cut into windows.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::stack::{Copies, open_copies, refusal};
use super::{DeviceError, Element, Gpu, MemoryKind, Profile};

/// Elements of the longest array. Kernels index by `u32`, and the last of their workgroups, which
/// come in rows of up to 65,535, may count beyond the end of an array: so much is left free that no
/// such count wraps around.
pub const LONGEST: u64 = (1 << 32) - (1 << 17);

/// Returns `len` unless an array called `label` would be longer than [`LONGEST`].
pub(crate) fn allowed_len(label: &str, len: u64) -> Result<u64, DeviceError> {
    if len > LONGEST { Err(DeviceError::TooLong { label: label.into(), len }) } else { Ok(len) }
}

/// Alignment of bindings in bytes, which every device supports.
const ALIGNMENT: u64 = 256;

/// Types that can be elements of device arrays: `f32`, `u32`, `i32`, `f64`, `[f32; 2]`, `[f64; 2]`
/// and `[f32; 4]`.
///
/// The trait is sealed, because each type has the size and the layout of its [`Element`]. Cast
/// other types with [`bytemuck`], for example three coordinates to a slice of `f32`:
///
/// ```compile_fail
/// use meshloom::gpu::{DeviceElement, Element};
///
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C)]
/// struct Position([f32; 3]);
///
/// impl DeviceElement for Position {
///     const ELEMENT: Element = Element::F32;
/// }
/// ```
pub trait DeviceElement: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// The type of the element in WGSL.
    const ELEMENT: Element;
}

mod sealed {
    /// Keeps [`DeviceElement`](super::DeviceElement) to the types of this module.
    pub trait Sealed {}
}

macro_rules! device_elements {
    ($($rust:ty => $element:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl DeviceElement for $rust {
            const ELEMENT: Element = Element::$element;
        }
        const _: () = assert!(size_of::<$rust>() as u64 == Element::$element.bytes());
    )*};
}

device_elements! {
    f32 => F32,
    u32 => U32,
    i32 => I32,
    u64 => U64,
    f64 => F64,
    [f32; 2] => Complex32,
    [f64; 2] => Complex64,
    [f32; 4] => Vec4,
    [u32; 2] => Words2,
}

/// The owner of the buffers of an array, which decides what happens when the last handle is
/// dropped.
pub(super) enum BufferOwner {
    /// The device's pool, to which they go back.
    Pool(MemoryKind),
    /// A caller, who may hold handles of their own.
    Caller,
}

/// The buffers of one array.
pub(super) struct Storage {
    pub gpu: Gpu,
    pub owner: BufferOwner,
    pub buffers: Vec<wgpu::Buffer>,
    /// Whether the host has them mapped, or has asked for it.
    pub lent: AtomicBool,
    /// Whether others may use them after the last handle: then they do not go back to the pool,
    /// where they would become somebody else's array.
    pub shared: AtomicBool,
}

impl Drop for Storage {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            match self.owner {
                BufferOwner::Caller => self.gpu.0.pool.groups.remove(&buffer),
                BufferOwner::Pool(_) if *self.shared.get_mut() => self.gpu.0.pool.forget(&buffer),
                BufferOwner::Pool(kind) => self.gpu.0.pool.give(kind, buffer),
            }
        }
    }
}

/// A handle on an array without its element type, as dispatches take it.
#[derive(Clone)]
pub struct RawArray {
    pub(super) storage: Arc<Storage>,
    pub(super) element: Element,
    pub(super) len: u64,
    /// First element in its buffers, counted over all of them; 0 unless it is a part of another
    /// array.
    pub(super) start: u64,
    /// Elements per window; a power of two when there is more than one window.
    pub(super) window: u64,
    /// Elements per buffer: a number of whole windows.
    pub(super) span: u64,
    /// Copies in a stack, which all lie in one window.
    pub(super) copies: Copies,
    /// Whether this handle may be written through.
    pub(super) writable: bool,
}

shallow_send_sync!(RawArray: Arc<Storage>, Element, u64, Copies, bool);

impl fmt::Debug for RawArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RawArray { element, len, .. } = self;
        f.debug_struct("Array").field("element", element).field("len", len).field("windows", &self.windows()).finish()
    }
}

impl RawArray {
    /// Returns the number of copies, of which dispatches in a stack work on all.
    pub(crate) fn copies(&self) -> u32 {
        self.copies.count
    }

    /// Returns one of its copies as an array of its own.
    pub(super) fn entry(&self, number: u32) -> RawArray {
        RawArray { start: self.start + u64::from(number) * self.copies.stride, copies: Copies::ONE, ..self.clone() }
    }

    /// Returns all copies, one after the other with padding, as one array, and the elements from
    /// one to the next.
    pub(crate) fn all_copies(&self) -> (RawArray, u64) {
        let len = self.extent_of(self.copies);
        let all = RawArray { len, window: len.max(1), copies: Copies::ONE, ..self.clone() };
        (if self.copies == Copies::ONE { self.clone() } else { all }, self.copies.stride)
    }

    /// Refuses, for `what`, an array of several copies.
    pub(crate) fn single(&self, what: &str) -> Result<(), DeviceError> {
        if self.copies == Copies::ONE { Ok(()) } else { Err(refusal(what, "it takes one array at a time")) }
    }

    /// Returns how many windows the array is cut into.
    #[must_use]
    pub fn windows(&self) -> u32 {
        self.len.div_ceil(self.window).max(1) as u32
    }

    /// Returns `true` if the host can map it without a copy.
    pub(crate) fn maps_as(&self, kind: MemoryKind) -> bool {
        matches!(self.storage.owner, BufferOwner::Pool(own) if own == kind)
            && self.storage.gpu.capabilities().host_visible
    }

    /// Returns `true` if its memory is of a kind that exchanges use.
    pub(super) fn is_for_exchanges(&self) -> bool {
        matches!(self.storage.owner, BufferOwner::Pool(MemoryKind::Outgoing | MemoryKind::Incoming))
    }

    /// Returns the bytes of the elements.
    pub(crate) fn bytes(&self) -> u64 {
        self.len * self.element.bytes()
    }

    /// Returns the bytes of an element.
    pub(crate) fn element_bytes(&self) -> u64 {
        self.element.bytes()
    }

    /// Returns `true` if it is the same memory. Two arrays of a caller may have one buffer.
    pub(crate) fn shares(&self, other: &RawArray) -> bool {
        let (a, b) = (&self.storage, &other.storage);
        let same_buffer = || a.buffers.iter().any(|buffer| b.buffers.contains(buffer));
        Arc::ptr_eq(a, b)
            || (matches!((&a.owner, &b.owner), (BufferOwner::Caller, BufferOwner::Caller)) && same_buffer())
    }

    /// Returns where it begins in its memory, counted in elements.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Returns `true` if it is the same elements.
    pub(crate) fn is(&self, other: &RawArray) -> bool {
        self.shares(other) && (self.start, self.len) == (other.start, other.len)
    }

    /// Returns the elements of this array and of `next`, if that [begins](Array::part) in the same
    /// window with the first place behind this one where a part can. Between them may be padding.
    pub(crate) fn followed_by(&self, next: &RawArray) -> Option<RawArray> {
        let end = (self.start + self.len).next_multiple_of(ALIGNMENT / self.element.bytes());
        let follows = Arc::ptr_eq(&self.storage, &next.storage) && self.element == next.element && next.start == end;
        if !follows || self.windows() > 1 || next.windows() > 1 {
            return None;
        }
        let len = next.start + next.len - self.start;
        let fits = len * self.element.bytes() <= self.storage.gpu.capabilities().window_bytes;
        fits.then(|| RawArray { len, window: len.max(1), ..self.clone() })
    }

    /// Returns `true` if elements of it are elements of `other` too.
    pub(crate) fn overlaps(&self, other: &RawArray) -> bool {
        let bytes = |array: &RawArray| {
            // Copies of parts lie between those of others.
            let copies = if self.copies == other.copies { Copies::ONE } else { array.copies };
            [array.start, array.start + array.extent_of(copies)].map(|at| at * array.element.bytes())
        };
        let ([a, a_end], [b, b_end]) = (bytes(self), bytes(other));
        self.shares(other) && a < b_end && b < a_end
    }

    /// Returns the number of elements from the beginning of the first of `copies` to the end of the
    /// last.
    fn extent_of(&self, copies: Copies) -> u64 {
        u64::from(copies.count - 1) * copies.stride + self.len
    }

    /// Refuses, for `what`, a device that does not have it.
    pub(crate) fn on(&self, gpu: &Gpu, what: &str) -> Result<(), DeviceError> {
        let own = &self.storage.gpu;
        if own.number() == gpu.number() {
            return Ok(());
        }
        let (own, gpu) = (&own.info().name, &gpu.info().name);
        let why = format!(
            "an array of another device was given (the array is on `{own}`, the work on `{gpu}`, opened apart from it); \
             allocate arrays from the `Gpu` of the recorder"
        );
        Err(DeviceError::misuse(what, why))
    }

    /// Refuses, for `what`, an array that is on its way between ranks.
    pub(crate) fn at_rest(&self, what: &str) -> Result<(), DeviceError> {
        let why = || "the array is on its way between ranks; finish the exchange first".into();
        DeviceError::ensure(!self.storage.lent.load(Ordering::Acquire), what, why)
    }

    /// Refuses, for `what`, to write through a handle that was lent for reading; see
    /// [`Array::shown`].
    pub(crate) fn written(&self, what: &str) -> Result<(), DeviceError> {
        let why = || "the array is lent for reading, since kernels index by what it holds; copy it".into();
        DeviceError::ensure(self.writable, what, why)
    }

    /// Withdraws the array from the device until the loan is dropped, so that its buffers can be
    /// mapped.
    pub(crate) fn lend(&self) -> Result<Loan, DeviceError> {
        self.single("Exchange")?;
        self.at_rest("Exchange")?;
        if self.storage.lent.swap(true, Ordering::AcqRel) {
            // Another thread was faster; this one gets the same error.
            self.at_rest("Exchange")?;
        }
        Ok(Loan(self.storage.clone()))
    }

    /// Returns its length if it has elements of this type, otherwise 0.
    pub(crate) fn complex_len(&self, element: Element) -> u64 {
        if self.element == element { self.len } else { 0 }
    }

    /// Returns the same memory as whole elements of another size; see [`Array::cast`].
    pub(crate) fn cast(&self, element: Element) -> Result<RawArray, DeviceError> {
        let (raw, from, to) = (self.seen_as(element), self.element.bytes(), element.bytes());
        let why = || format!("{} elements of {from} bytes are no whole number of {to} bytes", self.len);
        DeviceError::ensure(raw.len * to == self.len * from, "Array::cast", why)?;
        allowed_len("Array::cast", raw.len).map(|_| raw)
    }

    /// Returns the same memory as elements of another size, as many as fit.
    pub(crate) fn seen_as(&self, element: Element) -> RawArray {
        let (from, to) = (self.element.bytes(), element.bytes());
        let sizes = [self.len, self.start, self.window, self.span, self.copies.stride];
        let [len, start, window, span, stride] = sizes.map(|n| n * from / to);
        let copies = Copies { stride, ..self.copies };
        // An empty array has a window of one element, which may be less than one of these.
        RawArray { element, len, start, window: window.max(1), span: span.max(1), copies, ..self.clone() }
    }

    /// Returns arrays of elements of four bytes as arrays of elements of four numbers; `None` if
    /// that is not faster, or an array is not a whole number of them in one window. Software
    /// renderers read and write an element lane by lane, so four numbers take little longer than
    /// one. GPUs want many invocations.
    pub(crate) fn in_quads(arrays: &[&RawArray]) -> Option<Vec<RawArray>> {
        let is_software = |array: &RawArray| array.storage.gpu.capabilities().profile == Profile::Software;
        let fits = |array: &&RawArray| {
            array.element.bytes() == 4 && array.windows() == 1 && (array.start | array.len).is_multiple_of(4)
        };
        let is_faster = arrays.first().is_some_and(|array| is_software(array)) && arrays.iter().all(fits);
        is_faster.then(|| arrays.iter().map(|array| array.seen_as(Element::Vec4)).collect())
    }

    /// Returns `true` if one binding can hold `bytes` bytes of the array, where they lie in one
    /// buffer.
    pub(crate) fn may_hold(&self, bytes: u64) -> bool {
        self.windows() == 1 || bytes + ALIGNMENT <= self.storage.gpu.capabilities().window_bytes
    }

    /// Returns a part of the same memory in one window that holds these bytes, and the byte at
    /// which it begins, a multiple of 256; `None` if no binding can hold them, because they are too
    /// many or lie in two buffers.
    pub(crate) fn in_one_window(&self, bytes: Range<u64>) -> Option<(RawArray, u64)> {
        if self.windows() == 1 {
            return Some((self.clone(), 0));
        }
        let (element, base) = (self.element.bytes(), bytes.start / ALIGNMENT * ALIGNMENT);
        let (start, len) = (self.start + base / element, (bytes.end - base).div_ceil(element));
        let most = self.storage.gpu.capabilities().window_bytes;
        let whole = len * element <= most && start / self.span == (start + len - 1) / self.span;
        whole.then(|| (RawArray { start, len, window: len, ..self.clone() }, base))
    }

    /// Returns the buffers it lies in.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &wgpu::Buffer> + Clone {
        self.storage.buffers.iter()
    }

    /// Returns the bindings of all windows.
    pub(super) fn bindings(&self) -> impl Iterator<Item = wgpu::BufferBinding<'_>> {
        let bytes = self.element.bytes();
        (0..u64::from(self.windows())).map(move |w| {
            let (rest, at) = (self.extent_of(self.copies) - w * self.window, self.start + w * self.window);
            let len = if self.copies == Copies::ONE { rest.min(self.window).max(1) } else { rest.max(1) };
            let (buffer, offset) = (&self.storage.buffers[(at / self.span) as usize], at % self.span);
            wgpu::BufferBinding { buffer, offset: offset * bytes, size: wgpu::BufferSize::new(len * bytes) }
        })
    }

    /// Keeps the buffers out of the pool: work that the recorder does not know of may use them
    /// after the last handle.
    pub(super) fn share(&self) {
        self.storage.shared.store(true, Ordering::Relaxed);
    }

    /// Returns the contiguous pieces of a range of elements: buffer, byte offset, bytes.
    pub(crate) fn pieces(&self, start: u64, len: u64) -> Vec<(&wgpu::Buffer, u64, u64)> {
        let (bytes, span) = (self.element.bytes(), self.span);
        let (mut at, end, mut pieces) = (self.start + start, self.start + start + len, Vec::new());
        while at < end {
            let stop = ((at / span + 1) * span).min(end);
            pieces.push((&self.storage.buffers[(at / span) as usize], (at % span) * bytes, (stop - at) * bytes));
            at = stop;
        }
        pieces
    }
}

/// An array that the host has to itself; see [`RawArray::lend`].
pub(crate) struct Loan(Arc<Storage>);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.lent.store(false, Ordering::Release);
    }
}

/// A typed array in device memory.
///
/// - It is a list of **windows**, each at most one storage binding of the device (or what
///   [`Options::window_bytes`](super::Options::window_bytes) says); kernels see one index over all
///   of them. One window is the common case and costs nothing.
/// - Its contents are undefined until something writes them; debug builds fill them with NaN.
/// - A clone is another handle on the same memory. The memory goes back to the device's pool when
///   the last handle is dropped and all work recorded with it has been submitted.
/// - Indices inside kernels are `u32`: at most [`LONGEST`] elements.
#[derive(Clone)]
pub struct Array<T> {
    raw: RawArray,
    element: PhantomData<T>,
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

/// Returns the elements per window and the maximum number of windows per buffer of an array of
/// `len` elements of `bytes` bytes.
fn cut(gpu: &Gpu, len: u64, bytes: u64) -> [u64; 2] {
    let capabilities = gpu.capabilities();
    if len * bytes <= capabilities.window_bytes {
        return [len.max(1), 1];
    }
    let window = 1u64 << (capabilities.window_bytes / bytes).ilog2();
    [window, (capabilities.buffer_bytes / (window * bytes)).clamp(1, len.div_ceil(window))]
}

impl Gpu {
    /// Returns an array of `len` elements in device memory, with undefined contents.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::TooLong`].
    pub fn array<T: DeviceElement>(&self, label: &str, len: u64) -> Result<Array<T>, DeviceError> {
        self.array_in(label, len, MemoryKind::Device)
    }

    /// Same as [`Gpu::array`], in memory that the host can read or write, too.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::TooLong`].
    pub fn array_in<T: DeviceElement>(&self, label: &str, len: u64, kind: MemoryKind) -> Result<Array<T>, DeviceError> {
        self.check()?;
        allowed_len(label, len)?;
        let bytes = T::ELEMENT.bytes();
        let copies = open_copies();
        if copies > 1 {
            return self.array_of_copies(label, len, copies, kind);
        }
        let cut @ [window, per_buffer] = cut(self, len, bytes);
        let per = window * per_buffer;
        let mut storage = Storage::new(self, BufferOwner::Pool(kind));
        for start in (0..len.max(1)).step_by(per as usize) {
            let bytes = ((len - start.min(len)).min(per) * bytes).max(4);
            storage.buffers.push(self.buffer(label, kind, bytes)?);
        }
        Ok(Array::over(storage, len, cut))
    }

    /// Returns an array of `copies` copies, each of which can be bound by itself.
    fn array_of_copies<T: DeviceElement>(
        &self,
        label: &str,
        len: u64,
        count: u32,
        kind: MemoryKind,
    ) -> Result<Array<T>, DeviceError> {
        let bytes = T::ELEMENT.bytes();
        let stride = len.max(1).next_multiple_of(ALIGNMENT / bytes);
        let all = allowed_len(label, u64::from(count) * stride)?;
        if all * bytes > self.capabilities().window_bytes {
            return Err(refusal(label, "the copies are too long for one binding"));
        }
        let mut storage = Storage::new(self, BufferOwner::Pool(kind));
        storage.buffers.push(self.buffer(label, kind, all * bytes)?);
        let mut array = Array::over(storage, len, [len.max(1), 1]);
        (array.raw.span, array.raw.copies) = (all, Copies { count, stride });
        Ok(array)
    }
}

impl Storage {
    fn new(gpu: &Gpu, owner: BufferOwner) -> Self {
        let (lent, shared) = (AtomicBool::new(false), AtomicBool::new(false));
        Storage { gpu: gpu.clone(), owner, buffers: Vec::new(), lent, shared }
    }
}

impl<T: DeviceElement> Array<T> {
    fn over(storage: Storage, len: u64, [window, per_buffer]: [u64; 2]) -> Self {
        let (storage, element) = (Arc::new(storage), T::ELEMENT);
        let (span, copies) = (window * per_buffer, Copies::ONE);
        Array::new(RawArray { storage, element, len, start: 0, window, span, copies, writable: true })
    }

    pub(crate) fn new(raw: RawArray) -> Self {
        Array { raw, element: PhantomData }
    }

    /// Creates an array over a caller's buffer, of as many elements as it has bytes for.
    ///
    /// - The buffer needs the usages `STORAGE`, `COPY_SRC` and `COPY_DST` and must not be mapped
    ///   while submitted work uses it. The library never clears, pools or destroys it; the caller
    ///   owns it and may hold other handles to it.
    /// - Work of the library and of the caller on the buffer runs in the order of submissions to
    ///   the queue. Between two submissions of one operation of the library nothing else may write
    ///   to it.
    /// - Two arrays over one buffer alias: a kernel that writes to one of them refuses both.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] for a buffer of another device, one that was destroyed, without
    /// these usages, without an element or with a part of one; [`DeviceError::TooLong`] for more
    /// than [`LONGEST`] elements.
    pub fn from_buffer(gpu: &Gpu, buffer: wgpu::Buffer) -> Result<Self, DeviceError> {
        const WHAT: &str = "Array::from_buffer";
        gpu.check()?;
        let bytes = T::ELEMENT.bytes();
        let needed = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let (usage, size) = (buffer.usage(), buffer.size());
        let why = || format!("the buffer has the usages {usage:?}, {needed:?} are needed");
        DeviceError::ensure(usage.contains(needed), WHAT, why)?;
        let why = || format!("a buffer of {size} bytes, not some elements of {bytes} bytes");
        DeviceError::ensure(size > 0 && size.is_multiple_of(bytes), WHAT, why)?;
        let len = allowed_len(WHAT, size / bytes)?;
        let refused =
            |why: wgpu::Error| DeviceError::misuse(WHAT, format!("the device cannot bind the buffer ({why})"));
        gpu.try_binding(&buffer).map_err(refused)?;
        let [window, _] = cut(gpu, len, bytes);
        let mut storage = Storage::new(gpu, BufferOwner::Caller);
        storage.buffers.push(buffer);
        Ok(Array::over(storage, len, [window, len.div_ceil(window)]))
    }

    /// Returns the buffers that the array lies in, for passes and copies of a caller: a binding for
    /// each window, in order. One is the common case. A window is a range of a buffer that one
    /// storage binding can hold; an array without elements has one window of undefined contents.
    ///
    /// Hold a handle on the array until the work has been submitted, and do not use the buffers
    /// while the array belongs to a [pending exchange](crate::exchange::PendingExchange), which may
    /// have them mapped. Their memory does not return to the pool.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] for an array that is lent for reading only, because kernels index by
    /// what it holds.
    pub fn bindings(&self) -> Result<impl Iterator<Item = wgpu::BufferBinding<'_>>, DeviceError> {
        self.raw.written("Array::bindings")?;
        self.raw.single("Array::bindings")?;
        self.raw.share();
        Ok(self.raw.bindings())
    }

    /// Returns one of the copies that a stack has made of the array.
    pub(crate) fn entry(&self, number: u32) -> Array<T> {
        Array::new(self.raw.entry(number))
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.raw.len
    }

    /// Returns `true` if the array is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.len == 0
    }

    /// Returns the handle that dispatches take.
    #[must_use]
    pub fn raw(&self) -> &RawArray {
        &self.raw
    }

    /// A handle to give to callers, who must not change what the array holds: kernels index by it
    /// without checks.
    pub(crate) fn shown(self) -> Array<T> {
        Array::new(RawArray { writable: false, ..self.raw })
    }

    /// Returns the first elements of the same memory, as many as there are.
    pub(crate) fn first(&self, len: u64) -> Array<T> {
        Array::new(RawArray { len: len.min(self.raw.len), ..self.raw.clone() })
    }

    /// Returns a part of the same memory that begins where one may: at a multiple of 256 bytes
    /// where the array lies in one window, otherwise with a window.
    pub(crate) fn part(&self, start: u64, len: u64) -> Option<Array<T>> {
        let raw = &self.raw;
        let fits = start.is_multiple_of(self.part_begins()) && start + len <= raw.len;
        let window = if raw.windows() == 1 { len.max(1) } else { raw.window };
        fits.then(|| Array::new(RawArray { start: raw.start + start, len, window, ..raw.clone() }))
    }

    /// Returns a range of the same memory, for commands: bindings may not begin anywhere.
    pub(crate) fn range(&self, range: Range<u64>) -> Array<T> {
        Array::new(RawArray { start: self.raw.start + range.start, len: range.end - range.start, ..self.raw.clone() })
    }

    /// Returns a number of elements at whose multiples a [`part`](Self::part) may begin.
    pub(crate) fn part_begins(&self) -> u64 {
        if self.raw.windows() == 1 { ALIGNMENT / T::ELEMENT.bytes() } else { self.raw.window }
    }

    /// Returns the same memory as elements of the same size (`f32` bits as `u32`) or of twice or
    /// half the size.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when it does not divide, [`DeviceError::TooLong`] for more than
    /// [`LONGEST`] elements.
    pub fn cast<U: DeviceElement>(&self) -> Result<Array<U>, DeviceError> {
        self.raw.cast(U::ELEMENT).map(Array::new)
    }
}

/// Refuses an array of fewer elements than are needed; `name` says what its elements are.
///
/// # Errors
/// [`DeviceError::Misuse`] of `what`.
pub(crate) fn holds<T: DeviceElement>(
    what: &str,
    name: &str,
    array: &Array<T>,
    needed: u64,
) -> Result<(), DeviceError> {
    DeviceError::ensure(array.len() >= needed, what, || format!("{} {name}, {needed} are needed", array.len()))
}
