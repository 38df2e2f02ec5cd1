//! How the numbers of a dataset are stored, and a check that they can be in its file.
//!
//! The library returns zeros for numbers that were never written, and accepts any shape. So the stored size and the shape
//! are checked before memory is allocated or a number is read.

use hdf5_metno::Dataset;
use hdf5_metno::dataset::Layout;
use hdf5_metno_sys::h5z::{
    H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32, H5Z_FILTER_NBIT, H5Z_FILTER_SHUFFLE, H5Z_FILTER_SZIP, H5Z_filter_t,
};

use super::queries::{self, ChunkFilter};

/// Filters that expand a byte to at most [`MAX_EXPANSION`]. Others, such as scale-offset, may store any number of equal
/// values in no bytes.
const BOUNDED: [H5Z_filter_t; 5] =
    [H5Z_FILTER_DEFLATE, H5Z_FILTER_SHUFFLE, H5Z_FILTER_FLETCHER32, H5Z_FILTER_SZIP, H5Z_FILTER_NBIT];

/// An upper bound of the expansion; deflate's is 1032.
const MAX_EXPANSION: u64 = 2048;

/// Checks a dataset in a file of `file_bytes`. What is wrong is returned as words that follow its name.
pub(super) fn check(dataset: &Dataset, file_bytes: u64) -> hdf5_metno::Result<Result<(), String>> {
    let too_large = || Ok(Err("has a shape beyond any file; write it again".to_string()));
    let element = dataset.dtype()?.size() as u64;
    let shape: Vec<u64> = dataset.space()?.shape().into_iter().map(|n| n as u64).collect();
    let Some(wanted) = product(shape.iter().copied().chain([element])) else { return too_large() };
    if wanted == 0 {
        return Ok(Ok(()));
    }
    let (plist, stored) = (dataset.dcpl()?, dataset.storage_size());
    let unfinished = |wanted| {
        Ok(Err(format!(
            "has {stored} of {wanted} bytes in the file, as if its writing was ended early; write it again"
        )))
    };
    match plist.layout() {
        Layout::Compact | Layout::Contiguous => {
            if !plist.get_external()?.is_empty() {
                return Ok(Err("has its numbers in other files, which are not read (external storage)".to_string()));
            }
            if stored != wanted {
                return unfinished(wanted);
            }
            let end = dataset.offset().map_or(Some(wanted), |at| at.checked_add(wanted));
            if end.is_none_or(|end| end > file_bytes) {
                return Ok(Err("reaches beyond the end of the file; copy or write it again".to_string()));
            }
            Ok(Ok(()))
        }
        Layout::Chunked => {
            let chunk: Vec<u64> = plist.get_chunk()?.unwrap_or_default().into_iter().map(|n| n as u64).collect();
            if chunk.len() != shape.len() || chunk.contains(&0) {
                return Ok(Err("has chunks of another shape than its own; write it again".to_string()));
            }
            let chunks = shape.iter().zip(&chunk).map(|(n, chunk)| n.div_ceil(*chunk));
            let Some(whole) = product(chunks.chain(chunk.iter().copied()).chain([element])) else {
                return too_large();
            };
            let filters = queries::filters(&plist)?;
            // Chunks without filters are as long in the file as in memory, and none may be missing.
            let missing = filters.is_empty() && stored != whole;
            let bounded = filters.iter().all(|filter| BOUNDED.contains(&filter.number));
            if missing || stored == 0 || (bounded && whole / MAX_EXPANSION > stored) {
                return unfinished(whole);
            }
            if stored > file_bytes {
                return Ok(Err("reaches beyond the end of the file; copy or write it again".to_string()));
            }
            Ok(Ok(()))
        }
        // For files that are missing the library returns fill values.
        _ => Ok(Err("is made of other files' numbers (a virtual dataset); give one of those files itself".to_string())),
    }
}

/// The first filter of a dataset's chunks that this library does not have: its number, and the name that the file has for it.
pub(super) fn missing_filter(dataset: &Dataset) -> hdf5_metno::Result<Option<(i64, String)>> {
    let plist = dataset.dcpl()?;
    if plist.layout() != Layout::Chunked {
        return Ok(None);
    }
    for ChunkFilter { number, name } in queries::filters(&plist)? {
        if !queries::has_filter(number)? {
            return Ok(Some((number.into(), name)));
        }
    }
    Ok(None)
}

/// Rows of a dataset whose numbers have to be decompressed together: 1 where there is no filter.
pub(super) fn rows_at_once(dataset: &Dataset) -> hdf5_metno::Result<u64> {
    let plist = dataset.dcpl()?;
    if plist.layout() != Layout::Chunked || queries::filters(&plist)?.is_empty() {
        return Ok(1);
    }
    Ok(plist.get_chunk()?.and_then(|chunk| chunk.first().copied()).map_or(1, |rows| rows as u64).max(1))
}

fn product(numbers: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut numbers: Vec<u64> = numbers.into_iter().collect();
    // A zero empties the array, even where the other lengths overflow.
    numbers.sort_unstable();
    numbers.into_iter().try_fold(1u64, u64::checked_mul)
}
