//! Rows of all ranks in the order of keys that they come with.

use super::error::SortError;
use super::merge::merge;
use super::order::order_of;
use super::plan::{cuts, gathered};
use super::route::Route;
use crate::comm::Op;
use crate::gpu::{Array, MemoryKind};
use crate::points::rows::exchange_rows;
use crate::rank::Rank;

/// Plans the moves of the rows of all ranks so that they ascend by key, over ranks too, and each
/// rank has its [share](crate::grid::Shares) of them. Keys are below 2^63, as high and low words;
/// rows with equal keys keep the order of the input (rank by rank). The sequence does not depend on
/// the number of ranks. Collective, with any number of rows, including none.
///
/// Memory: three words a row for the order here, and as many for that of the rows received. Waits
/// for the device and, with several ranks, the others: a sum, up to eight rounds of 256 counts for
/// each boundary, and two words a row.
///
/// ```
/// use meshloom::gpu::Options;
/// use meshloom::points::sort::route_by_key;
/// use meshloom::{Error, Launch, launch};
///
/// let sorted = launch(Launch::Threads(2), &Options::from_env()?, |rank| {
///     let own: &[u32] = if rank.index() == 0 { &[7, 1, 5] } else { &[3] };
///     let array = |rank: &mut meshloom::Rank, words: &[u32]| {
///         let array = rank.gpu.array("words", words.len() as u64)?;
///         rank.recorder.upload(&array, 0, words)?;
///         Ok::<_, Error>(array)
///     };
///     let (high, low) = (array(rank, &vec![0; own.len()])?, array(rank, own)?);
///     let route = route_by_key(rank, [&high, &low])?;
///     let moved = route.forward(rank, &low, 1)?;
///     Ok::<_, Error>(rank.recorder.download(&moved, 0, moved.len())?)
/// })?;
/// assert_eq!(sorted, [[1, 3], [5, 7]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SortError`] of the device or of a rank.
pub fn route_by_key(rank: &mut Rank, keys: [&Array<u32>; 2]) -> Result<Route, SortError> {
    let (comm, count) = (rank.comm.clone(), keys[0].len());
    let order = order_of(&mut rank.recorder, keys)?;
    if comm.size() == 1 {
        return Ok(Route::new(&comm, order, vec![count], vec![count], None)?);
    }
    let [total] = comm.reduced([count], Op::Sum)?;
    let recorder = &mut rank.recorder;
    let [high, low] = keys.map(|words| gathered(recorder, words, &order, 1, MemoryKind::Outgoing));
    let sorted = [high?, low?];
    let (places, _) = cuts(recorder, &comm, sorted.each_ref(), total)?;
    let sends: Vec<u64> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let receives = comm.all_to_all(&sends)?;
    let [high, low] = sorted.map(|words| exchange_rows(rank, "keys of a sort", &words, 1, [&sends, &receives]));
    let (merge, _) = merge(&mut rank.recorder, [&high?, &low?], &receives)?;
    Ok(Route::new(&comm, order, sends, receives, Some(merge))?)
}
