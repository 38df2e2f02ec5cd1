//! Whether all ranks are about to run the same simulation.

use std::fmt::Debug;

use super::config::Config;
use super::error::SimulationError;
use crate::comm::Communicator;
use crate::hash::{START, fnv1a};

/// The hash of a parameter. Reals are told apart by their shortest decimals, which no two share.
fn hash(value: &dyn Debug) -> u64 {
    fnv1a(START, format!("{value:?}").as_bytes())
}

/// All parameters of a run by name, as the program calls them.
fn parameters(config: &Config) -> [(&'static str, u64); 17] {
    // By name, so that none is forgotten.
    let Config { particles, mesh, box_size, cosmology, power_table, seed, noise_by, lpt, a_start, .. } = config;
    let Config { a_end, steps, scheme, window, gradient, laplacian, snapshots, grid, .. } = config;
    [
        ("particles", hash(particles)),
        ("mesh", hash(mesh)),
        ("box", hash(box_size)),
        ("cosmology", hash(cosmology)),
        ("table of the linear power", hash(power_table)),
        ("seed", hash(seed)),
        ("function of the noise", hash(noise_by)),
        ("order of perturbation theory", hash(lpt)),
        ("scale factor of the start", hash(a_start)),
        ("scale factor of the end", hash(a_end)),
        ("steps", hash(steps)),
        ("scheme", hash(scheme)),
        ("window", hash(window)),
        ("gradient", hash(gradient)),
        ("Laplacian", hash(laplacian)),
        ("snapshots", hash(snapshots)),
        ("grid", hash(grid)),
    ]
}

/// Fails on all ranks if they have different parameters, or begin differently, as `start` says: they would make a run of no parameters at
/// all, or wait for each other. One all-gather of 144 bytes a rank. All ranks call it, first of all.
///
/// # Errors
/// [`SimulationError::Differ`].
pub(super) fn agree(comm: &Communicator, config: &Config, start: &dyn Debug) -> Result<(), SimulationError> {
    let mine: Vec<_> = parameters(config).into_iter().chain([("start", hash(start))]).collect();
    let all = comm.all_gather(&mine.iter().map(|(_, hash)| *hash).collect::<Vec<u64>>())?;
    let (first, others) = all.split_at(mine.len());
    for (rank, theirs) in (1..).zip(others.chunks_exact(mine.len())) {
        if let Some(at) = theirs.iter().zip(first).position(|(theirs, first)| theirs != first) {
            return Err(SimulationError::Differ { rank, what: mine[at].0 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;
    use crate::cosmology::Cosmology;

    #[test]
    fn what_differs_is_named_on_all_ranks() {
        let usual = Config::default;
        let others: [(&str, Config); 5] = [
            ("seed", Config { seed: 2, ..usual() }),
            ("box", Config { box_size: 128.0f64.next_up(), ..usual() }),
            ("snapshots", Config { snapshots: vec![0.5], ..usual() }),
            ("cosmology", Config { cosmology: Cosmology::planck18_primordial(), ..usual() }),
            ("grid", Config { grid: Some([3, 1]), ..usual() }),
        ];
        for (what, other) in &others {
            run_threads(3, |comm| {
                let config = if comm.rank() == 2 { other.clone() } else { usual() };
                let error = agree(&comm, &config, &"noise").unwrap_err();
                assert!(matches!(error, SimulationError::Differ { rank: 2, what: named } if named == *what), "{error}");
                agree(&comm, &usual(), &0)?;
                let error = agree(&comm, &usual(), &comm.rank()).unwrap_err();
                assert!(matches!(error, SimulationError::Differ { rank: 1, what: "start" }), "{error}");
                Ok::<_, SimulationError>(())
            })
            .unwrap();
        }
    }
}
