//! Recognition of HDF5 files without the HDF5 library.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The particle types of a snapshot: `PartType0` to `PartType15`. Gadget has 6 of them, SWIFT 8.
pub const PARTICLE_TYPES: usize = 16;

/// The first bytes of an HDF5 file without a user block.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// Returns `true` if the name ends in `.hdf5` or `.h5`, or the file begins with the signature of
/// HDF5. Needs no feature. For a file that cannot be read, only the name counts.
///
/// ```
/// assert!(meshloom::io::is_hdf5("snapshot_007.hdf5") && meshloom::io::is_hdf5("SNAP.H5"));
/// assert!(!meshloom::io::is_hdf5("positions.npy"));
/// ```
pub fn is_hdf5(path: impl AsRef<Path>) -> bool {
    is_hdf5_name(&path) || begins_as_hdf5(path.as_ref())
}

/// Returns `true` if the name ends in `.hdf5` or `.h5`, in letters of any case.
pub fn is_hdf5_name(path: impl AsRef<Path>) -> bool {
    let extension = path.as_ref().extension().unwrap_or_default();
    ["hdf5", "h5"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

fn begins_as_hdf5(path: &Path) -> bool {
    // `is_file` comes first: opening a pipe would block.
    let mut start = [0; SIGNATURE.len()];
    path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == SIGNATURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::scratch::Scratch;

    #[test]
    fn the_signature_tells_what_the_name_does_not() {
        let scratch = Scratch::new();
        let path = scratch.path().join("snapshot");
        std::fs::write(&path, b"\x89HDF\r\n\x1a\n and more").unwrap();
        assert!(is_hdf5(&path));
        for other in [&b"\x93NUMPY\x01\x00"[..], b"\x89HDF", b""] {
            std::fs::write(&path, other).unwrap();
            assert!(!is_hdf5(&path));
        }
        assert!(!is_hdf5(scratch.path()));
    }
}
