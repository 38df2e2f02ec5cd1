//! In which order ranks talk to each other.

/// The peers of `rank` among `ranks`, itself left out, such that in each step of the list every rank is one other's
/// partner: by exclusive-or where `ranks` is a power of two (both sides of a pair meet in the same step), else around
/// a ring. The first list is the order of sending, the second of receiving.
///
/// ```
/// use meshloom::grid::peers;
/// assert_eq!(peers(4, 1), (vec![0, 3, 2], vec![0, 3, 2]));
/// assert_eq!(peers(3, 1), (vec![2, 0], vec![0, 2]));
/// ```
pub fn peers(ranks: usize, rank: usize) -> (Vec<usize>, Vec<usize>) {
    if ranks.is_power_of_two() {
        let order: Vec<_> = (1..ranks).map(|step| rank ^ step).collect();
        return (order.clone(), order);
    }
    let to = (1..ranks).map(|step| (rank + step) % ranks).collect();
    let from = (1..ranks).map(|step| (rank + ranks - step) % ranks).collect();
    (to, from)
}
