//! The cosmology layer against values computed elsewhere, and a whole run in `f64` planned by it.

use std::f64::consts::PI;

use meshloom::cosmology::{
    A_MIN, Cosmology, DriftKickDrift, Growth, GrowthFactors, Halofit, LinearPower, LptOrder, Parameters, PowerTable,
    Scheme, StepOp, TransferFunction, TransferKind, bullfrog_coefficients, mode_amplitudes, resume_from, schedule,
};

use serde_json::Value;

use super::reference_pm::{
    self, Setup, State, Vector, direct_force, displacements, execute, linear_density, power_spectrum, rms, start, white,
};

/// Equal up to the relative error `tolerance`, which at each use is what the printed digits leave
/// open.
#[track_caller]
fn assert_close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance * expected.abs(), "found {found}, expected {expected}");
}

/// Equal up to half a unit in the last of twelve decimals, and rounding.
#[track_caller]
fn assert_vector(found: Vector, expected: Vector) {
    for (found, expected) in found.into_iter().zip(expected) {
        assert!((found - expected).abs() < 2e-12, "found {found}, expected {expected}");
    }
}

fn power(cosmology: Cosmology) -> LinearPower {
    LinearPower::new(cosmology, TransferKind::Full).unwrap()
}

#[test]
fn growth_is_the_tabulated() {
    // a, then D1, f1, D2, f2 of `simple` and of `planck18`.
    #[rustfmt::skip]
    let table = [
        (1.0 / 64.0, [0.0156249747133, 0.9999951449636, 1.0463136428021e-4, 1.999990476659],
                     [0.0156249760022, 0.9999953924291, 1.0463138121013e-4, 1.9999909620721]),
        (0.1,        [0.099957622275, 0.9987295233953, 4.2821524756179e-3, 1.9975078932305],
                     [0.0999597800717, 0.9987941724523, 4.2823338020556e-3, 1.9976347066328]),
        (0.2,        [0.1993271079172, 0.9899602868635, 1.7029902306706e-2, 1.9803055833434],
                     [0.1993611238752, 0.9904652494177, 1.7035603756666e-2, 1.9812961982726]),
        (0.25,       [0.2483706198079, 0.9806479055596, 2.6444330029776e-2, 1.9620358866678],
                     [0.2484523533008, 0.9816091864687, 2.6461404419690e-2, 1.9639218888847]),
        (0.5,        [0.4765850677723, 0.869285121185, 9.7518849103966e-2, 1.7433893918684],
                     [0.4776494583824, 0.874829159383, 9.7946862565522e-2, 1.7542822766046]),
        (2.0 / 3.0,  [0.6022934385195, 0.7492206967146, 0.15604918842425, 1.5072488175916],
                     [0.6048867395173, 0.7579992775574, 0.15737209158418, 1.524531252288]),
        (1.0,        [0.7789810167708, 0.5127962477302, 0.26230652082266, 1.0404478314195],
                     [0.7855549044941, 0.5234144697786, 0.26668382912672, 1.0614814874413]),
    ];
    let (simple, planck18) = (Growth::new(Cosmology::simple()), Growth::new(Cosmology::planck18_primordial()));
    for (a, of_simple, of_planck18) in table {
        for (growth, expected) in [(&simple, of_simple), (&planck18, of_planck18)] {
            let g = growth.at(a).unwrap();
            for (found, expected) in [g.d1, g.f1(), g.d2, g.f2()].into_iter().zip(expected) {
                assert_close(found, expected, 5e-12); // Twelve digits are printed at the earliest.
            }
        }
    }
    let (simple, planck18) = (simple.at(0.5).unwrap(), planck18.at(0.5).unwrap());
    assert_close(simple.acceleration(), 0.2144632804975, 1e-12);
    assert_close(planck18.acceleration(), 0.2228951197541, 1e-12);
    assert_close(simple.momentum(), 0.1823574593452, 1e-12);
    assert_close(planck18.momentum(), 0.1862211462695, 1e-12);
}

#[test]
fn transfer_and_power_are_the_tabulated() {
    // k, then T, T without wiggles and P(a = 1) of `simple` and of `planck18`.
    #[rustfmt::skip]
    let table = [
        (0.001, [0.99225322092254, 0.99207906235253, 4017.6646474341], [0.99229043880677, 0.99211147484074, 3894.1680482406]),
        (0.01, [0.77987401576243, 0.78616425474195, 22634.846309564], [0.78086608213694, 0.78686083210155, 22324.934524192]),
        (0.02, [0.58124389583871, 0.58344935960600, 24458.749816638], [0.58414967166868, 0.58655478714007, 24413.544660275]),
        (0.05, [0.26769765654202, 0.27496000847297, 12503.424952404], [0.27223701996112, 0.27951246384711, 12855.410496129]),
        (0.1, [0.12860762188228, 0.13125697662671, 5613.8662864967], [0.13187018671579, 0.13409957108244, 5894.2739631633]),
        (0.2, [0.054104288953258, 0.053668828367888, 1932.7729215069], [0.055408958093423, 0.055039600652611, 2033.4923080353]),
        (0.5, [0.013817715456977, 0.013809424947798, 303.81719055025], [0.014201318154934, 0.014206816020633, 323.85372670239]),
        (1.0, [0.0045878672567824, 0.0045560659266302, 65.155388154516], [0.0047222556753555, 0.0046938266712921, 69.973898390093]),
        (10.0, [8.7767695713555e-5, 8.6769602732928e-5, 0.21746934261698], [9.0550297036924e-5, 8.9638966966721e-5, 0.23818633073678]),
    ];
    for (cosmology, which) in [(Cosmology::simple(), 0), (Cosmology::planck18_primordial(), 1)] {
        let full = power(cosmology);
        let transfer = |kind| TransferFunction::new(&cosmology, kind).unwrap();
        let [with_wiggles, smooth] = [TransferKind::Full, TransferKind::NoWiggle].map(transfer);
        for (k, of_simple, of_planck18) in table {
            let [t, t_smooth, p] = [of_simple, of_planck18][which];
            assert_close(with_wiggles.at(k), t, 1e-12);
            assert_close(smooth.at(k), t_smooth, 1e-12);
            assert_close(full.at(k, 1.0).unwrap(), p, 1e-11);
        }
    }
    assert_close(power(Cosmology::simple()).sigma8(), 0.8121117619806889, 1e-9);
    assert_close(power(Cosmology::planck18_primordial()).sigma8(), 0.8316117340556681, 1e-9);
}

/// Coefficients of FastPM as drift, kick and drift, which are exact to first order only.
fn fastpm_coefficients(begin: &GrowthFactors, end: &GrowthFactors) -> DriftKickDrift {
    let half_drift = 0.5 * (end.d1 - begin.d1);
    let alpha = begin.momentum() / end.momentum();
    DriftKickDrift { alpha, beta: (1.0 - alpha) / (begin.d1 + half_drift), half_drift }
}

#[test]
fn step_coefficients_are_the_tabulated() {
    let growth = Growth::new(Cosmology::simple());
    let epochs = [0.1, 0.4, 0.7, 1.0].map(|a| growth.at(a).unwrap());
    let half_drift = [0.1449410271, 0.1172464875, 0.0773241826];
    let bullfrog = ([-0.0962065329, 0.4552921514, 0.6903178343], [4.4761640604, 1.0741918971, 0.44135844]);
    let fastpm = ([0.129021833, 0.4829209234, 0.6955359405], [3.5564841583, 1.0197065376, 0.4339216048]);
    for (i, pair) in epochs.windows(2).enumerate() {
        let check = |found: DriftKickDrift, (alpha, beta): ([f64; 3], [f64; 3])| {
            // Ten decimals are printed.
            assert!((found.alpha - alpha[i]).abs() < 1e-10, "{found:?}");
            assert!((found.beta - beta[i]).abs() < 1e-10, "{found:?}");
            assert!((found.half_drift - half_drift[i]).abs() < 1e-10, "{found:?}");
        };
        check(bullfrog_coefficients(&pair[0], &pair[1]), bullfrog);
        check(fastpm_coefficients(&pair[0], &pair[1]), fastpm);
    }
}

const GOLDEN: Setup = Setup { particles: 16, mesh: 32, box_size: 64.0, omega_m: 0.3 };
/// Particle (1, 2, 3).
const ROW: usize = 291;

fn golden_displacements(power: &LinearPower) -> [Vec<Vector>; 5] {
    let delta = linear_density(power, &white(4096, 0), 16, 64.0);
    assert_close((delta.iter().map(|d| d * d).sum::<f64>() / 4096.0).sqrt(), 2.261666510797206, 1e-11);
    assert_close(delta.iter().copied().fold(f64::MIN, f64::max), 7.631063348404355, 1e-11);
    assert_close(delta[ROW], 1.6792064281686943, 1e-11);
    displacements(&delta, 16, 64.0)
}

#[test]
fn golden_noise() {
    let noise = white(4096, 0);
    assert_vector([noise[0], noise[1], noise[2]], [-0.452757740217, 2.65060581208, -0.988604124624]);
    assert_close(noise.iter().sum::<f64>() / 4096.0, 0.020882065277409045, 1e-12);
    assert_close(noise.iter().map(|x| x * x).sum(), 4093.7151133383013, 1e-13);
}

#[test]
fn golden_run_by_fastpm() {
    let power = power(Cosmology::simple());
    let growth = power.growth();
    let fields = golden_displacements(&power);
    let [s1, s2, ..] = &fields;
    assert_close(rms(s1), 4.1286331053052026, 1e-11);
    assert_close(rms(s2), 2.6966806028816137, 1e-11);
    // Displacements are a few Mpc/h and printed to twelve decimals.
    let near = |found: Vector, expected: Vector| {
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-10, "found {found}, expected {expected}");
        }
    };
    near(s1[ROW], [3.221428151409, -0.909995267526, 6.020957348275]);
    near(s2[ROW], [0.697246597699, 0.259160149073, 4.418810975291]);

    let ops = schedule(growth, Scheme::FastPm, 0.0625, 1.0, 8, &[]).unwrap();
    let factors: Vec<f64> = ops
        .iter()
        .filter_map(|op| match op {
            StepOp::Kick { factor, keep } => {
                assert_eq!(*keep, 1.0);
                Some(*factor)
            }
            StepOp::Drift { factor } => Some(*factor),
            _ => None,
        })
        .collect();
    assert_eq!(factors.len(), 24);
    for (found, expected) in factors[..3].iter().zip([0.5156675039645642, 5.063359062677159, 0.22976377332648154]) {
        assert_close(*found, expected, 1e-10);
    }
    for (found, expected) in factors[21..].iter().zip([0.06857932227965963, 0.13664681359885758, 0.0603906868159881]) {
        assert_close(*found, expected, 1e-10);
    }

    let mut state = start(&fields, &growth.at(0.0625).unwrap(), LptOrder::Second);
    assert_close(rms(&state.s), 0.2579211699262733, 1e-10);
    assert_close(rms(&state.p), 0.03531465632632236, 1e-10);
    let acc = GOLDEN.acceleration(&GOLDEN.positions(&state.s));
    assert_close(rms(&acc), 0.14032586140656095, 1e-10);
    near(acc[ROW], [0.059026146523, 0.011383679756, 0.158096790667]);

    let mut epochs = 0;
    GOLDEN.run(&mut state, &ops, |_, step, _| {
        assert_eq!(step, epochs);
        epochs += 1;
    });
    assert_eq!(epochs, 9);
    // Eight nonlinear steps magnify the growth table's 1e-12 by the order of 10.
    assert_close(rms(&state.s), 3.458670241931207, 1e-10);
    assert_close(rms(&state.p), 1.893310557760896, 1e-10);
    near(state.s[ROW], [1.146031195129, 0.747179460553, 6.640848396341]);
    near(state.p[ROW], [0.732712019775, 2.231663574163, 4.132019313376]);

    let density = GOLDEN.paint(&GOLDEN.positions(&state.s));
    let cells = density.len() as f64;
    assert_close(density.iter().sum::<f64>() / cells, 1.0, 1e-13);
    assert_close(density.iter().map(|d| (d - 1.0).powi(2)).sum::<f64>() / cells, 9.679910766286678, 1e-9);
    assert_close(density.iter().copied().fold(f64::MIN, f64::max), 146.49250324440922, 1e-9);

    let expected = [
        (0.12528498, 3192.7727659, 18),
        (0.21900858, 1761.7352812, 62),
        (0.30769536, 940.5818373, 98),
        (0.39864649, 690.2700920, 210),
        (0.50045405, 458.8464261, 350),
        (0.60101890, 293.9044631, 450),
        (0.69426677, 262.7802796, 602),
        (0.78786022, 222.1996740, 762),
    ];
    for (bin, (k, p, modes)) in power_spectrum(&density, 32, 64.0, 8).iter().zip(expected) {
        assert_close(bin.k, k, 5e-8);
        assert_close(bin.power, p, 1e-9);
        assert_eq!(bin.modes, modes);
    }
}

#[test]
fn an_interrupted_run_ends_in_the_same_bits() {
    let power = power(Cosmology::simple());
    let fields = golden_displacements(&power);
    for scheme in [Scheme::FastPm, Scheme::BullFrog] {
        let ops = schedule(power.growth(), scheme, 0.0625, 0.5, 2, &[0.4]).unwrap();
        let mut whole = start(&fields, &power.growth().at(0.0625).unwrap(), LptOrder::Second);
        let mut stored = None;
        GOLDEN.run(&mut whole, &ops, |a, step, state| {
            if a == 0.4 {
                stored = Some((step, state.clone()));
            }
        });
        let (step, mut resumed) = stored.unwrap();
        resumed.acc.fill([f64::NAN; 3]); // Accelerations are not stored.
        GOLDEN.run(&mut resumed, &resume_from(&ops, step).unwrap(), |_, _, _| {});
        assert_eq!((resumed.s, resumed.p), (whole.s, whole.p));
    }
}

#[test]
fn a_single_plane_wave_stays_on_its_exact_trajectory() {
    // In one dimension, until sheets cross, a sheet's acceleration is 3/2 Omega_m times its
    // displacement: each sheet has as much matter on either side as it began with. So Zel'dovich's
    // solution is exact, and so are both schemes.
    let cosmology = Cosmology::planck18_primordial();
    let growth = Growth::new(cosmology);
    let (first, last) = (growth.at(0.02).unwrap(), growth.at(1.0).unwrap());
    let sheets = 64;
    let wave = |i: usize| -1.2 / (2.0 * PI) * (2.0 * PI * i as f64 / sheets as f64).sin();
    let force = |s: &[Vector]| s.iter().map(|s| s.map(|s| 1.5 * cosmology.omega_m() * s)).collect();
    for scheme in [Scheme::FastPm, Scheme::BullFrog] {
        for steps in [1, 3, 10] {
            let rows = |factor: f64| (0..sheets).map(|i| [factor * wave(i), 0.0, 0.0]).collect::<Vec<_>>();
            let mut state = State { s: rows(first.d1), p: rows(first.momentum()), acc: vec![[f64::NAN; 3]; sheets] };
            let ops = schedule(&growth, scheme, 0.02, 1.0, steps, &[0.3]).unwrap();
            execute(&mut state, &ops, force, |a, _, state| {
                let growth = growth.at(a).unwrap();
                for i in 0..sheets {
                    assert!((state.s[i][0] - growth.d1 * wave(i)).abs() < 1e-12 * last.d1);
                    assert!((state.p[i][0] - growth.momentum() * wave(i)).abs() < 1e-12 * last.d1);
                }
            });
        }
    }
}

#[test]
fn bullfrog_is_exact_to_second_order_and_fastpm_is_not() {
    // Three crossing waves on a box of side 2 pi, one step from almost nothing to today. Forces are
    // summed directly over modes up to 3 an axis, so no mesh can err.
    let growth = Growth::new(Cosmology::simple());
    let (begin, end) = (growth.at(A_MIN).unwrap(), growth.at(1.0).unwrap());
    let n = 8;
    let setup = Setup { particles: n, mesh: n, box_size: 2.0 * PI, omega_m: 0.3 };
    let grid = setup.positions(&vec![[0.0; 3]; n * n * n]);
    // The error of the final dx/dD over its second-order part.
    let error = |amplitude: f64, step: DriftKickDrift| {
        let wave = |x: &Vector| amplitude * (x[0].cos() + (x[1] + 0.3).cos() + (x[0] + x[2]).cos());
        let delta: Vec<f64> = grid.iter().map(wave).collect();
        let [s1, s2, ..] = displacements(&delta, n, setup.box_size);
        let mut x = grid.clone();
        x.iter_mut().zip(&s1).for_each(|(x, v)| (0..3).for_each(|i| x[i] += step.half_drift * v[i]));
        let a = direct_force(&x);
        let second = end.d2_prime / end.d1_prime;
        let missed: Vec<Vector> = (0..x.len())
            .map(|row| {
                std::array::from_fn(|i| {
                    step.alpha * s1[row][i] + step.beta * a[row][i] - s1[row][i] - second * s2[row][i]
                })
            })
            .collect();
        rms(&missed) / (second * rms(&s2))
    };
    let bullfrog = [0.02, 0.04, 0.08].map(|amplitude| error(amplitude, bullfrog_coefficients(&begin, &end)));
    let fastpm = [0.02, 0.04, 0.08].map(|amplitude| error(amplitude, fastpm_coefficients(&begin, &end)));
    println!("BullFrog {bullfrog:?}, FastPM {fastpm:?}");
    // What BullFrog leaves is of third order, so it falls with the amplitude; FastPM's error is of
    // second order.
    assert!(bullfrog[2] < 0.1 && bullfrog[1] < 0.6 * bullfrog[2] && bullfrog[0] < 0.6 * bullfrog[1]);
    assert!(fastpm.iter().all(|e| (0.3..0.6).contains(e)));
}

#[test]
fn amplitude_table_makes_the_reference_field() {
    let power = power(Cosmology::simple());
    let table = mode_amplitudes(&power, 16, 64.0).unwrap();
    let noise = white(4096, 0);
    let modes = reference_pm::forward(&noise, 16);
    let scaled = modes.iter().enumerate().map(|(index, mode)| {
        let m2: i64 = reference_pm::wave_numbers(index, 16).iter().map(|m| m * m).sum();
        mode * f64::from(table[m2 as usize])
    });
    let field = reference_pm::inverse(scaled.collect(), 16);
    let reference = linear_density(&power, &noise, 16, 64.0);
    // Each of 4096 independent amplitudes is rounded by at most 6e-8.
    let rms = 2.261666510797206;
    for (found, expected) in field.iter().zip(reference) {
        assert!((found - expected).abs() < 1e-6 * rms);
    }
}

/// Halofit of CAMB's linear tables against CAMB's own (Takahashi's form): `tests/python/halofit.py`
/// made the numbers.
#[test]
fn halofit_is_that_of_camb() {
    let goldens: Value = serde_json::from_str(include_str!("../goldens/halofit.json")).unwrap();
    let numbers = |value: &Value| -> Vec<f64> { serde_json::from_value(value.clone()).unwrap() };
    let mut compared = 0;
    for case in goldens["cases"].as_array().unwrap() {
        let parameters = ["Omega_m", "Omega_b", "h", "n_s", "w0", "N_eff"].map(|name| case[name].as_f64().unwrap());
        let [omega_m, omega_b, h, n_s, w0, neutrinos] = parameters;
        let cosmology =
            Parameters { omega_m, omega_b, h, n_s, w0, radiation: Some(neutrinos), ..Parameters::default() };
        let rows = numbers(&case["table_k"]).into_iter().zip(numbers(&case["table_P"]));
        let table = PowerTable::parse(&rows.map(|(k, p)| format!("{k} {p}\n")).collect::<String>()).unwrap();
        let power = LinearPower::tabulated(Cosmology::new(cosmology).unwrap(), table).unwrap();
        for epoch in case["epochs"].as_array().unwrap() {
            let a = 1.0 / (1.0 + epoch["z"].as_f64().unwrap());
            let halofit = Halofit::new(&power, a).unwrap();
            let expected = numbers(&epoch["linear"]).into_iter().zip(numbers(&epoch["nonlinear"]));
            for (k, (linear, nonlinear)) in numbers(&case["k"]).into_iter().zip(expected) {
                // The table's growth is that of matter alone; in CAMB dark energy (w > -1) and
                // radiation have a little contrast.
                assert_close(power.at(k, a).unwrap(), linear, 3e-3);
                // With that: Delta^2 grows by up to the 1.5th power of the linear one. And CAMB
                // ends its search for k_sigma at 1e-3 in sigma, on which the halo term depends by
                // up to the third power.
                assert_close(halofit.at(k), nonlinear, 1e-2);
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 72);
}
