//! Values of points on the device, which come to the host leaf by leaf: those that somebody asks
//! for.
//!
//! What is computed on the host from values that are not there is worth nothing: they are noted,
//! [`Fetcher`] fetches them, and what asked for them is computed again. So a rank downloads the
//! leaves near other ranks' points, by its surface, and waits for the device a few times.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;

use crate::gpu::primitives::Permute;
use crate::gpu::{Array, DeviceElement, DeviceError, Recorder};
use crate::host_memory;
use crate::points::rows::upload_u32;
use crate::points::tree::LEAF;

/// Values of points along the curve.
pub(crate) struct LeafValues<T> {
    /// Values of each point.
    width: u64,
    /// Leaves still on the device, and the kernel that gathers them; `None` if all are local.
    device: Option<Box<(Array<T>, Permute)>>,
    leaves: Vec<OnceCell<Box<[T]>>>,
    missing: RefCell<BTreeSet<u32>>,
    /// Number of leaves found missing since the last fetch.
    misses: Cell<usize>,
}

impl<T: DeviceElement> LeafValues<T> {
    /// Creates the values in an array of the device, `width` of each point. Waits for the last leaf
    /// if it is incomplete.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn of(recorder: &mut Recorder, values: Array<T>, width: u64) -> Result<Self, DeviceError> {
        let (count, each) = (values.len(), LEAF * width);
        let count_of_leaves = count.div_ceil(each) as usize;
        let leaves: Vec<OnceCell<Box<[T]>>> =
            host_memory::collect("values of leaves", (0..count_of_leaves).map(|_| OnceCell::new()))?;
        if !count.is_multiple_of(each)
            && let Some(last) = leaves.last()
        {
            let first = count / each * each;
            let _ = last.set(recorder.download(&values, first, count - first)?.into());
        }
        let (device, missing) = (Some(Box::new((values, Permute::new()))), RefCell::default());
        Ok(LeafValues { width, device, leaves, missing, misses: Cell::new(0) })
    }

    /// Creates values on the host, `width` of each point.
    #[cfg(test)]
    pub fn over(values: &[T], width: u64) -> Self {
        let leaves = values.chunks((LEAF * width) as usize).map(|leaf| OnceCell::from(Box::from(leaf))).collect();
        LeafValues { width, device: None, leaves, missing: RefCell::default(), misses: Cell::new(0) }
    }

    /// Returns the values of a leaf; none, and noted, where they are not here.
    pub fn leaf(&self, leaf: u64) -> &[T] {
        match self.leaves.get(leaf as usize).and_then(OnceCell::get) {
            Some(values) => values,
            None => {
                self.missing.borrow_mut().insert(leaf as u32);
                self.misses.set(self.misses.get() + 1);
                &[]
            }
        }
    }

    /// Returns the values of points that follow each other in one leaf; none, and noted, where they
    /// are not here.
    pub fn of_points(&self, places: std::ops::Range<u64>) -> &[T] {
        let leaf = places.start / LEAF;
        let [first, end] = [places.start, places.end].map(|at| ((at - leaf * LEAF) * self.width) as usize);
        self.leaf(leaf).get(first..end).unwrap_or(&[])
    }
}

/// Values that can be missing.
pub(crate) trait OnDemand {
    /// Returns how often any were missing since they were last fetched.
    fn misses(&self) -> usize;
    /// Fetches those that were missing. Waits.
    fn fetch(&self, recorder: &mut Recorder) -> Result<(), DeviceError>;
}

impl<T: DeviceElement> OnDemand for LeafValues<T> {
    fn misses(&self) -> usize {
        self.misses.get()
    }

    fn fetch(&self, recorder: &mut Recorder) -> Result<(), DeviceError> {
        self.misses.set(0);
        let leaves: Vec<u32> = self.missing.take().into_iter().collect();
        let (Some((values, permute)), false) = (self.device.as_deref(), leaves.is_empty()) else { return Ok(()) };
        let (index, each) = (upload_u32(recorder, &leaves)?, LEAF * self.width);
        let rows = permute.gathered(recorder, "ghosts::leaves", values, &index, each)?;
        let rows = recorder.download(&rows, 0, rows.len())?;
        for (leaf, values) in leaves.into_iter().zip(rows.chunks(each as usize)) {
            let _ = self.leaves[leaf as usize].set(values.into());
        }
        Ok(())
    }
}

/// Computes what needs values that may be missing.
pub(crate) struct Fetcher<'a> {
    /// `None` where all values are of the host.
    recorder: Option<&'a mut Recorder>,
    stores: Vec<&'a dyn OnDemand>,
}

impl<'a> Fetcher<'a> {
    /// Fetches what is missing in any of these.
    pub fn new(recorder: &'a mut Recorder, stores: Vec<&'a dyn OnDemand>) -> Self {
        Fetcher { recorder: Some(recorder), stores }
    }

    /// Returns where nothing is missing.
    #[cfg(test)]
    pub fn of_host() -> Self {
        Fetcher { recorder: None, stores: Vec::new() }
    }

    fn misses(&self) -> usize {
        self.stores.iter().map(|store| store.misses()).sum()
    }

    fn fetch(&mut self) -> Result<(), DeviceError> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        self.stores.iter().try_for_each(|store| store.fetch(recorder))
    }

    /// Returns what `run` gives, with everything there that it asks for: it is called until nothing
    /// was missing.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn complete<R>(&mut self, mut run: impl FnMut() -> R) -> Result<R, DeviceError> {
        loop {
            let found = run();
            if self.misses() == 0 {
                return Ok(found);
            }
            self.fetch()?;
        }
    }

    /// Returns what `run` gives for each of `items`, with everything there that it asks for: those
    /// that missed anything are asked again, together.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn each<T: Copy, R>(&mut self, items: &[T], mut run: impl FnMut(T) -> R) -> Result<Vec<R>, DeviceError> {
        let mut found: Vec<Option<R>> = host_memory::collect("answers to other ranks", items.iter().map(|_| None))?;
        let mut open = host_memory::collect("requests of other ranks", 0..items.len())?;
        while !open.is_empty() {
            open.retain(|&item| {
                let before = self.misses();
                let answer = run(items[item]);
                let whole = self.misses() == before;
                if whole {
                    found[item] = Some(answer);
                }
                !whole
            });
            if !open.is_empty() {
                self.fetch()?;
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}
