//! Identifiers of this host.

use std::fs;

use crate::hash::{START, fnv1a};

/// Returns the host's name; `None` where the system does not have one.
pub(crate) fn name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_owned())
}

/// Returns the number of the batch job that this process belongs to.
pub(crate) fn job() -> Option<String> {
    let variables = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];
    let found = variables.into_iter().find_map(|name| std::env::var(name).ok().filter(|job| !job.trim().is_empty()));
    found.map(|job| job.trim().chars().filter(|c| !c.is_control()).collect())
}

/// Returns a number of this host, which processes compare to find those on the same host.
pub(crate) fn id() -> u64 {
    id_of(boot_id().as_deref(), name().as_deref())
}

/// Returns the boot id tells hosts of one name apart, and is the same in all containers of a host,
/// whatever their names. Systems without one are compared by name; hosts without either count as
/// one.
fn id_of(boot_id: Option<&str>, name: Option<&str>) -> u64 {
    fnv1a(START, boot_id.or(name).unwrap_or_default().as_bytes())
}

/// Returns the number of the last start of the host's kernel.
fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Returns a hash of the host's name and its last start: processes with the same number surely see
/// each other's file locks, even where several hosts have one name.
pub(crate) fn kernel() -> Option<u64> {
    let host = fnv1a(START, name()?.as_bytes());
    Some(fnv1a(host, boot_id().unwrap_or_default().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::id_of;

    #[test]
    fn hosts_are_told_apart_by_their_last_start_not_their_name() {
        let (one, other) = (Some("5f0c6e4e-1"), Some("77aa0b1c-2"));
        assert_ne!(id_of(one, Some("localhost")), id_of(other, Some("localhost")), "two hosts of one name");
        assert_eq!(id_of(one, Some("pod-a")), id_of(one, Some("pod-b")), "two containers of one host");
        assert_ne!(id_of(None, Some("a")), id_of(None, Some("b")));
        assert_eq!(id_of(None, None), id_of(None, None));
    }
}
