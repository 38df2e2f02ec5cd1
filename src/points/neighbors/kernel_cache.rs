//! Kernels that are compiled when they are first used, and kept.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use crate::gpu::{Kernel, KernelSource, Trust};

/// Kernels by what distinguishes them.
pub(super) struct KernelCache<K>(Mutex<HashMap<K, Arc<Kernel>>>);

impl<K: Eq + Hash> KernelCache<K> {
    pub fn new() -> Self {
        KernelCache(Mutex::default())
    }

    /// The kernel of `key`, made of `source` the first time.
    pub fn get(&self, key: K, trust: Trust, source: impl FnOnce() -> KernelSource) -> Arc<Kernel> {
        let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kernels.entry(key).or_insert_with(|| Arc::new(Kernel::with_trust(trust, source()))).clone()
    }
}
