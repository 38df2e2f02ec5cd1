//! Results of searches, sent to the ranks whose rows the queries are.

use super::error::NeighborError;
use crate::comm::Communicator;
use crate::grid::Cost;

/// All points within a radius of each row: row `i` is entries `offset[i]..offset[i + 1]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RadiusResult {
    /// Where each row begins, from 0; after the last one the number of all entries.
    pub offset: Vec<u64>,
    /// Indices in the input of all ranks, ascending in a row.
    pub index: Vec<u64>,
    /// Distances.
    pub distance: Vec<f32>,
}

/// Rows of results, by the index of the query in the input of all ranks.
#[derive(Default)]
pub(super) struct ResultRouting {
    /// Index of the query, and where its entries begin and end.
    rows: Vec<(u64, usize, usize)>,
    index: Vec<u64>,
    distance: Vec<f32>,
}

impl ResultRouting {
    pub fn push(&mut self, number: u64, index: &[u64], distance: &[f32]) {
        let start = self.index.len();
        self.index.extend_from_slice(index);
        self.distance.extend_from_slice(distance);
        self.rows.push((number, start, self.index.len()));
    }
}

/// Words of a row's header (the row in the rank's input, the number of entries) and of an entry (index, distance).
const HEADER: usize = 2;
const ENTRY: usize = 3;

/// Sends each row to the rank whose input it belongs to; `row_offsets` is where each rank's input begins. One exchange of the
/// host. All ranks call it.
pub(super) fn deliver(
    comm: &Communicator,
    row_offsets: &[u64],
    results: ResultRouting,
) -> Result<(RadiusResult, Cost), NeighborError> {
    let ResultRouting { mut rows, index, distance } = results;
    rows.sort_unstable_by_key(|row| row.0);
    let owner = |number: u64| row_offsets.partition_point(|&first| first <= number) - 1;
    let mut words = Vec::with_capacity(rows.len() * HEADER + index.len() * ENTRY);
    let mut counts = vec![0u64; comm.size()];
    for &(number, start, end) in &rows {
        let rank = owner(number);
        let before = words.len();
        words.extend([(number - row_offsets[rank]) as u32, (end - start) as u32]);
        for (index, distance) in index[start..end].iter().zip(&distance[start..end]) {
            words.extend([*index as u32, (*index >> 32) as u32, distance.to_bits()]);
        }
        counts[rank] += (words.len() - before) as u64;
    }
    drop((rows, index, distance));
    let received_words = comm.all_to_all_v(&words, &counts)?;
    let others = |counts: &[u64]| {
        let all = counts.iter().enumerate().filter(|(rank, count)| *rank != comm.rank() && **count > 0);
        all.map(|(_, count)| 4 * count).collect::<Vec<u64>>()
    };
    let (sent, received) = (others(&counts), others(received_words.counts()));
    let cost = Cost { sent: sent.iter().sum(), received: received.iter().sum(), messages: sent.len() as u64 };
    drop(words);
    // Rows of one sender ascend, those of several interleave.
    let mut headers = Vec::new();
    let (words, mut at) = (received_words.data(), 0);
    while at < words.len() {
        headers.push((words[at], at));
        at += HEADER + ENTRY * words[at + 1] as usize;
    }
    headers.sort_unstable();
    let mut rows = RadiusResult { offset: vec![0], ..RadiusResult::default() };
    for (_, at) in headers {
        let entries = &words[at + HEADER..at + HEADER + ENTRY * words[at + 1] as usize];
        rows.index.extend(entries.chunks_exact(ENTRY).map(|entry| u64::from(entry[0]) | u64::from(entry[1]) << 32));
        rows.distance.extend(entries.chunks_exact(ENTRY).map(|entry| f32::from_bits(entry[2])));
        rows.offset.push(rows.index.len() as u64);
    }
    Ok((rows, cost))
}
