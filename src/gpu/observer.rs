//! Observers: tools that are shown every kernel and dispatch of a device, such as a sanitizer.

use std::fmt;

/// A tool that is shown every kernel and every dispatch of a device, and may run dispatches in its
/// place.
///
/// [`Options::observer`](super::Options::observer) gives it to a device. Work of
/// [`Recorder::encode_into`](super::Recorder::encode_into) is not shown. Each observed dispatch is
/// a submission of its own, and its buffers are downloaded before it: this is for finding errors.
///
/// ```
/// use std::sync::Arc;
///
/// use meshloom::gpu::{Gpu, Kernel, KernelSource, ObservedDispatch, ObservedKernel, DispatchObserver, Options, Recorder, Verdict};
///
/// /// Refuses dispatches over buffers that hold a NaN.
/// #[derive(Debug)]
/// struct NoNan;
///
/// impl DispatchObserver for NoNan {
///     fn kernel(&self, _text: &str) -> Result<Box<dyn ObservedKernel>, String> {
///         Ok(Box::new(NoNan))
///     }
/// }
///
/// impl ObservedKernel for NoNan {
///     fn dispatch<'a>(&'a self, dispatch: ObservedDispatch<'_>) -> Result<Verdict<'a>, String> {
///         let is_nan = |word: &[u8]| f32::from_ne_bytes(word.try_into().unwrap_or_default()).is_nan();
///         match dispatch.buffers[1..].iter().position(|bytes| bytes.chunks(4).any(is_nan)) {
///             Some(buffer) => Err(format!("buffer {buffer} holds a NaN")),
///             None => Ok(Verdict::Run),
///         }
///     }
/// }
///
/// let options = Options { observer: Some(Arc::new(NoNan)), ..Options::from_env()? };
/// let gpu = Gpu::open(&options, 0)?;
/// let text = "var<storage, read_write> x: array<f32>;\nfn each(i: u32) { store_x(i, 0.0); }\n#each 4u";
/// let mut recorder = Recorder::new(&gpu)?;
/// let x = gpu.array::<f32>("x", 4)?;
/// recorder.upload(&x, 0, &[1.0, f32::NAN, 2.0, 3.0])?;
/// recorder.each(&Kernel::new(KernelSource::new("zero", text)), &[x.raw()], &(), 4)?;
/// assert!(recorder.submit().unwrap_err().to_string().contains("holds a NaN"));
/// # Ok::<(), meshloom::Error>(())
/// ```
pub trait DispatchObserver: fmt::Debug + Send + Sync {
    /// Returns the lanes of a subgroup if the observer runs every dispatch in the device's place, a
    /// power of two from 4 to 64. Kernels are then written for such subgroups.
    fn subgroup(&self) -> Option<u32> {
        None
    }

    /// Reads the text of a kernel, in WGSL, before the device compiles it.
    ///
    /// # Errors
    /// A message, with which compiling fails as
    /// [`DeviceError::Shader`](super::DeviceError::Shader).
    fn kernel(&self, text: &str) -> Result<Box<dyn ObservedKernel>, String>;
}

impl PartialEq for dyn DispatchObserver {
    /// Returns `true` for the same value in memory.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

/// A kernel whose text a [`DispatchObserver`] has read.
pub trait ObservedKernel: Send + Sync {
    /// Decides what becomes of a dispatch, before the device runs it.
    ///
    /// # Errors
    /// A message, with which the submission fails as
    /// [`DeviceError::Observer`](super::DeviceError::Observer).
    fn dispatch<'a>(&'a self, dispatch: ObservedDispatch<'_>) -> Result<Verdict<'a>, String>;
}

/// A dispatch before it runs.
#[derive(Debug)]
#[non_exhaustive]
pub struct ObservedDispatch<'a> {
    /// The label of the kernel.
    pub kernel: &'a str,
    /// Workgroups in columns and rows, and for copies of arrays.
    pub groups: [u32; 3],
    /// The contents of its buffers by binding: first the parameters, padded to 256 bytes, then the
    /// windows of its arrays.
    pub buffers: Vec<Vec<u8>>,
    /// Lanes of a subgroup at most.
    pub subgroup: u32,
    /// Whether the device rounds `fma` once.
    pub fuses: bool,
}

/// Decision of an observer about a dispatch.
#[non_exhaustive]
pub enum Verdict<'a> {
    /// The device runs it.
    Run,
    /// The device runs it, and then the function is shown the contents of its buffers, of the
    /// windows alone.
    Inspect(Inspection<'a>),
    /// The device does not run it; the windows get these contents, where there are some.
    Replace(Vec<Option<Vec<u8>>>),
}

/// Inspects the buffers of a dispatch after the device has run it. An error ends the submission
/// with its message.
pub type Inspection<'a> = Box<dyn FnOnce(&[Vec<u8>]) -> Result<(), String> + 'a>;

impl fmt::Debug for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Run => "Run",
            Verdict::Inspect(_) => "Inspect",
            Verdict::Replace(_) => "Replace",
        })
    }
}
