//! Identifiers of this host.

use std::fs;

use crate::hash::{START, fnv1a};

/// The host's name; `None` where the system does not have one.
pub(crate) fn name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_owned())
}

/// A hash of the host's name; `None` where the system does not have one.
pub(crate) fn number() -> Option<u64> {
    name().map(|name| fnv1a(START, name.as_bytes()))
}

/// A hash of the host's name and its last start: processes with the same number surely see each other's file locks, even
/// where several hosts have one name.
pub(crate) fn kernel() -> Option<u64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    number().map(|host| fnv1a(host, boot.trim().as_bytes()))
}
