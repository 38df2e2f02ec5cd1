//! Which host this is.

use std::fs;

use crate::hash::{START, fnv1a};

/// A number that stands for this host, or none where the system does not say its name.
pub(crate) fn number() -> Option<u64> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| fnv1a(START, name.trim().as_bytes()))
}

/// A number that stands for the running kernel, as far as a lock on a file is seen for sure: hosts may have one name.
pub(crate) fn kernel() -> Option<u64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    number().map(|host| fnv1a(host, boot.trim().as_bytes()))
}
