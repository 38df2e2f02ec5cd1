//! Names of temporary files: hidden, beside the output that they become, and different for each writing.
//!
//! A name is `.<name of the output>.<token>.part`. The [`token`] begins with the host and the time of its last start, by
//! which a later run on this host finds the files that killed runs have left.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::hash::{START, fnv1a};
use crate::host;

/// A short string that no other call has returned, in this or any other process. Rank 0 makes one for each file that ranks
/// write together, and shares it.
pub fn token() -> String {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let host = host::kernel().map(|host| format!("{host:x}-")).unwrap_or_default();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    format!("{host}{:x}-{:x}-{call:x}", std::process::id(), time.as_nanos())
}

/// The path of the temporary file of the output `path`; the same on every rank.
pub(super) fn temporary_name(path: &Path, token: &str) -> PathBuf {
    let mut name = prefix(path);
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.push(format!(".{}.part", token.chars().take(80).map(safe).collect::<String>()));
    path.with_file_name(name)
}

/// What the names of all temporary files of an output begin with: all up to the token.
pub(super) fn prefix(path: &Path) -> OsString {
    let name = path.file_name().unwrap_or_default();
    let mut prefix = OsString::from(".");
    if name.len() <= 120 {
        prefix.push(name);
    } else {
        // A name's length is bounded (255 bytes mostly), so a long one is replaced by its hash.
        prefix.push(format!("{:016x}", fnv1a(START, name.as_encoded_bytes())));
    }
    prefix
}

/// The [`prefix`] of the name of a temporary file that a run on this host has made; `None` for all other names.
#[cfg_attr(not(unix), expect(dead_code))]
pub(super) fn prefix_of<'a>(name: &'a OsStr, host: &str) -> Option<&'a [u8]> {
    let name = name.as_encoded_bytes().strip_suffix(b".part")?;
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let (prefix, token) = (&name[..dot], std::str::from_utf8(&name[dot + 1..]).ok()?);
    let numbers: Vec<&str> = token.split('-').collect();
    let are_hex = numbers.iter().all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_hexdigit()));
    (prefix.len() > 1 && prefix[0] == b'.' && numbers.len() == 4 && are_hex && numbers[0] == host).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ() {
        assert_ne!(token(), token());
    }

    #[test]
    fn the_temporary_is_hidden_beside_the_output_and_bounded() {
        let short = temporary_name(Path::new("a/out.npy"), "12-ab/../x");
        assert_eq!(short, Path::new("a/.out.npy.12-ab____x.part"));
        let long = temporary_name(Path::new(&"x".repeat(250)), &"t".repeat(500));
        assert!(long.as_os_str().len() < 128);
        assert_ne!(long, temporary_name(Path::new(&"y".repeat(250)), &"t".repeat(500)));
    }
}
