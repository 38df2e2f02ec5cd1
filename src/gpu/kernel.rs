//! Kernels, and what arrays they take.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, Weak};

use super::params::{KernelParams, declarations};
use super::pipeline::{Pipeline, Trust};
use super::stack::{StackKernels, open_copies, refusal};
use super::variant::Assembled;
use super::{Access, DeviceError, Gpu, KernelSource, RawArray, Slot};
use crate::parallel::{self, locked};

/// A kernel that is compiled when it is first dispatched with arrays of a given number of windows,
/// for each device that it is used on.
///
/// A device keeps what it compiled by its text: a second kernel with the same text compiles
/// nothing. Of more than [`Options::kernels`](super::Options::kernels) those that were used last
/// are kept, and others are compiled again when they are dispatched.
#[must_use = "a kernel does nothing until it is recorded"]
pub struct Kernel {
    source: KernelSource,
    assembled: Result<Assembled, DeviceError>,
    trust: Trust,
    compiled: Mutex<Compiled>,
}

shallow_send_sync!(Kernel: KernelSource, Result<Assembled, DeviceError>, Trust, Mutex<Compiled>);

/// By a device's number, the windows, and whether it is for stacks. The pipelines belong to the
/// device and go with it.
type Compiled = HashMap<(u64, Vec<u32>, bool), Weak<Pipeline>>;

impl Kernel {
    /// A kernel with this text, compiled with run-time checks, so that no text can harm the
    /// process:
    ///
    /// - an index beyond an array reads and writes some element of that array or nothing, and so it
    ///   is with private and workgroup arrays,
    /// - a division by zero gives the dividend, a remainder by zero 0,
    /// - workgroup memory is zero before it is written,
    /// - a loop without an end stays one: the driver ends it, or the device is lost. Some drivers
    ///   end all loops of an invocation after
    ///   [`Capabilities::loop_rounds`](super::Capabilities::loop_rounds) rounds without an error
    ///   (llvmpipe after 65,535); [`KernelSource::loop_rounds`] declares what a kernel needs, so
    ///   that its dispatch fails there instead.
    ///
    /// A text with entry points or bindings of its own, besides `main` and the arrays of its
    /// [`KernelSource`], is refused when it is compiled.
    pub fn new(source: KernelSource) -> Self {
        Self::with_trust(Trust::Nobody, source)
    }

    /// Same as [`new`](Self::new), without run-time checks.
    ///
    /// # Safety
    /// In every dispatch of the kernel the text must stay within its arrays, private and workgroup
    /// ones included, read no workgroup memory before it is written, end all its loops, and neither
    /// divide an integer by zero nor the smallest `i32` by -1. Otherwise the behavior is undefined,
    /// for the memory of the process, too.
    pub unsafe fn new_unchecked(source: KernelSource) -> Self {
        Self::with_trust(Trust::Caller, source)
    }

    /// Creates a kernel of the library.
    pub(crate) fn trusted(source: KernelSource) -> Self {
        Self::with_trust(Trust::Library, source)
    }

    pub(crate) fn with_trust(trust: Trust, source: KernelSource) -> Self {
        Kernel { assembled: source.assemble(), source, trust, compiled: Mutex::default() }
    }

    /// Returns its text.
    pub fn source(&self) -> &KernelSource {
        &self.source
    }

    pub(super) fn misuse(&self, why: String) -> DeviceError {
        DeviceError::Misuse { what: self.source.label().into(), why }
    }

    /// Refuses parameters of another type than those that the kernel was declared with.
    pub(super) fn takes<P: KernelParams>(&self) -> Result<(), DeviceError> {
        let declared = self.source.params_type;
        // Comparing types costs nothing; another type with the same fields is as good.
        if declared == Some(TypeId::of::<P>()) || self.source.param_fields() == P::fields() {
            return Ok(());
        }
        let (have, want) = (declarations(&P::fields()), declarations(self.source.param_fields()));
        Err(self.misuse(format!("the parameters ({have}) are given, it takes ({want})")))
    }

    /// Compiles kernels for arrays of one window each, on as many threads as the host has cores.
    /// Compiles the forms for stacks if this thread uses them ([`StackKernels`]). Blocks, so that
    /// no thread is still compiling when the process ends.
    ///
    /// A kernel that does not compile fails when it is dispatched. lavapipe compiles most of a
    /// kernel at its first dispatch, one after another.
    pub(crate) fn compile_ahead(gpu: &Gpu, kernels: &[&Kernel]) {
        let expects_stacks = StackKernels::are_used();
        parallel::each(kernels.len(), |number| {
            let kernel = kernels[number];
            let Ok(assembled) = &kernel.assembled else { return };
            let windows = vec![1; assembled.slots.len()];
            let stacked = expects_stacks && Self::serves_stacks(gpu, assembled, &windows);
            // The device keeps the error with the text.
            let _ = kernel.compiled(gpu, assembled, windows, stacked);
        });
    }

    /// Checks that it can be dispatched with these arrays, and compiles it.
    ///
    /// # Errors
    /// Same as [`Recorder::dispatch`](super::Recorder::dispatch).
    pub(crate) fn prepare(&self, gpu: &Gpu, arrays: &[&RawArray]) -> Result<(), DeviceError> {
        self.pipeline(gpu, arrays).map(|_| ())
    }

    /// Returns the compiled form for these arrays.
    pub(super) fn pipeline(&self, gpu: &Gpu, arrays: &[&RawArray]) -> Result<Arc<Pipeline>, DeviceError> {
        let assembled = self.assembled.as_ref().map_err(Clone::clone)?;
        self.check(gpu, assembled, arrays)?;
        let windows: Vec<u32> = arrays.iter().map(|array| array.windows()).collect();
        let expected = StackKernels::are_used() && Self::serves_stacks(gpu, assembled, &windows);
        self.compiled(gpu, assembled, windows, expected || open_copies() > 1)
    }

    /// Returns `true` if the form for stacks can work on single arrays, too. Observers only take
    /// the form for single arrays.
    fn serves_stacks(gpu: &Gpu, assembled: &Assembled, windows: &[u32]) -> bool {
        gpu.0.pipelines.observer.is_none() && windows.iter().all(|&windows| windows == 1) && assembled.serves_stacks
    }

    /// Returns the compiled form for arrays with these numbers of windows, for stacks or not.
    fn compiled(
        &self,
        gpu: &Gpu,
        assembled: &Assembled,
        windows: Vec<u32>,
        stacked: bool,
    ) -> Result<Arc<Pipeline>, DeviceError> {
        let mut key = (gpu.number(), windows, stacked);
        let mut compiled = locked(&self.compiled);
        let mut kept = compiled.get(&key).and_then(Weak::upgrade);
        if kept.is_none() && !stacked && Self::serves_stacks(gpu, assembled, &key.1) {
            key.2 = true;
            kept = compiled.get(&key).and_then(Weak::upgrade);
            key.2 = false;
        }
        if let Some(pipeline) = kept {
            gpu.0.pipelines.touch(&pipeline);
            return Ok(pipeline);
        }
        let pipeline = gpu.0.pipelines.get(&gpu.0.open, assembled, self.trust, (&key.1, stacked))?;
        compiled.retain(|_, pipeline| pipeline.strong_count() > 0);
        compiled.insert(key, Arc::downgrade(&pipeline));
        Ok(pipeline)
    }

    /// Refuses arrays that are not what the slots say, that another device has, or that alias.
    fn check(&self, gpu: &Gpu, assembled: &Assembled, arrays: &[&RawArray]) -> Result<(), DeviceError> {
        let (slots, label) = (&assembled.slots, &assembled.label);
        let rounds = assembled.loop_rounds(gpu.capabilities().profile.workgroup_shape().items);
        if let Some(limit) = gpu.capabilities().loop_rounds.map(u64::from).filter(|&limit| rounds > limit) {
            return Err(DeviceError::LoopRounds { kernel: label.clone(), rounds, limit });
        }
        if arrays.len() != slots.len() {
            return Err(self.misuse(format!(
                "expected {} arrays, got {}; declare each as `var<storage, read> name: array<T>;` without @group and \
                 @binding, and pass them in the order of the declarations",
                slots.len(),
                arrays.len()
            )));
        }
        let copies = open_copies();
        if copies > 1 && arrays.iter().any(|array| array.windows() > 1) {
            return Err(refusal(label, "an array is longer than a binding"));
        }
        for (n, (slot, array)) in slots.iter().zip(arrays).enumerate() {
            if slot.element != array.element {
                let (declared, given) = (slot.element.wgsl(), array.element.wgsl());
                return Err(self.misuse(format!("`{}`: declared as {declared}, got an array of {given}", slot.name)));
            }
            array.on(gpu, label)?;
            if slot.access != Access::Read {
                array.written(label)?;
            }
            let is_common = array.copies() == 1 && slot.access == Access::Read;
            if array.copies() != copies && !is_common {
                let (name, own) = (&slot.name, array.copies());
                return Err(refusal(label, &format!("copies of `{name}`: {own}, of the open stack: {copies}")));
            }
            let collides = |(other, o): &(&Slot, &&RawArray)| {
                array.shares(o)
                    && match (slot.access, other.access) {
                        (Access::Read, Access::Read) => false,
                        // A buffer is bound either for reading or for writing.
                        (Access::Read, _) | (_, Access::Read) => true,
                        _ => array.overlaps(o),
                    }
            };
            if let Some((other, _)) = slots[..n].iter().zip(arrays).find(collides) {
                return Err(self.misuse(format!(
                    "`{}` and `{}` are one array, and it is written; give it once, or a copy",
                    other.name, slot.name
                )));
            }
        }
        Ok(())
    }
}

/// Kernels that are made at their first use, by their key.
pub(crate) struct KernelCache<K>(Mutex<HashMap<K, Arc<Kernel>>>);

impl<K> Default for KernelCache<K> {
    fn default() -> Self {
        KernelCache(Mutex::default())
    }
}

impl<K: Eq + Hash> KernelCache<K> {
    /// Returns the kernel of `key`, made of `source` the first time.
    pub fn get(&self, key: K, trust: Trust, source: impl FnOnce() -> KernelSource) -> Arc<Kernel> {
        let make = || Arc::new(Kernel::with_trust(trust, source()));
        locked(&self.0).entry(key).or_insert_with(make).clone()
    }
}
