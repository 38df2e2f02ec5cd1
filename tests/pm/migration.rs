//! Particles that move between ranks: every output has the bits of a run whose particles stay, and
//! ghost cells stay narrow.

use meshloom::cosmology::Scheme;
use meshloom::gpu::Options;
use meshloom::grid::{Cost, Shares};
use meshloom::mesh::{Bin, Window};
use meshloom::pm::{Cone, ConeParticle, Config, LightCone, Migrate, Noise, NoiseBy, Opening, Quantity, Simulation};
use meshloom::{Error, Launch, Rank, launch};

/// Displacements of some cells, so that particles change ranks and come back.
fn config() -> Config {
    let base = Config { noise_by: NoiseBy::Site, scheme: Scheme::FastPm, ..Config::default() };
    Config { particles: 12, mesh: 18, box_size: 24.0, steps: 5, snapshots: vec![0.5], ..base }
}

fn every(steps: usize) -> Migrate {
    Migrate::Every(steps.try_into().unwrap())
}

/// A narrow cone over the last two steps.
fn cone() -> Cone {
    let opening = Opening { direction: [1.0, 0.4, 0.2], angle: 1.0 };
    Cone { observer: [12.0; 3], distance: 900.0, opening: Some(opening) }
}

/// Values that a rank gives to its caller in a run and after it, by the order of all particles.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    /// Displacement, momentum, position and velocity of each particle, at the snapshot and at the
    /// end.
    particles: Vec<f32>,
    accelerations: Vec<f32>,
    density: Vec<f32>,
    power: Vec<Bin>,
    cone: Vec<ConeParticle>,
}

/// Returns what the particles are at a moment, in the order of all.
fn observed(rank: &mut Rank, run: &mut Simulation, seen: &mut Seen) -> Result<(), Error> {
    for quantity in [Quantity::Displacement, Quantity::Momentum, Quantity::Position, Quantity::Velocity] {
        let rows = run.in_order(rank, quantity)?;
        seen.particles.extend(rank.recorder.download(&rows, 0, rows.len())?);
    }
    Ok(())
}

/// Runs on threads; ranks one after the other have the particles in their order. Grids with parts
/// of planes give densities and accelerations in another order, so these are left to slabs.
fn run(options: &Options, shares: Shares, config: &Config) -> (Seen, Vec<Cost>) {
    let is_slabs = config.grid.is_none_or(|[_, columns]| columns == 1);
    let parts = launch(Launch::Threads(shares.ranks()), options, |rank| {
        rank.set_shares(shares)?;
        let (mut seen, mut light) = (Seen::default(), LightCone::new(config, cone())?);
        let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
        simulation.run(rank, |run, rank, reached| {
            // The cone's arrays are more than the floor's bindings where windows are small.
            if !options.floor {
                light.advance(rank, run)?;
            }
            if reached.snapshot { observed(rank, run, &mut seen) } else { Ok(()) }
        })?;
        observed(rank, &mut simulation, &mut seen)?;
        seen.cone = light.particles(rank)?.iter().collect();
        seen.power = simulation.power(rank)?;
        if is_slabs {
            let density = simulation.density(rank)?;
            seen.density = rank.download(&density)?;
            seen.accelerations = simulation.accelerations(rank)?[0].clone();
        }
        Ok::<_, Error>((seen, simulation.cost()))
    });
    let mut all = Seen::default();
    let mut costs = Vec::new();
    // The particles of the snapshot and of the end are each in rank order.
    let mut ends = [Vec::new(), Vec::new()].map(|_: Vec<f32>| vec![Vec::<f32>::new(); 4]);
    for (seen, cost) in parts.unwrap() {
        for (number, quantity) in seen.particles.chunks((seen.particles.len() / 8).max(1)).enumerate() {
            ends[number / 4][number % 4].extend_from_slice(quantity);
        }
        all.accelerations.extend(seen.accelerations);
        all.density.extend(seen.density);
        all.cone.extend(seen.cone);
        all.power = seen.power;
        costs.push(cost);
    }
    all.particles = ends.concat().concat();
    (all, costs)
}

/// Slabs and pencils, unequal shares, ranks without planes, all rules: the same bits.
#[test]
fn particles_that_move_give_the_same_bits() {
    let options = meshloom_sanitizer::options().unwrap();
    let (alone, _) = run(&options, 1.into(), &config());
    assert!(!alone.cone.is_empty() && alone.particles.len() == 8 * 3 * 12usize.pow(3));
    let unequal = Shares::new(&[3.0, 0.5, 2.0]).unwrap();
    for (grid, shares, rules) in [
        ([2, 1], Shares::from(2), [Migrate::Never, every(1), every(3), Migrate::Auto].as_slice()),
        ([3, 1], unequal, &[every(1), Migrate::Auto]),
        ([2, 2], 4.into(), &[every(1), Migrate::Auto]),
        ([1, 3], unequal, &[every(3)]),
        ([8, 1], 8.into(), &[every(1)]),
        // More ranks than planes of cells.
        ([20, 1], 20.into(), &[every(2)]),
    ] {
        for &migrate in rules {
            let (mut seen, _) = run(&options, shares, &Config { grid: Some(grid), migrate, ..config() });
            if seen.density.is_empty() {
                (seen.density, seen.accelerations) = (alone.density.clone(), alone.accelerations.clone());
            }
            assert!(seen.particles == alone.particles, "{grid:?} {migrate}: particles");
            assert!(seen.cone == alone.cone && seen.power == alone.power, "{grid:?} {migrate}");
            assert!(seen.density == alone.density, "{grid:?} {migrate}: density");
            assert!(seen.accelerations == alone.accelerations, "{grid:?} {migrate}: accelerations");
        }
    }
}

/// All windows, both integrators, and a device of few bindings with small windows of arrays, on
/// which kicks come one axis after the other.
#[test]
fn moved_particles_are_read_through_every_window() {
    let options = meshloom_sanitizer::options().unwrap();
    for (window, scheme) in [(Window::Tsc, Scheme::BullFrog), (Window::Pcs, Scheme::FastPm)] {
        let config = Config { window, scheme, steps: 2, snapshots: vec![0.9], ..config() };
        let (alone, _) = run(&options, 1.into(), &config);
        let config = Config { grid: Some([3, 1]), migrate: every(1), ..config };
        assert!(run(&options, 3.into(), &config).0 == alone, "{window}");
        let floor = Options { floor: true, window_bytes: Some(32768), ..options.clone() };
        let without_cone = Seen { cone: Vec::new(), ..alone };
        assert!(run(&floor, 3.into(), &config).0 == without_cone, "{window} on the floor");
    }
}

/// A run that was stopped continues on another number of ranks, with another rule, to the same end;
/// a state that was released or replaced returns to the ranks of its sites.
#[test]
fn a_run_of_moved_particles_is_resumed_on_any_number_of_ranks() {
    let options = meshloom_sanitizer::options().unwrap();
    for scheme in [Scheme::FastPm, Scheme::BullFrog] {
        let config = Config { scheme, ..config() };
        let step = config.step_at(0.5).unwrap().unwrap();
        let slabs = |ranks: usize, migrate: Migrate| Config { grid: Some([ranks, 1]), migrate, ..config.clone() };
        // The state at the snapshot, taken while particles are away, released and brought back.
        let first = slabs(3, every(1));
        let parts = launch(Launch::Threads(3), &options, |rank| {
            let mut middle = Default::default();
            let mut simulation = Simulation::new(rank, first.clone(), Noise::Seed)?;
            simulation.run(rank, |run, rank, reached| {
                if reached.snapshot {
                    middle = run.phase_space(rank)?;
                    run.release(rank)?;
                    run.upload(rank, &middle)?;
                }
                Ok::<_, Error>(())
            })?;
            Ok::<_, Error>((middle, simulation.phase_space(rank)?))
        });
        let (middle, end): (Vec<_>, Vec<_>) = parts.unwrap().into_iter().unzip();
        let joined = |parts: &[[Vec<f32>; 2]], which: usize| -> Vec<f32> {
            parts.iter().flat_map(|part| part[which].clone()).collect()
        };
        let [end, middle] = [&end, &middle].map(|parts| [joined(parts, 0), joined(parts, 1)]);
        for (ranks, migrate) in [(1, Migrate::Never), (2, Migrate::Never), (5, every(1)), (4, Migrate::Auto)] {
            let config = slabs(ranks, migrate);
            let parts = launch(Launch::Threads(ranks), &options, |rank| {
                let lines: Vec<usize> = config.rows(ranks, rank.index())?.map(|line| 3 * line as usize).collect();
                let state = middle.each_ref().map(|all| -> Vec<f32> {
                    lines.iter().flat_map(|&line| all[line..line + 3 * 12].to_vec()).collect()
                });
                let mut simulation = Simulation::resume(rank, config.clone(), step, &state)?;
                simulation.run(rank, |_, _, _| Ok::<_, Error>(()))?;
                Ok::<_, Error>(simulation.phase_space(rank)?)
            });
            let parts = parts.unwrap();
            assert!([joined(&parts, 0), joined(&parts, 1)] == end, "{scheme:?} on {ranks} ranks, {migrate}");
        }
    }
}

/// Ghost cells of particles that stay are as wide as these stray; of particles that move they are
/// as wide as the window. So a run sends less by the automatic rule, never much more than without
/// moves, and as much as before where nothing strays.
#[test]
fn moves_bound_what_ghost_cells_send() {
    let options = meshloom_sanitizer::options().unwrap();
    let sent = |config: &Config, migrate: Migrate| -> u64 {
        let config = Config { grid: Some([4, 1]), migrate, snapshots: Vec::new(), ..config.clone() };
        let parts = launch(Launch::Threads(4), &options, |rank| {
            let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
            let before = simulation.cost();
            simulation.run(rank, |_, _, _| Ok::<_, Error>(()))?;
            Ok::<_, Error>(simulation.cost().since(before).sent_bytes)
        });
        parts.unwrap().iter().sum()
    };
    let strays = Config { particles: 16, mesh: 32, box_size: 48.0, ..config() };
    let [never, always, auto] = [Migrate::Never, every(1), Migrate::Auto].map(|rule| sent(&strays, rule));
    assert!(auto < never * 3 / 4 && always < never * 3 / 4, "{never} {always} {auto}");
    // In a large box particles stay within a cell: moves would cost more than they save.
    let stays = Config { particles: 16, mesh: 16, box_size: 8000.0, ..config() };
    let [never, auto] = [Migrate::Never, Migrate::Auto].map(|rule| sent(&stays, rule));
    assert!(auto <= never, "{never} {auto}");
}
