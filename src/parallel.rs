//! Work of the host on several threads.

use std::num::NonZero;
use std::thread;

/// Threads at most: ranks of one host share its cores.
const THREADS: usize = 8;

/// Returns `f` of each number below `len`, in order. Threads share the numbers, at least `least`
/// each.
pub fn map(len: usize, least: usize, f: impl Fn(usize) -> f64 + Sync) -> Vec<f64> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(THREADS).min(len / least.max(1)).max(1);
    let part = len.div_ceil(threads).max(1);
    let mut values = vec![0.0; len];
    thread::scope(|scope| {
        let mut parts = values.chunks_mut(part).enumerate();
        let own = parts.next();
        let f = &f;
        let fill = move |(which, values): (usize, &mut [f64])| {
            values.iter_mut().enumerate().for_each(|(i, value)| *value = f(which * part + i));
        };
        parts.for_each(|part| drop(scope.spawn(move || fill(part))));
        own.into_iter().for_each(fill);
    });
    values
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn values_are_in_order() {
        for (len, least) in [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 999), (5, 0)] {
            let wanted: Vec<f64> = (0..len).map(|i| i as f64).collect();
            assert_eq!(map(len, least, |i| i as f64), wanted);
        }
    }
}
