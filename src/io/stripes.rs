//! Stripes of files on Lustre.

use std::path::Path;

/// Magic number of Lustre in `statfs`.
#[cfg(target_os = "linux")]
const LUSTRE: i64 = 0x0BD0_0BD0;

/// Returns the number of storage targets that the bytes of the file at `path` are spread over;
/// `None` except on Lustre, and for layouts that change with the size of the file.
#[cfg(target_os = "linux")]
pub(super) fn stripes(path: &Path) -> Option<u16> {
    use std::ffi::CString;
    use std::mem;
    use std::os::unix::ffi::OsStrExt;

    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path ends with a zero, and zeros are a valid `statfs`.
    let found = unsafe {
        let mut found: libc::statfs = mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut found) == 0).then_some(found)
    }?;
    if found.f_type as i64 != LUSTRE {
        return None;
    }
    let mut layout = [0_u8; 4096];
    // SAFETY: both names end with a zero, and the call writes at most the length of `layout`.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), c"lustre.lov".as_ptr(), layout.as_mut_ptr().cast(), layout.len()) };
    stripes_of_layout(layout.get(..usize::try_from(length).ok()?)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn stripes(_: &Path) -> Option<u16> {
    None
}

/// Reads the number of stripes in a plain layout (`lov_user_md_v1` and `_v3` of Lustre): magic,
/// pattern, 16 bytes of object, stripe size, stripe count.
#[cfg(target_os = "linux")]
fn stripes_of_layout(layout: &[u8]) -> Option<u16> {
    const PLAIN: [u32; 2] = [0x0BD1_0BD0, 0x0BD3_0BD0];
    let magic = u32::from_le_bytes(*layout.first_chunk()?);
    let count = u16::from_le_bytes(*layout.get(28..)?.first_chunk()?);
    PLAIN.contains(&magic).then_some(count)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn plain_layouts_have_a_number_of_stripes() {
        let layout = |magic: u32, count: u16| {
            let mut bytes = [0_u8; 56];
            bytes[..4].copy_from_slice(&magic.to_le_bytes());
            bytes[24..28].copy_from_slice(&(1_u32 << 20).to_le_bytes());
            bytes[28..30].copy_from_slice(&count.to_le_bytes());
            stripes_of_layout(&bytes)
        };
        assert_eq!([layout(0x0BD1_0BD0, 1), layout(0x0BD3_0BD0, 16)], [Some(1), Some(16)]);
        // A progressive layout grows with the file.
        assert_eq!([layout(0x0BD6_0BD0, 1), stripes_of_layout(&[0; 3]), stripes(&std::env::temp_dir())], [None; 3]);
    }
}
