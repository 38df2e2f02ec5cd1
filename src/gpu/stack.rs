//! Stacks: arrays of several copies, on which one dispatch works in place of one for each copy.
//!
//! A dispatch on a small field leaves most of a device idle. Work on several vectors of one shape,
//! such as samples, is therefore recorded once in a stack. Each array that is created while a stack
//! is open has one copy for each vector, and each dispatch runs over all copies. Kernels stay as
//! they are, because accessors of arrays add the place of the copy. Arrays from before the stack
//! have one copy, which all vectors read and none may write.

use std::cell::Cell;

use super::error::DeviceError;

/// Copies of a stack at most.
pub(crate) const MOST_COPIES: u32 = 16;

/// The stack that is open on this thread.
#[derive(Clone, Copy)]
struct Open {
    copies: u32,
    /// Whether something could not be recorded for several copies.
    refused: bool,
}

const NONE: Open = Open { copies: 1, refused: false };

thread_local! {
    static OPEN: Cell<Open> = const { Cell::new(NONE) };
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// While this value lives, dispatches of this thread on single arrays use kernels that are compiled
/// for stacks, so that no kernel is compiled twice.
#[must_use]
pub(crate) struct StackKernels {
    before: bool,
}

impl StackKernels {
    /// Starts to use kernels for stacks.
    pub fn begin() -> Self {
        StackKernels { before: EXPECTED.replace(true) }
    }

    /// Returns `true` if this thread uses kernels for stacks.
    pub(super) fn are_used() -> bool {
        EXPECTED.get()
    }
}

impl Drop for StackKernels {
    fn drop(&mut self) {
        EXPECTED.set(self.before);
    }
}

/// Reopens the stack that was open before when it is dropped. That stack learns of refusals.
struct Before(Open);

impl Drop for Before {
    fn drop(&mut self) {
        let refused = self.0.refused || OPEN.get().refused;
        OPEN.set(Open { refused, ..self.0 });
    }
}

/// Records `work` with `copies` copies of each array that it creates.
///
/// Returns `None` if a part of `work` is refused: uploads to these arrays, downloads of them,
/// exchanges, and writing to arrays from before. All that was recorded writes to arrays of `work`
/// alone.
pub(crate) fn stacked<T, E>(copies: u32, work: impl FnOnce() -> Result<T, E>) -> Result<Option<T>, E> {
    if OPEN.get().copies > 1 || !(2..=MOST_COPIES).contains(&copies) {
        return Ok(None);
    }
    let _before = Before(OPEN.replace(Open { copies, refused: false }));
    let made = work();
    if OPEN.get().refused { Ok(None) } else { made.map(Some) }
}

/// Runs `work`, whose arrays have one copy: what is kept for later calls.
pub(crate) fn unstacked<T>(work: impl FnOnce() -> T) -> T {
    let _before = Before(OPEN.replace(NONE));
    work()
}

/// Returns the number of copies of arrays that are created now on this thread.
pub(super) fn open_copies() -> u32 {
    OPEN.get().copies
}

/// Returns the error of work on copies that is impossible, and notes it for the open stack.
pub(super) fn refusal(what: &str, why: &str) -> DeviceError {
    OPEN.set(Open { refused: true, ..OPEN.get() });
    tracing::debug!(what, why, "not recorded for several copies");
    DeviceError::misuse(what, format!("{why} (array of several copies)"))
}

/// Refuses, for `what`, values on the host in a stack: there is one of each.
pub(crate) fn on_host(what: &str) -> Result<(), DeviceError> {
    if OPEN.get().copies > 1 { Err(refusal(what, "values on the host are those of one array")) } else { Ok(()) }
}

/// Copies of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copies {
    pub count: u32,
    /// Elements from the beginning of one copy to that of the next.
    pub stride: u64,
}

impl Copies {
    /// An array of its own.
    pub const ONE: Copies = Copies { count: 1, stride: 0 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Array, CountParams, Gpu, Kernel, KernelSource, Options, Recorder};
    use crate::parallel::locked;

    const LEN: u64 = 100;

    fn open() -> (Gpu, Recorder) {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        let recorder = Recorder::new(&gpu).unwrap();
        (gpu, recorder)
    }

    /// `y[i] = x[i] + common[i]`, with parameters or without.
    fn sum(has_params: bool) -> KernelSource {
        let text = "
            #if has_params
            var<uniform> params: Params;
            #endif
            var<storage, read> x: array<u32>;
            var<storage, read> common: array<u32>;
            var<storage, read_write> y: array<u32>;
            fn each(i: u32) { store_y(i, load_x(i) + load_common(i)); }
            #if has_params
            #each params.count
            #else
            #each 100u
            #endif";
        let source = KernelSource::new("test::sum", text).flag("has_params", has_params);
        if has_params { source.params::<CountParams>() } else { source }
    }

    /// Returns an array of copies whose element i of copy n is `100 n + i`.
    fn numbered(gpu: &Gpu, recorder: &mut Recorder, copies: u32) -> Array<u32> {
        let made = stacked(copies, || gpu.array::<u32>("x", LEN)).unwrap().unwrap();
        for n in 0..copies {
            let values: Vec<u32> = (0..LEN as u32).map(|i| 100 * n + i).collect();
            recorder.upload(&made.entry(n), 0, &values).unwrap();
        }
        made
    }

    #[test]
    fn dispatches_copies_and_clears_reach_every_copy() {
        let (gpu, mut recorder) = open();
        let common = recorder.uploaded("common", &(0..LEN as u32).map(|i| 7 * i).collect::<Vec<_>>()).unwrap();
        for (has_params, copies) in [(true, 2), (false, 3), (true, MOST_COPIES)] {
            let x = numbered(&gpu, &mut recorder, copies);
            let kernel = Kernel::new(sum(has_params));
            let before = recorder.counts().dispatches;
            let record = |recorder: &mut Recorder| -> Result<[Array<u32>; 3], DeviceError> {
                let gpu = recorder.gpu().clone();
                let [y, part, zeros] = ["y", "part", "zeros"].map(|label| gpu.array::<u32>(label, LEN));
                let (y, part, zeros) = (y?, part?, zeros?);
                let arrays = [x.raw(), common.raw(), y.raw()];
                match has_params {
                    true => recorder.each(&kernel, &arrays, &CountParams { count: LEN as u32 }, LEN)?,
                    false => recorder.each(&kernel, &arrays, &(), LEN)?,
                }
                recorder.clear(&part);
                // From all copies, and from what they share.
                recorder.copy(&y, 90, &part, 5, 10)?;
                recorder.copy(&common, 1, &part, 50, 3)?;
                // Parts that begin within an array lie in each copy.
                let half = zeros.part(64, 36).unwrap();
                recorder.clear(&zeros);
                recorder.copy(&part, 0, &half, 0, 36)?;
                Ok([y, part, zeros])
            };
            let [y, part, zeros] = stacked(copies, || record(&mut recorder)).unwrap().unwrap();
            recorder.wait().unwrap();
            assert_eq!(recorder.counts().dispatches - before, 1);
            for n in 0..copies {
                let mut read = |array: &Array<u32>| recorder.download(&array.entry(n), 0, LEN).unwrap();
                let wanted: Vec<u32> = (0..LEN as u32).map(|i| 100 * n + 8 * i).collect();
                assert_eq!(read(&y), wanted, "copy {n} of {copies}");
                let of_part = |i: usize| match i {
                    5..15 => wanted[i + 85],
                    50..53 => 7 * (i as u32 - 49),
                    _ => 0,
                };
                assert_eq!(read(&part), (0..LEN as usize).map(of_part).collect::<Vec<_>>());
                let of_zeros = |i: usize| if i < 64 { 0 } else { of_part(i - 64) };
                assert_eq!(read(&zeros), (0..LEN as usize).map(of_zeros).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn kernels_for_stacks_serve_single_arrays() {
        let (gpu, mut recorder) = open();
        let values = |factor: u32| (0..LEN as u32).map(|i| factor * i).collect::<Vec<_>>();
        let common = recorder.uploaded("common", &values(7)).unwrap();
        let x = recorder.uploaded("x", &values(2)).unwrap();
        for (has_params, mark) in [(true, "SERVES_WITH"), (false, "SERVES_WITHOUT")] {
            let kernel = Kernel::new(sum(has_params).constant(mark, 1));
            let forms =
                || locked(&gpu.0.pipelines.kept).keys().filter(|(text, _)| text.contains(&format!("{mark}:"))).count();
            let mut record = || -> Result<Array<u32>, DeviceError> {
                let y = gpu.array::<u32>("y", LEN)?;
                let arrays = [x.raw(), common.raw(), y.raw()];
                match has_params {
                    true => recorder.each(&kernel, &arrays, &CountParams { count: LEN as u32 }, LEN)?,
                    false => recorder.each(&kernel, &arrays, &(), LEN)?,
                }
                Ok(y)
            };
            let stack_kernels = StackKernels::begin();
            let before = record().unwrap();
            let stack = stacked(3, &mut record).unwrap().unwrap();
            drop(stack_kernels);
            let after = record().unwrap();
            assert_eq!(forms(), 1);
            for y in [before, stack.entry(2), after] {
                assert_eq!(recorder.download(&y, 0, LEN).unwrap(), values(9));
            }
            // Parameters may fill the space of strides.
            let _stack_kernels = StackKernels::begin();
            let long = KernelSource::new(
                "test::long",
                "var<uniform> params: Params;
                var<storage, read_write> y: array<u32>;
                fn each(i: u32) { store_y(i, params.more[15].w); }
                #each 100u",
            );
            let long = Kernel::trusted(long.more_params("more: array<vec4<u32>, 16>"));
            let y = gpu.array::<u32>("y", LEN).unwrap();
            let groups = LEN.div_ceil(u64::from(gpu.workgroup_shape().items));
            recorder.dispatch_bytes(&long, &[y.raw()], bytemuck::cast_slice(&[5u32; 64]), groups).unwrap();
            assert_eq!(recorder.download(&y, 99, 1).unwrap(), [5]);
        }
    }

    #[test]
    fn what_cannot_be_done_for_copies_is_refused() {
        let (gpu, mut recorder) = open();
        let common = recorder.uploaded("common", &[1u32; LEN as usize]).unwrap();
        let x = numbered(&gpu, &mut recorder, 3);
        let kernel = Kernel::new(sum(true));
        let params = CountParams { count: LEN as u32 };
        type Work<'a> = &'a dyn Fn(&mut Recorder) -> Result<(), DeviceError>;
        let array = |recorder: &Recorder| recorder.gpu().array::<u32>("new", LEN);
        let older = gpu.array::<u32>("older", LEN).unwrap();
        let refused: [(&str, Work<'_>); 11] = [
            ("upload", &|recorder| recorder.upload(&array(recorder)?, 0, &[1])),
            ("download", &|recorder| recorder.download(&x, 0, 1).map(drop)),
            ("output of one copy", &|recorder| recorder.each(&kernel, &[x.raw(), x.raw(), common.raw()], &params, LEN)),
            ("copy to one", &|recorder| recorder.copy(&x, 0, &common, 0, 1)),
            ("bindings", &|_| x.bindings().map(drop)),
            ("exchange", &|_| x.raw().lend().map(drop)),
            ("values on the host", &|_| on_host("values")),
            ("older arrays alone", &|recorder| {
                recorder.each(&kernel, &[common.raw(), common.raw(), older.raw()], &params, LEN)
            }),
            ("copy of older arrays", &|recorder| recorder.copy(&common, 0, &older, 0, 1)),
            ("download for later calls", &|recorder| unstacked(|| recorder.download(&x, 0, 1).map(drop))),
            ("longer than a binding", &|recorder| {
                recorder.gpu().array::<u32>("long", recorder.gpu().capabilities().window_bytes / 8).map(drop)
            }),
        ];
        for (name, work) in refused {
            let made = stacked(3, || work(&mut recorder));
            assert!(matches!(made, Ok(None)), "{name}: {made:?}");
        }
        // Errors that have nothing to do with copies stay errors.
        let error = stacked(3, || recorder.copy(&common, 0, &array(&recorder)?, 0, LEN + 1)).unwrap_err();
        assert!(error.to_string().contains("101 elements"), "{error}");
        // No stack in a stack, and none of one copy or too many.
        for copies in [0, 1, MOST_COPIES + 1] {
            assert_eq!(stacked(copies, || Ok::<_, DeviceError>(())).unwrap(), None);
        }
        let inner = stacked(2, || stacked(2, || Ok::<_, DeviceError>(()))).unwrap();
        assert_eq!(inner, Some(None));
        // Outside of a stack, or in another one, nothing takes all copies as if they were one.
        let y = gpu.array::<u32>("y", LEN).unwrap();
        for arrays in [[x.raw(), common.raw(), y.raw()], [common.raw(), common.raw(), x.raw()]] {
            let error = recorder.each(&kernel, &arrays, &params, LEN).unwrap_err();
            assert!(error.to_string().contains(": 3, of the open stack: 1"), "{error}");
            assert!(stacked(2, || recorder.each(&kernel, &arrays, &params, LEN)).unwrap().is_none());
        }
        assert!(recorder.copy(&x, 0, &y, 0, 1).is_err());
        recorder.clear(&x);
        assert!(recorder.wait().unwrap_err().to_string().contains("its stack is not open"));
        // An array that `unstacked` creates has one copy.
        let kept = stacked(2, || unstacked(|| array(&recorder))).unwrap().unwrap();
        recorder.upload(&kept, 0, &[1]).unwrap();
        recorder.wait().unwrap();
    }
}
