//! Queries of the HDF5 library that read no more of a file than is asked for.
//!
//! The wrapper crate's own queries iterate over all attributes or copy names of any length, and so rely on numbers that may
//! be anything in a broken file.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use hdf5_metno::plist::DatasetCreate;
use hdf5_metno::{Datatype, Error, Location, Result};
use hdf5_metno_sys::LOCK;
use hdf5_metno_sys::h5::{H5_index_t, H5_iter_order_t};
use hdf5_metno_sys::h5a::H5Aexists;
use hdf5_metno_sys::h5g::{H5G_info_t, H5Gget_info};
use hdf5_metno_sys::h5l::{H5Lexists, H5Lget_name_by_idx};
use hdf5_metno_sys::h5p::{H5P_DEFAULT, H5Pget_filter2, H5Pget_nfilters};
use hdf5_metno_sys::h5t::{H5T_class_t, H5Tget_class};
use hdf5_metno_sys::h5z::{H5Z_filter_t, H5Zfilter_avail};

/// Whether there is an attribute of this name.
pub(super) fn has_attribute(at: &Location, name: &str) -> Result<bool> {
    let name = c_text(name)?;
    let _library = LOCK.lock();
    // SAFETY: the location is open, the name ends with a zero and outlives the call, and no other thread is in the library.
    Ok(checked(unsafe { H5Aexists(at.id(), name.as_ptr()) })? > 0)
}

/// Whether there is a link of this name in a group or file.
pub(super) fn has_link(at: &Location, name: &str) -> Result<bool> {
    let name = c_text(name)?;
    let _library = LOCK.lock();
    // SAFETY: as above.
    Ok(checked(unsafe { H5Lexists(at.id(), name.as_ptr(), H5P_DEFAULT) })? > 0)
}

/// The names of a group's links in the order of the names: at most `most`, each cut to [`NAME_BYTES`], for messages.
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

/// Whether values of this type are single numbers.
pub(super) fn is_number(of: &Datatype) -> bool {
    let _library = LOCK.lock();
    // SAFETY: the type is open, and no other thread is in the library.
    let class = unsafe { H5Tget_class(of.id()) };
    matches!(class, H5T_class_t::H5T_INTEGER | H5T_class_t::H5T_FLOAT)
}

/// A filter that chunks of a dataset have gone through.
pub(super) struct ChunkFilter {
    pub number: H5Z_filter_t,
    /// As the file has it, cut to [`NAME_BYTES`]; empty where it has none.
    pub name: String,
}

/// The most bytes of a filter's name that are looked at, with the zero at its end.
const NAME_BYTES: usize = 48;

/// The filters that chunks of a dataset have gone through.
pub(super) fn filters(of: &DatasetCreate) -> Result<Vec<ChunkFilter>> {
    let _library = LOCK.lock();
    // SAFETY: the list is open, and no other thread is in the library.
    let count = checked(unsafe { H5Pget_nfilters(of.id()) })?;
    let filter = |number: i32| {
        let (mut flags, mut no_values, mut name) = (0, 0, [0u8; NAME_BYTES]);
        let (list, values, config) = (of.id(), ptr::null_mut(), ptr::null_mut());
        let (text, room) = (name.as_mut_ptr().cast::<c_char>(), NAME_BYTES - 1);
        // SAFETY: as above; no buffer for values is passed, and the name has one byte more than may be written.
        let number = checked(unsafe {
            H5Pget_filter2(list, number as u32, &raw mut flags, &raw mut no_values, values, room, text, config)
        })?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        Ok(ChunkFilter { number, name })
    };
    (0..count).map(filter).collect()
}

/// Whether the library has a filter, or finds a plugin that is one.
pub(super) fn has_filter(number: H5Z_filter_t) -> Result<bool> {
    let _library = LOCK.lock();
    // SAFETY: no other thread is in the library.
    Ok(checked(unsafe { H5Zfilter_avail(number) })? > 0)
}

fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::from("a name contains a zero"))
}

/// The return value of a call; negative ones are failures.
fn checked(returned: i32) -> Result<i32> {
    if returned >= 0 { Ok(returned) } else { Err(Error::query()?) }
}
