//! Queries of the HDF5 library that read no more of a file than is asked for.
//!
//! The wrapper crate's own queries iterate over all attributes or copy names of any length, and so rely on numbers that may
//! be anything in a broken file.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use hdf5_metno::plist::DatasetCreate;
use hdf5_metno::{Datatype, Error, Location, Result};
use hdf5_metno_sys::LOCK;
use hdf5_metno_sys::h5a::H5Aexists;
use hdf5_metno_sys::h5l::H5Lexists;
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
