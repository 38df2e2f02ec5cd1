//! Allocation of host memory that grows with the data: a lack of memory is an error, not the end of
//! the process.
//!
//! Each function allocates once, with the exact capacity, and fails with a [`HostMemoryError`] that
//! names the data and their size. `Vec::collect`, `vec![x; n]` and `to_vec` abort the process
//! instead: they are for what stays small.

use std::cell::Cell;
use std::fmt;

use bytemuck::Zeroable;

/// The system does not give host memory that data need.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of host memory: {} needed for {what}; use a smaller problem, or more ranks on more machines",
    ByteCount(*.bytes)
)]
pub struct HostMemoryError {
    /// The data, as a noun phrase: "positions", "neighbor lists".
    pub what: &'static str,
    /// Their size in bytes.
    pub bytes: u64,
}

message_debug!(HostMemoryError);

/// A number of bytes, displayed in the unit that reads best.
pub(crate) struct ByteCount(pub u64);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let unit = (0..UNITS.len()).rev().find(|&u| self.0 >= 1 << (10 * u)).unwrap_or(0);
        match unit {
            0 => write!(f, "{} B", self.0),
            _ => write!(f, "{:.1} {}", self.0 as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit]),
        }
    }
}

/// Allocates a vector of capacity `count` that is empty.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory.
pub fn reserve<T>(what: &'static str, count: usize) -> Result<Vec<T>, HostMemoryError> {
    let mut items = Vec::new();
    grow(what, &mut items, count)?;
    Ok(items)
}

/// Makes room for exactly `count` more items in `items`.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory.
pub fn grow<T>(what: &'static str, items: &mut Vec<T>, count: usize) -> Result<(), HostMemoryError> {
    let len = items.len();
    handled(|| items.try_reserve_exact(count)).map_err(|_| lack_of::<T>(what, len.saturating_add(count)))
}

/// Makes room for `count` more items in `items`, which are appended in many pieces: the room is
/// doubled each time, as long as there is memory for that.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory.
pub fn make_room<T>(what: &'static str, items: &mut Vec<T>, count: usize) -> Result<(), HostMemoryError> {
    if items.capacity() - items.len() >= count {
        return Ok(());
    }
    grow(what, items, count.max(items.len())).or_else(|_| grow(what, items, count))
}

/// Allocates `count` zeros, whose pages the system clears when they are first used.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory.
pub fn zeros<T: Zeroable>(what: &'static str, count: usize) -> Result<Vec<T>, HostMemoryError> {
    handled(|| bytemuck::allocation::try_zeroed_vec(count)).map_err(|()| lack_of::<T>(what, count))
}

/// Allocates `count` copies of `value`.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory.
pub fn fill<T: Clone>(what: &'static str, value: T, count: usize) -> Result<Vec<T>, HostMemoryError> {
    let mut items = reserve(what, count)?;
    items.resize(count, value);
    Ok(items)
}

/// Copies a slice.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory.
pub fn copy<T: Clone>(what: &'static str, items: &[T]) -> Result<Vec<T>, HostMemoryError> {
    let mut copied = reserve(what, items.len())?;
    copied.extend_from_slice(items);
    Ok(copied)
}

/// Collects the items of an iterator that knows their number.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory.
pub fn collect<I>(what: &'static str, items: I) -> Result<Vec<I::Item>, HostMemoryError>
where
    I: IntoIterator<IntoIter: ExactSizeIterator>,
{
    let items = items.into_iter();
    let mut collected = reserve(what, items.len())?;
    collected.extend(items);
    Ok(collected)
}

/// Checks that `bytes` could be allocated now: before a call of another library, which allocates
/// them itself and aborts the process where it cannot.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory.
pub fn probe(what: &'static str, bytes: usize) -> Result<(), HostMemoryError> {
    reserve::<u8>(what, bytes).map(drop)
}

/// Sorts items by a key, which is computed once for each, and moves each item once. Equal items
/// keep their order.
///
/// Needs a key and a word of memory for each item.
///
/// # Errors
/// [`HostMemoryError`] if the system does not give the memory; the items are unchanged.
pub fn sort_by_cached_key<T, K: Ord>(
    what: &'static str,
    items: &mut [T],
    key: impl Fn(&T) -> K,
) -> Result<(), HostMemoryError> {
    let mut order = collect(what, items.iter().enumerate().map(|(from, item)| (key(item), from)))?;
    order.sort_unstable();
    for to in 0..items.len() {
        // An item whose place is taken already was swapped to where the item of that place came
        // from.
        let mut from = order[to].1;
        while from < to {
            from = order[from].1;
        }
        order[to].1 = from;
        items.swap(to, from);
    }
    Ok(())
}

/// Calls `allocate`, which returns an error where memory is lacking; meanwhile [`is_handled`]
/// returns `true` on this thread.
pub fn handled<R>(allocate: impl FnOnce() -> R) -> R {
    let before = HANDLED.replace(true);
    let allocated = allocate();
    HANDLED.set(before);
    allocated
}

/// Returns `true` if this thread reports a failed allocation as an error: for the global allocator
/// of a program that ends the process at all others.
#[must_use]
pub fn is_handled() -> bool {
    HANDLED.get()
}

thread_local! {
    static HANDLED: Cell<bool> = const { Cell::new(false) };
}

fn lack_of<T>(what: &'static str, count: usize) -> HostMemoryError {
    HostMemoryError { what, bytes: (count as u64).saturating_mul(size_of::<T>() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_does_not_give_is_an_error_with_its_size() {
        let count = 1 << 58;
        let lack = |bytes| HostMemoryError { what: "x", bytes };
        assert_eq!(reserve::<u64>("x", count), Err(lack(1 << 61)));
        assert_eq!(zeros::<u64>("x", count), Err(lack(1 << 61)));
        assert_eq!(fill("x", 7u64, usize::MAX), Err(lack(u64::MAX)));
        assert_eq!(collect("x", (0..count).map(|i| i as u32)).map(drop), Err(lack(1 << 60)));
        assert_eq!(grow("x", &mut vec![1u8], usize::MAX), Err(lack(u64::MAX)));
        assert!(!is_handled());
        let text = "out of host memory: 4.0 GiB needed for x; use a smaller problem, or more ranks on more machines";
        assert_eq!(lack(1 << 32).to_string(), text);
    }

    #[test]
    fn sorting_moves_every_item_to_its_place() {
        let mut state = 7u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for count in [0, 1, 2, 3, 10, 1000] {
            let mut items: Vec<[u32; 2]> = (0..count).map(|at| [random(1 + count / 3), at]).collect();
            let mut want = items.clone();
            want.sort_by_key(|item| item[0]);
            sort_by_cached_key("x", &mut items, |item| item[0]).unwrap();
            assert_eq!(items, want);
        }
    }

    #[test]
    fn vectors_hold_what_they_were_made_of_and_no_more() {
        let five = collect("x", 0..5).unwrap();
        assert_eq!((five.as_slice(), five.capacity()), ([0, 1, 2, 3, 4].as_slice(), 5));
        assert_eq!(copy("x", &five), Ok(five));
        assert_eq!(zeros::<u16>("x", 3), Ok(vec![0; 3]));
        assert_eq!(fill("x", "a", 2), Ok(vec!["a"; 2]));
        assert_eq!((zeros::<u16>("x", 0), fill("x", 1u8, 0)), (Ok(vec![]), Ok(vec![])));
    }
}
