//! Order in which a rank exchanges messages with the others.

/// Returns the other ranks of `ranks`, in the order in which `rank` sends to them, and in the order
/// in which it receives from them. In each step every rank sends to one other and receives from
/// one: the partner of the exclusive-or with the step where `ranks` is a power of two, else ranks
/// at a distance of the step around the ring.
///
/// ```
/// use meshloom::grid::peers;
/// assert_eq!(peers(4, 1), (vec![0, 3, 2], vec![0, 3, 2]));
/// assert_eq!(peers(3, 1), (vec![2, 0], vec![0, 2]));
/// ```
#[must_use]
pub fn peers(ranks: usize, rank: usize) -> (Vec<usize>, Vec<usize>) {
    if ranks.is_power_of_two() {
        let order: Vec<_> = (1..ranks).map(|step| rank ^ step).collect();
        return (order.clone(), order);
    }
    let to = (1..ranks).map(|step| (rank + step) % ranks).collect();
    let from = (1..ranks).map(|step| (rank + ranks - step) % ranks).collect();
    (to, from)
}
