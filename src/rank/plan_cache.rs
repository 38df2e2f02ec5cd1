//! Plans that a rank keeps for later calls.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Plans kept at most.
const MOST_PLANS: usize = 64;
/// Bytes of device memory that kept plans may take; the plan that was used last is kept anyway.
const MOST_BYTES: u64 = 256 << 20;

/// Key of a plan. Plans of equal keys are interchangeable.
pub(crate) trait PlanKey: PartialEq + Send + Sync + 'static {
    /// The plan: kernels, tables and the like.
    type Plan: Send + Sync + 'static;

    /// Returns the device memory that a plan holds, in bytes.
    fn memory_bytes(_plan: &Self::Plan) -> u64 {
        0
    }
}

/// The key of the one value of type `T` that all uses on a rank share.
#[derive(Default)]
pub(super) struct Shared<T>(PhantomData<fn() -> T>);

impl<T> PartialEq for Shared<T> {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl<T: Send + Sync + 'static> PlanKey for Shared<T> {
    type Plan = T;
}

struct Entry {
    key: Box<dyn Any + Send + Sync>,
    plan: Arc<dyn Any + Send + Sync>,
    bytes: u64,
}

/// The plans that were used last, the latest at the end.
#[derive(Default)]
pub(super) struct PlanCache(Vec<Entry>);

impl fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanCache").field("plans", &self.0.len()).field("bytes", &self.memory_bytes()).finish()
    }
}

impl PlanCache {
    /// Returns the plan of `key` if there is one.
    pub fn get<K: PlanKey>(&mut self, key: &K) -> Option<Arc<K::Plan>> {
        let at = self.0.iter().position(|entry| entry.key.downcast_ref() == Some(key))?;
        let entry = self.0.remove(at);
        let plan = entry.plan.clone().downcast().ok();
        self.0.push(entry);
        plan
    }

    /// Keeps a plan, and drops those that were used longest ago while there are too many.
    pub fn insert<K: PlanKey>(&mut self, key: K, plan: K::Plan) -> Arc<K::Plan> {
        let bytes = K::memory_bytes(&plan);
        let plan = Arc::new(plan);
        self.0.push(Entry { key: Box::new(key), plan: plan.clone(), bytes });
        while self.0.len() > MOST_PLANS || (self.0.len() > 1 && self.memory_bytes() > MOST_BYTES) {
            self.0.remove(0);
        }
        plan
    }

    /// Returns the device memory that the plans hold, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|entry| entry.bytes).sum()
    }

    /// Drops all plans.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq)]
    struct Table(u64);

    impl PlanKey for Table {
        type Plan = u64;

        fn memory_bytes(plan: &u64) -> u64 {
            *plan
        }
    }

    #[derive(PartialEq)]
    struct Name(u64);

    impl PlanKey for Name {
        type Plan = String;
    }

    #[test]
    fn plans_of_a_key_are_kept_until_there_are_too_many() {
        let mut cache = PlanCache::default();
        let first = cache.insert(Table(0), 7);
        assert!(Arc::ptr_eq(&first, &cache.get(&Table(0)).unwrap()));
        // The same number under another kind of key is another plan.
        assert!(cache.get(&Name(0)).is_none());
        cache.insert(Name(0), "plan".into());
        assert_eq!(*cache.get(&Name(0)).unwrap(), "plan");
        (1..MOST_PLANS as u64 - 1).for_each(|number| drop(cache.insert(Table(number), 0)));
        assert!(cache.get(&Table(0)).is_some());
        // Now the name was used longest ago.
        cache.insert(Table(1000), 0);
        assert!(cache.get(&Name(0)).is_none() && cache.get(&Table(0)).is_some());
        assert_eq!(cache.memory_bytes(), 7);
        cache.clear();
        assert!(cache.get(&Table(0)).is_none());
    }

    #[test]
    fn plans_take_bounded_memory() {
        let mut cache = PlanCache::default();
        for number in 0..10 {
            cache.insert(Table(number), MOST_BYTES / 4);
        }
        assert_eq!(cache.memory_bytes(), MOST_BYTES);
        assert!(cache.get(&Table(5)).is_none() && cache.get(&Table(6)).is_some());
        // One that is larger than all may be stays while it is used.
        cache.insert(Table(11), 2 * MOST_BYTES);
        assert!(cache.get(&Table(11)).is_some());
        assert_eq!(cache.memory_bytes(), 2 * MOST_BYTES);
    }
}
