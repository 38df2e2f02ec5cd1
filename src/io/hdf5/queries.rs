//! Queries of the HDF5 library that read only the requested parts of a file.
//!
//! The queries of the wrapper crate iterate over all attributes or copy names of any length, and so
//! depend on numbers that may be anything in a broken file.
//!
//! The library returns zeros for numbers that were never written, and accepts any shape. So the
//! stored size and the shape are checked before memory is allocated or a number is read.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use hdf5_metno::dataset::Layout;
use hdf5_metno::plist::DatasetCreate;
use hdf5_metno::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5_metno::{Container, Dataset, Datatype, Error, Location, Result};
use hdf5_metno_sys::LOCK;
use hdf5_metno_sys::h5::{H5_index_t, H5_iter_order_t};
use hdf5_metno_sys::h5a::H5Aexists;
use hdf5_metno_sys::h5g::{H5G_info_t, H5Gget_info};
use hdf5_metno_sys::h5l::{H5Lexists, H5Lget_name_by_idx};
use hdf5_metno_sys::h5p::{H5P_DEFAULT, H5Pget_filter2, H5Pget_nfilters};
use hdf5_metno_sys::h5t::{H5T_class_t, H5Tget_class};
use hdf5_metno_sys::h5z::{
    H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32, H5Z_FILTER_NBIT, H5Z_FILTER_SHUFFLE, H5Z_FILTER_SZIP, H5Z_filter_t,
    H5Zfilter_avail,
};

use crate::io::Dtype;

/// Returns `true` if there is an attribute of this name.
pub(super) fn has_attribute(at: &Location, name: &str) -> Result<bool> {
    let name = c_text(name)?;
    let _library = LOCK.lock();
    // SAFETY: the location is open, the name ends with a zero and outlives the call, and no other
    // thread is in the library.
    Ok(checked(unsafe { H5Aexists(at.id(), name.as_ptr()) })? > 0)
}

/// Returns `true` if a group or file has links all along this path.
pub(super) fn has_link(at: &Location, path: &str) -> Result<bool> {
    // The library wants each group on the way to exist.
    for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
        let name = c_text(&path[..end])?;
        let _library = LOCK.lock();
        // SAFETY: as above.
        if checked(unsafe { H5Lexists(at.id(), name.as_ptr(), H5P_DEFAULT) })? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the names of a group's links for messages, in order: at most `most`, each cut to
/// [`NAME_BYTES`].
pub(super) fn link_names(at: &Location, most: u64) -> Result<Vec<String>> {
    let _library = LOCK.lock();
    let mut info = H5G_info_t::default();
    // SAFETY: the group is open, `info` outlives the call, and no other thread is in the library.
    checked(unsafe { H5Gget_info(at.id(), &raw mut info) })?;
    let name = |index: u64| {
        let mut name = [0u8; NAME_BYTES];
        let (here, text) = (c".".as_ptr(), name.as_mut_ptr().cast::<c_char>());
        let (by_name, ascending) = (H5_index_t::H5_INDEX_NAME, H5_iter_order_t::H5_ITER_INC);
        // SAFETY: as above; no more than the bytes of `name` are written, with the zero at the end.
        let length =
            unsafe { H5Lget_name_by_idx(at.id(), here, by_name, ascending, index, text, NAME_BYTES, H5P_DEFAULT) };
        if length < 0 {
            return Err(Error::query()?);
        }
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
        Ok(name.chars().filter(|c| !c.is_control()).collect())
    };
    (0..info.nlinks.min(most)).map(name).collect()
}

/// Returns `true` if values of this type are single numbers.
fn is_number(of: &Datatype) -> bool {
    let _library = LOCK.lock();
    // SAFETY: the type is open, and no other thread is in the library.
    let class = unsafe { H5Tget_class(of.id()) };
    matches!(class, H5T_class_t::H5T_INTEGER | H5T_class_t::H5T_FLOAT)
}

/// A filter of the chunks of a dataset.
pub(super) struct ChunkFilter {
    pub number: H5Z_filter_t,
    /// Name in the file, cut to [`NAME_BYTES`]; may be empty.
    pub name: String,
}

/// Largest number of bytes that are read of a name, with the zero at its end.
const NAME_BYTES: usize = 48;

/// Returns the filters of the chunks of a dataset.
pub(super) fn filters(of: &DatasetCreate) -> Result<Vec<ChunkFilter>> {
    let _library = LOCK.lock();
    // SAFETY: the list is open, and no other thread is in the library.
    let count = checked(unsafe { H5Pget_nfilters(of.id()) })?;
    let filter = |number: i32| {
        let (mut flags, mut no_values, mut name) = (0, 0, [0u8; NAME_BYTES]);
        let (list, values, config) = (of.id(), ptr::null_mut(), ptr::null_mut());
        let (text, room) = (name.as_mut_ptr().cast::<c_char>(), NAME_BYTES - 1);
        // SAFETY: as above; no buffer for values is passed, and the name has one byte more than may
        // be written.
        let number = checked(unsafe {
            H5Pget_filter2(list, number as u32, &raw mut flags, &raw mut no_values, values, room, text, config)
        })?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        Ok(ChunkFilter { number, name })
    };
    (0..count).map(filter).collect()
}

/// Returns `true` if the library has a filter or finds its plugin.
fn has_filter(number: H5Z_filter_t) -> Result<bool> {
    let _library = LOCK.lock();
    // SAFETY: no other thread is in the library.
    Ok(checked(unsafe { H5Zfilter_avail(number) })? > 0)
}

fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::from("a name contains a zero"))
}

/// Checks the return value of a call; negative values are failures.
fn checked(returned: i32) -> Result<i32> {
    if returned >= 0 { Ok(returned) } else { Err(Error::query()?) }
}

/// Returns the element type of a dataset or attribute, or a description of one that is not a
/// number.
pub(super) fn element_type(container: &Container) -> Result<std::result::Result<Dtype, String>> {
    let found = container.dtype()?;
    // Other types are not examined further: sizes and names of their members may be anything in a
    // broken file.
    if !is_number(&found) {
        return Ok(Err("text or a compound".to_string()));
    }
    if ![1, 2, 4, 8].contains(&found.size()) {
        return Ok(Err(format!("a number of {} bytes", found.size())));
    }
    Ok(match found.to_descriptor()? {
        TypeDescriptor::Float(FloatSize::U4) => Ok(Dtype::F32),
        TypeDescriptor::Float(FloatSize::U8) => Ok(Dtype::F64),
        TypeDescriptor::Integer(size) => Ok(match size {
            IntSize::U1 => Dtype::I8,
            IntSize::U2 => Dtype::I16,
            IntSize::U4 => Dtype::I32,
            IntSize::U8 => Dtype::I64,
        }),
        TypeDescriptor::Unsigned(size) => Ok(match size {
            IntSize::U1 => Dtype::U8,
            IntSize::U2 => Dtype::U16,
            IntSize::U4 => Dtype::U32,
            IntSize::U8 => Dtype::U64,
        }),
        other => Err(other.to_string()),
    })
}

/// Filters that expand a byte to at most [`MAX_EXPANSION`]. Others, such as scale-offset, may store
/// any number of equal values in no bytes.
const BOUNDED: [H5Z_filter_t; 5] =
    [H5Z_FILTER_DEFLATE, H5Z_FILTER_SHUFFLE, H5Z_FILTER_FLETCHER32, H5Z_FILTER_SZIP, H5Z_FILTER_NBIT];

/// An upper bound of the expansion; deflate's is 1032.
const MAX_EXPANSION: u64 = 2048;

/// Checks a dataset in a file of `file_bytes`. Returns the fault as words that follow the name of
/// the dataset.
pub(super) fn check_storage(dataset: &Dataset, file_bytes: u64) -> hdf5_metno::Result<Result<(), String>> {
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
            let filters = filters(&plist)?;
            // Chunks without filters have the same size in the file as in memory, and none may be
            // missing.
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
        // For missing files, the library returns fill values.
        _ => Ok(Err("is made of other files' numbers (a virtual dataset); give one of those files itself".to_string())),
    }
}

/// Returns the first filter of a dataset's chunks that this library does not have: its number, and
/// its name in the file.
pub(super) fn missing_filter(dataset: &Dataset) -> hdf5_metno::Result<Option<(i64, String)>> {
    let plist = dataset.dcpl()?;
    if plist.layout() != Layout::Chunked {
        return Ok(None);
    }
    for ChunkFilter { number, name } in filters(&plist)? {
        if !has_filter(number)? {
            return Ok(Some((number.into(), name)));
        }
    }
    Ok(None)
}

/// Returns the number of rows that are decompressed together; 1 without a filter.
pub(super) fn rows_at_once(dataset: &Dataset) -> hdf5_metno::Result<u64> {
    let plist = dataset.dcpl()?;
    if plist.layout() != Layout::Chunked || filters(&plist)?.is_empty() {
        return Ok(1);
    }
    Ok(plist.get_chunk()?.and_then(|chunk| chunk.first().copied()).map_or(1, |rows| rows as u64).max(1))
}

fn product(numbers: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut numbers: Vec<u64> = numbers.into_iter().collect();
    // A zero empties the array, even if the other lengths overflow.
    numbers.sort_unstable();
    numbers.into_iter().try_fold(1u64, u64::checked_mul)
}

/// Returns the remedy for a failed lock: the library locks files, which some file systems cannot.
pub(super) fn lock_remedy(error: &Error) -> &'static str {
    if error.to_string().contains("unable to lock") {
        "; if no other program has it open, the file system has no locks: set HDF5_USE_FILE_LOCKING=FALSE"
    } else {
        ""
    }
}
