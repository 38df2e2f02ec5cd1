//! Starts of third order: against an f64 reference, closed forms and runs from an earlier start.

use std::f64::consts::TAU;

use super::reference_pm::{Setup, direct_force, displacements, execute, linear_density, rms, start, white};
use meshloom::cosmology::{Cosmology, Growth, LinearPower, LptOrder, Scheme, TransferKind, lpt_factors, schedule};
use meshloom::pm::{Config, Noise, NoiseBy, Simulation};
use meshloom::{Error, Launch, launch};

const ORDERS: [LptOrder; 3] = [LptOrder::First, LptOrder::Second, LptOrder::Third];

fn config(lpt: LptOrder) -> Config {
    let base = Config { noise_by: NoiseBy::Site, cosmology: Cosmology::simple(), ..Config::default() };
    Config { particles: 8, mesh: 8, box_size: 64.0, a_start: 0.3, steps: 1, lpt, ..base }
}

/// Returns displacements and momenta of the start, gathered in Lagrangian order.
fn particles(ranks: usize, config: &Config, noise: &[f64]) -> [Vec<[f32; 3]>; 2] {
    let n = config.particles as usize;
    let parts = launch(Launch::Threads(ranks), &meshloom_sanitizer::options().unwrap(), |rank| {
        let rows: Vec<u64> = config.rows(ranks, rank.comm.rank())?.collect();
        let own: Vec<f32> = rows.iter().flat_map(|&row| noise[row as usize..][..n].iter().map(|&w| w as f32)).collect();
        let mut run = Simulation::new(rank, config.clone(), Noise::Values(&own))?;
        Ok::<_, Error>((rows, run.phase_space(rank)?))
    })
    .unwrap();
    let mut whole = [0, 1].map(|_| vec![[f32::NAN; 3]; n * n * n]);
    for (rows, state) in parts {
        for (whole, values) in whole.iter_mut().zip(state) {
            for (site, value) in rows.iter().flat_map(|&row| row as usize..row as usize + n).zip(values.chunks(3)) {
                whole[site].copy_from_slice(value);
            }
        }
    }
    whole
}

fn difference(a: &[[f32; 3]], b: &[[f32; 3]]) -> Vec<[f64; 3]> {
    a.iter().zip(b).map(|(a, b)| std::array::from_fn(|i| f64::from(a[i]) - f64::from(b[i]))).collect()
}

/// Root mean square of the difference over that of the truth.
fn error(got: &[[f64; 3]], truth: &[[f64; 3]]) -> f64 {
    let missed: Vec<_> = got.iter().zip(truth).map(|(a, b)| std::array::from_fn(|i| a[i] - b[i])).collect();
    rms(&missed) / rms(truth)
}

/// On random modes the third order adds as much as in f64, with the same bits on three ranks.
#[test]
fn it_is_the_reference_on_random_modes() {
    let noise = white(512, 5);
    let [second, third] = [ORDERS[1], ORDERS[2]].map(|lpt| particles(1, &config(lpt), &noise));
    let of = config(LptOrder::Third);
    let power = LinearPower::new(of.cosmology, TransferKind::Full).unwrap();
    let fields = displacements(&linear_density(&power, &noise, 8, of.box_size), 8, of.box_size);
    let growth = power.growth().at(of.a_start).unwrap();
    let [low, high] = [ORDERS[1], ORDERS[2]].map(|order| start(&fields, &growth, order));
    let less = |high: &[[f64; 3]], low: &[[f64; 3]]| -> Vec<[f64; 3]> {
        high.iter().zip(low).map(|(a, b)| std::array::from_fn(|i| a[i] - b[i])).collect()
    };
    for (found, truth) in [
        (difference(&third[0], &second[0]), less(&high.s, &low.s)),
        (difference(&third[1], &second[1]), less(&high.p, &low.p)),
    ] {
        // Differences of f32 sums that are some ten times larger.
        let error = error(&found, &truth);
        assert!(rms(&truth) > 0.01 * rms(&low.p) && error < 2e-5, "{error:.1e}");
    }
    assert!(particles(3, &of, &noise) == third, "three ranks");
}

/// Returns the displacements along x by three crossed waves, `delta = A (cos x + cos y + cos z)` in
/// units of 1/k, by number: in closed form, in units of A^n / k.
fn crossed([x, y, z]: [f64; 3]) -> [f64; 5] {
    let ([sx, s2x], [cy, cz]) = ([x, 2.0 * x].map(f64::sin), [y, z].map(f64::cos));
    let [c2y, c2z] = [2.0 * y, 2.0 * z].map(f64::cos);
    let transverse = -(s2x * (cy + cz) - 2.0 * sx * (c2y + c2z)) / 20.0;
    let mixed = (-sx - 0.1 * (2.0 * s2x * (cy + cz) + sx * (c2y + c2z)) - 2.0 * sx * cy * cz) / 4.0;
    [-sx, -0.5 * sx * (cy + cz), sx * cy * cz / 3.0, mixed, transverse]
}

#[test]
fn crossed_waves_have_their_closed_form_and_one_wave_has_none() {
    let (n, sites) = (8_usize, 512);
    let phase = |site: usize| [site / (n * n), site / n % n, site % n].map(|i| TAU * i as f64 / n as f64);
    let wave = |waves: usize| -> Vec<f64> {
        (0..sites).map(|site| phase(site)[..waves].iter().map(|x| 0.5 * x.cos()).sum()).collect()
    };
    let [first, third] = [ORDERS[0], ORDERS[2]].map(|lpt| particles(1, &config(lpt), &wave(3))[0].clone());
    let of = config(LptOrder::Third);
    let factors = lpt_factors(&Growth::new(of.cosmology).at(of.a_start).unwrap(), LptOrder::Third).position;
    let unit = of.box_size / TAU;
    // Site (2, 0, 0), where sin x is 1.
    let amplitude = -f64::from(first[2 * n * n][0]) / (unit * factors[0]);
    assert!((0.3..3.0).contains(&(amplitude * factors[0])), "{amplitude}");
    for (site, found) in third.iter().enumerate() {
        let [x, y, z] = phase(site);
        for (found, at) in found.iter().zip([[x, y, z], [y, z, x], [z, x, y]]) {
            let orders = [1, 2, 3, 3, 3].map(|n| amplitude.powi(n));
            let terms = crossed(at).into_iter().zip(factors).zip(orders).map(|((s, factor), power)| s * factor * power);
            let want = unit * terms.sum::<f64>();
            assert!((f64::from(*found) - want).abs() < 1e-5 * unit, "{site}: {found} {want}");
        }
    }
    let [first, third] = [ORDERS[0], ORDERS[2]].map(|lpt| particles(1, &config(lpt), &wave(1))[0].clone());
    assert!(rms(&difference(&third, &first)) < 1e-6 * rms(&difference(&first, &[[0.0; 3]; 512])));
}

/// Displacements approach those of an f64 run that starts when they were a tenth, order by order.
#[test]
fn higher_orders_approach_a_run_from_an_earlier_start() {
    let (growth, setup) =
        (Growth::new(Cosmology::simple()), Setup { particles: 8, mesh: 8, box_size: TAU, omega_m: 0.3 });
    let grid = setup.positions(&vec![[0.0; 3]; 512]);
    let wave = |x: &[f64; 3]| 0.7 * (x[0].cos() + (x[1] + 0.3).cos() + (x[0] + x[2]).cos());
    let delta: Vec<f64> = grid.iter().map(wave).collect();
    let fields = displacements(&delta, 8, TAU);
    let of = |a: f64, order| start(&fields, &growth.at(a).unwrap(), order);
    let mut truth = of(0.03, LptOrder::Third);
    let ops = schedule(&growth, Scheme::BullFrog, 0.03, 0.3, 20, &[]).unwrap();
    let force = |s: &[[f64; 3]]| -> Vec<[f64; 3]> {
        direct_force(&setup.positions(s)).iter().map(|a| a.map(|a| 1.5 * 0.3 * a)).collect()
    };
    execute(&mut truth, &ops, force, |_, _, _| {});
    let [first, second, third] = ORDERS.map(|order| {
        let late = of(0.3, order);
        [error(&late.s, &truth.s), error(&late.p, &truth.p)]
    });
    for i in 0..2 {
        let errors = [first[i], second[i], third[i]];
        println!("{errors:.4?}");
        assert!(second[i] < 0.4 * first[i] && third[i] < 0.4 * second[i], "{errors:.4?}");
    }
}
