//! Light cones of runs: against a count on the host, against the states at the ends of steps, on
//! other numbers of ranks, and resumed.

use std::collections::BTreeMap;

use meshloom::cosmology::Scheme;
use meshloom::pm::{Cone, ConeParticle, ConeParticles, Config, LightCone, Noise, Opening, Simulation};
use meshloom::{Error, Launch, launch};

fn config() -> Config {
    Config { particles: 6, mesh: 6, box_size: 90.0, a_start: 0.6, steps: 5, ..Config::default() }
}

fn cone() -> Cone {
    Cone { observer: [12.5, 90.0, 40.1], distance: 300.0, opening: None }
}

/// The cone of a run, in its order, and the displacements at all ends of steps, in Lagrangian
/// order.
struct Seen {
    particles: Vec<ConeParticle>,
    states: Vec<(f64, Vec<[f32; 3]>)>,
}

fn see(ranks: usize, config: &Config, cone: &Cone, noise: Option<f32>) -> Seen {
    let parts = launch(Launch::Threads(ranks), &meshloom_sanitizer::options().unwrap(), |context| {
        let rows = config.rows(ranks, context.comm.rank())?.count() as u64 * config.particles;
        let values = noise.map(|value| vec![value; rows as usize]);
        let noise = values.as_deref().map_or(Noise::Seed, Noise::Values);
        let mut simulation = Simulation::new(context, config.clone(), noise)?;
        let mut light = LightCone::new(config, cone.clone())?;
        let mut states = Vec::new();
        simulation.run(context, |simulation, context, reached| {
            light.advance(context, simulation)?;
            states.push((reached.a, simulation.phase_space(context)?[0].clone()));
            // A second call at the same moment finds nothing new.
            Ok::<_, Error>(light.advance(context, simulation)?)
        })?;
        let own: Vec<u64> = simulation.rows().collect();
        Ok::<_, Error>((own, light.particles(context)?, states))
    })
    .unwrap();
    let (n, steps) = (config.particles, parts[0].2.len());
    let mut states: Vec<_> = (0..steps).map(|i| (parts[0].2[i].0, vec![[0.0; 3]; (n * n * n) as usize])).collect();
    let mut particles = Vec::new();
    for (own, part, mine) in parts {
        assert_eq!(part.first(), particles.len() as u64);
        particles.extend(part.iter());
        for (all, (_, mine)) in states.iter_mut().zip(mine) {
            for (r, row) in own.iter().enumerate() {
                for k in 0..n as usize {
                    all.1[*row as usize + k] = [0, 1, 2].map(|axis| mine[3 * (r * n as usize + k) + axis]);
                }
            }
        }
    }
    Seen { particles, states }
}

fn length(v: [f64; 3]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// All replicas that a cone of `distance` and displacements of some sides can touch, with the sites
/// of each.
fn places(config: &Config, cone: &Cone, distance: f64) -> Vec<(u64, [i32; 3], [f64; 3])> {
    let (n, most) = (config.particles as i64, (distance / config.box_size) as i32 + 2);
    let spacing = config.box_size / n as f64;
    let mut all = Vec::new();
    for image in (-most..=most).flat_map(|i| (-most..=most).flat_map(move |j| (-most..=most).map(move |k| [i, j, k]))) {
        for site in 0..n * n * n {
            let place = [site / n / n, site / n % n, site % n];
            let from = std::array::from_fn(|axis| {
                (place[axis] + n * i64::from(image[axis])) as f64 * spacing - cone.observer[axis]
            });
            all.push((site as u64, image, from));
        }
    }
    all
}

/// Particles that never move: which cross, where and when follows from their sites.
#[test]
fn particles_at_rest_are_counted_by_the_host() {
    let opening = Some(Opening { direction: [1.0, -2.0, 0.4], angle: 50.0 });
    for (scheme, a_end, opening) in [(Scheme::BullFrog, 1.0, None), (Scheme::FastPm, 0.95, opening)] {
        let config = Config { scheme, a_end, ..config() };
        let cone = Cone { opening, ..cone() };
        let seen = see(2, &config, &cone, Some(0.0));
        let near = config.cosmology.comoving_distance(a_end).unwrap();
        let mut found: BTreeMap<_, _> = seen.particles.iter().map(|p| ((p.id, p.image), p)).collect();
        assert_eq!(found.len(), seen.particles.len(), "none is found twice");
        // Places of up to 300 Mpc/h round once, and so does the distance of the light.
        let rounding = 4.0 * cone.distance * 2f64.powi(-24);
        let mut inside = 0;
        for (id, image, from) in places(&config, &cone, cone.distance) {
            let r = length(from);
            let seen = cone.opening.as_ref().map_or(1.0, |opening| {
                let along: f64 = from.iter().zip(opening.direction).map(|(x, u)| x * u).sum();
                along / length(opening.direction) - opening.angle.to_radians().cos() * r
            });
            let sure = |x: f64| x.abs() > rounding;
            let wanted = r >= near && r < cone.distance && seen >= 0.0;
            let certain = sure(r - near) && sure(r - cone.distance) && sure(seen);
            let Some(particle) = found.remove(&(id, image)) else {
                assert!(!(wanted && certain), "{id} {image:?} at {r}");
                continue;
            };
            inside += 1;
            assert!(wanted || !certain, "{particle:?} at {r}");
            for (got, want) in particle.position.iter().zip(from) {
                assert!((f64::from(*got) - want).abs() <= rounding, "{particle:?} {from:?}");
            }
            assert_eq!(particle.velocity, [0.0; 3]);
            let a = config.cosmology.scale_factor_at(r).unwrap();
            let slope = a * a * config.cosmology.expansion_rate(a) / 2997.92458;
            let error = (f64::from(particle.scale_factor) - a).abs();
            assert!(error <= rounding * slope + 2f64.powi(-23), "{particle:?} {a}");
        }
        assert!(found.is_empty(), "{found:?}");
        // The cells of sites within half a diagonal of the cone's surface may be on either side.
        let (spacing, volume) = (config.box_size / 6.0, cone.volume([near, cone.distance]));
        let half = 0.5 * 3f64.sqrt() * spacing;
        let surface: f64 = [near, cone.distance].map(|r| 4.0 * std::f64::consts::PI * (r + half).powi(2)).iter().sum();
        let sides = if cone.opening.is_some() { 2.0 * std::f64::consts::PI * cone.distance.powi(2) } else { 0.0 };
        let bound = (surface + sides) * 2.0 * half;
        assert!((f64::from(inside) * spacing.powi(3) - volume).abs() < bound, "{inside}");
    }
}

/// An opening of 180 degrees is the whole sky, with what lies exactly behind its middle.
#[test]
fn the_widest_opening_is_the_whole_sky() {
    let places = |opening| {
        let cone = Cone { observer: [15.0, 30.0, 45.0], distance: 120.0, opening };
        let seen = see(1, &config(), &cone, Some(0.0));
        seen.particles.into_iter().map(|particle| (particle.id, particle.image)).collect::<Vec<_>>()
    };
    let whole = places(None);
    assert!(!whole.is_empty());
    for direction in [[1.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-3.0, 1.0, 1.0]] {
        assert!(places(Some(Opening { direction, angle: 180.0 })) == whole, "{direction:?}");
    }
}

/// An evolved run: what crosses in a step is what was within the light at its beginning and is not
/// at its end, by the states at both.
#[test]
fn shells_of_an_evolved_run_are_differences_of_its_states() {
    for scheme in [Scheme::BullFrog, Scheme::FastPm] {
        let config = Config { particles: 8, mesh: 16, box_size: 80.0, scheme, ..config() };
        let cone = Cone { distance: 380.0, observer: [0.0; 3], opening: None };
        let seen = see(1, &config, &cone, None);
        let distance = |a: f64| config.cosmology.comoving_distance(a).unwrap();
        let rounding = 4.0 * cone.distance * 2f64.powi(-24);
        // Replicas within each distance, and those that rounding may put elsewhere.
        let counts: Vec<[i64; 2]> = seen
            .states
            .iter()
            .map(|(a, displacement)| {
                let mut count = [0; 2];
                if distance(*a) > cone.distance {
                    return count;
                }
                for (id, _, from) in places(&config, &cone, cone.distance) {
                    let r = length(std::array::from_fn(|axis| from[axis] + f64::from(displacement[id as usize][axis])));
                    count[0] += i64::from(r < distance(*a));
                    count[1] += i64::from((r - distance(*a)).abs() < rounding);
                }
                count
            })
            .collect();
        let mut whole = 0;
        for (pair, counts) in seen.states.windows(2).zip(counts.windows(2)) {
            let [first, last] = [pair[0].0, pair[1].0];
            if distance(first) > cone.distance {
                continue;
            }
            whole += 1;
            // Scale factors of crossings at a step's very end round to it.
            let of_step = |p: &&ConeParticle| {
                let a = f64::from(p.scale_factor);
                (a - first) > -6e-8 && (a - last) < 6e-8
            };
            let found = seen.particles.iter().filter(of_step).count() as i64;
            let ties: i64 = counts[0][1] + counts[1][1];
            let at_ends = seen
                .particles
                .iter()
                .filter(|p| [first, last].iter().any(|a| (f64::from(p.scale_factor) - a).abs() < 6e-8));
            let slack = ties + at_ends.count() as i64;
            assert!((found - (counts[0][0] - counts[1][0])).abs() <= slack && slack < 5, "{first}: {found} {counts:?}");
        }
        assert!(whole >= 1);
        assert_eq!(counts.last().unwrap()[0], 0, "nothing is within no distance");
        for particle in &seen.particles {
            let r = length(particle.position.map(f64::from));
            let a = f64::from(particle.scale_factor);
            // A unit in the last place of a scale factor is 2998 / (a^2 E) of it away.
            let step = 2f64.powi(-24) * 2997.92458 / (a * a * config.cosmology.expansion_rate(a));
            assert!((r - distance(a.min(1.0))).abs() < rounding + 2.0 * step, "{particle:?} {r} {}", distance(a));
            assert!(length(particle.velocity.map(f64::from)) < 5000.0 && r < cone.distance + rounding);
        }
    }
}

#[test]
fn every_rank_count_gives_the_same_bits() {
    let config = Config { particles: 7, mesh: 8, ..config() };
    let opening = Some(Opening { direction: [0.0, 1.0, 0.0], angle: 110.0 });
    let cone = Cone { opening, ..cone() };
    let alone = see(1, &config, &cone, None).particles;
    let keys: Vec<_> = alone.iter().map(|p| (p.id, p.image)).collect();
    assert!(alone.len() > 1000 && keys.windows(2).all(|pair| pair[0] < pair[1]));
    for ranks in 2..=4 {
        assert!(see(ranks, &config, &cone, None).particles == alone, "{ranks} ranks");
    }
    let grid = Config { grid: Some([2, 2]), ..config };
    assert!(see(4, &grid, &cone, None).particles == alone, "2 x 2");
}

/// A run that is interrupted after a step and resumed on another number of ranks has the same cone.
#[test]
fn a_resumed_run_has_the_same_cone() {
    let path = std::env::temp_dir().join(format!("meshloom-cone-{}.npy", meshloom::io::token()));
    for scheme in [Scheme::BullFrog, Scheme::FastPm] {
        let (config, cone) = (Config { scheme, ..config() }, cone());
        let whole = see(1, &config, &cone, None).particles;
        for stop in [1, 3, 4] {
            let options = meshloom_sanitizer::options().unwrap();
            let state = launch(Launch::Threads(1), &options, |context| {
                let mut simulation = Simulation::new(context, config.clone(), Noise::Seed)?;
                let mut light = LightCone::new(&config, cone.clone())?;
                let mut state = None;
                simulation.run(context, |simulation, context, reached| {
                    light.advance(context, simulation)?;
                    if reached.step == stop {
                        let crossed = light.particles(context)?;
                        crossed.seal(&context.comm, &path)?.publish()?;
                        state = Some((simulation.phase_space(context)?, crossed.fingerprint(&context.comm)?));
                    }
                    Ok::<_, Error>(())
                })?;
                Ok::<_, Error>(state.unwrap())
            })
            .unwrap()
            .remove(0);
            let ranks = 1 + stop % 3;
            let parts = launch(Launch::Threads(ranks), &options, |context| {
                let n = config.particles as usize;
                let rows: Vec<usize> = config.rows(ranks, context.comm.rank())?.map(|row| row as usize).collect();
                let own = |all: &Vec<f32>| -> Vec<f32> {
                    rows.iter().flat_map(|&row| all[3 * row..3 * (row + n)].to_vec()).collect()
                };
                let part = state.0.each_ref().map(own);
                let mut simulation = Simulation::resume(context, config.clone(), stop, &part)?;
                let crossed = ConeParticles::read(&context.comm, &path)?;
                assert_eq!(crossed.fingerprint(&context.comm)?, state.1);
                let mut light = LightCone::resume(&config, cone.clone(), crossed)?;
                simulation.run(context, |simulation, context, _| light.advance(context, simulation))?;
                Ok::<_, Error>(light.particles(context)?.iter().collect::<Vec<_>>())
            })
            .unwrap();
            assert!(parts.concat() == whole, "{scheme:?}, stopped at {stop}");
        }
    }
    std::fs::remove_file(&path).unwrap();
}
