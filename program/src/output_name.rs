//! Names of outputs, which must not say another format than that of the file.

use std::path::Path;

use meshloom::io::printable_path;

use crate::failure::Failure;

/// Extensions that say a format to people and programs.
const KNOWN: [&str; 15] =
    ["npy", "npz", "csv", "txt", "dat", "hdf5", "h5", "json", "toml", "png", "wgsl", "msl", "metal", "hlsl", "spv"];

/// Extensions of tables as text.
pub const TABLE: [&str; 3] = ["csv", "txt", "dat"];

/// Refuses an output whose name says another format than those of `own`, the extensions of what is
/// written. Names without an extension and with others, as of `stars.run7`, say none.
///
/// # Errors
/// [`Failure::Usage`], with the name that is right.
pub fn check_name(output: &Path, own: &[&str]) -> Result<(), Failure> {
    let extension = output.extension().unwrap_or_default();
    let is_among = |all: &[&str]| all.iter().any(|known| extension.eq_ignore_ascii_case(known));
    if is_among(own) || !is_among(&KNOWN) {
        return Ok(());
    }
    let (path, right) = (printable_path(output), printable_path(&output.with_extension(own[0])));
    let all = own.iter().map(|own| format!(".{own}")).collect::<Vec<_>>().join(", ");
    Err(Failure::Usage(format!(
        "{path}: the name says another format than the file would have ({all}); call it {right}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_format_or_none() {
        let said = |name: &str, own: &[&str]| check_name(Path::new(name), own).err().map(|failure| failure.message());
        for name in ["a.npz", "a.NPZ", "a", "a.run7", "run.npy/a", "a.", ".npy"] {
            assert_eq!(said(name, &["npz"]), None, "{name}");
        }
        for name in ["a.npy", "a.csv", "a.H5", "a.hdf5", "a.npz.txt", "a.png"] {
            assert!(said(name, &["npz"]).is_some_and(|text| text.contains("(.npz); call it a.")), "{name}");
        }
        assert_eq!(said("a.hdf5", &["npz", "hdf5", "h5"]), None);
        let text = said("b/a.txt", &["npz", "hdf5", "h5"]).unwrap();
        assert!(text.contains("b/a.txt: ") && text.ends_with("(.npz, .hdf5, .h5); call it b/a.npz"), "{text}");
    }
}
