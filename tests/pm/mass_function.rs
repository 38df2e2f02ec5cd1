//! Halo mass functions against values computed elsewhere, and measured ones against what was drawn
//! from a known one.

use meshloom::cosmology::{Cosmology, CosmologyError, LinearPower, MassBins, Multiplicity, TransferKind};

fn planck18() -> LinearPower {
    LinearPower::new(Cosmology::planck18_primordial(), TransferKind::Full).unwrap()
}

#[track_caller]
fn assert_close(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "found {found}, expected {expected} to {tolerance}");
}

/// z, M in Msun/h, sigma, d ln sigma/d ln M, then dn/dlnM in (h/Mpc)^3 of Press & Schechter, Sheth
/// & Tormen, Tinker at 200 and at 800 times the mean. Spectrum, growth and multiplicities of
/// colossus 1.3 (Diemer 2018) for the same parameters without radiation, at sigma8 = 0.8316117;
/// sigma from its spectrum by a trapezium of 2e6 steps. It takes delta_c = 1.68647 and has further
/// digits of Tinker's table.
#[rustfmt::skip]
const COLOSSUS: [(f64, f64, f64, f64, [f64; 4]); 9] = [
    (0.0, 1e10, 3.841322015, -0.1064345981, [2.923383827e-1, 2.296033819e-1, 2.450242129e-1, 2.441078538e-1]),
    (0.0, 1e12, 2.160508340, -0.1467121673, [5.817508869e-3, 3.941720678e-3, 4.182515543e-3, 3.501608674e-3]),
    (0.0, 1e14, 0.953256100, -0.2152982209, [5.486669698e-5, 4.203841415e-5, 4.943840529e-5, 2.919159228e-5]),
    (0.0, 1e15, 0.547781437, -0.2684930921, [4.979897981e-7, 8.465893388e-7, 8.745588173e-7, 2.475899104e-7]),
    (1.0, 1e10, 2.335680637, -0.1064345981, [4.079419835e-1, 2.802208620e-1, 2.659594595e-1, 2.148958598e-1]),
    (1.0, 1e12, 1.313677290, -0.1467121673, [5.691662286e-3, 3.838103860e-3, 3.808384558e-3, 2.384502196e-3]),
    (1.0, 1e14, 0.579618633, -0.2152982209, [6.261706248e-6, 9.291535979e-6, 8.250726398e-6, 2.172917133e-6]),
    (2.0, 1e12, 0.903597336, -0.1467121673, [3.305312362e-3, 2.629971075e-3, 2.420993287e-3, 1.092148645e-3]),
    (2.0, 1e14, 0.398683799, -0.2152982209, [8.165523794e-8, 4.464116594e-7, 2.291006850e-7, 1.633045091e-8]),
];

#[test]
fn predictions_are_those_of_another_library() {
    let power = planck18();
    for (z, mass, sigma, slope, expected) in COLOSSUS {
        let found = power.mass_variance(mass, 1.0 / (1.0 + z)).unwrap();
        // Its growth is off by up to 2e-5.
        assert_close(found.sigma, sigma, 1e-4);
        assert_close(found.slope, slope, 1e-5);
        let nu = 1.686 / sigma;
        // delta_c differs by 2.8e-4 and sigma by up to 1e-4, so nu by 4e-4, and ln f by nu^2 - 1
        // times that; the A of Sheth and Tormen by 6e-5.
        let collapse = 5e-4 + 4e-4 * nu * nu;
        for (model, expected) in [Multiplicity::PressSchechter, Multiplicity::ShethTormen].iter().zip(expected) {
            assert_close(model.dn_dlnm(&found).unwrap(), expected, collapse);
        }
        // Half a unit in the last digit of A, a, b and c, which is 0.005 and for A 0.0005; sigma
        // enters as 2 c/sigma^2.
        let fit = |turn: f64, slope: f64, amplitude: f64| {
            0.0005 / amplitude
                + 0.005 * (sigma / turn).ln().abs()
                + 0.005 * slope / turn
                + (0.005 + 2.0 * 1.6 * 1e-4) / (sigma * sigma)
                + 1e-4
        };
        let [_, _, at_200, at_800] = expected;
        assert_close(Multiplicity::TINKER_MEAN.dn_dlnm(&found).unwrap(), at_200, fit(2.57, 1.47, 0.186));
        let dense = Multiplicity::Tinker { overdensity: 800.0 };
        assert_close(dense.dn_dlnm(&found).unwrap(), at_800, fit(1.59, 1.87, 0.248));
    }
}

#[test]
fn multiplicities_are_those_of_another_library() {
    // f at sigma = 0.5, 1 and 2 of colossus. The peak height is the same where sigma is in
    // proportion to delta_c.
    let same = 1.686 / 1.68647;
    let press = [0.009110126273381139, 0.32457316572911143, 0.47150594005750446];
    let sheth = [0.020058924325651862, 0.24155149222328925, 0.31601042722587025];
    let watson = [0.02309793902166264, 0.25982127867387095, 0.3056278700010996];
    for (i, sigma) in [0.5, 1.0, 2.0].into_iter().enumerate() {
        assert_close(Multiplicity::PressSchechter.at(sigma * same, 1.0).unwrap(), press[i], 1e-12);
        // Its A is 0.322183, without the papers' rounding: 6e-5.
        assert_close(Multiplicity::ShethTormen.at(sigma * same, 1.0).unwrap(), sheth[i], 1e-4);
        // Friends of friends; the same numbers at every epoch.
        assert_close(Multiplicity::Watson.at(sigma, 0.3).unwrap(), watson[i], 1e-12);
    }
}

#[test]
fn sigma_of_mass_is_sigma_of_radius_and_sigma8() {
    let power = planck18();
    for (radius, a) in [(0.1, 1.0), (8.0, 0.5), (30.0, 0.1)] {
        let mass = power.cosmology().sphere_mass(radius);
        let found = power.mass_variance(mass, a).unwrap();
        // The cube root and the cube round twice.
        assert_close(found.sigma, power.sigma(radius, a).unwrap(), 1e-14);
        assert_close(found.radius, radius, 1e-14);
    }
    let eight = power.mass_variance(power.cosmology().sphere_mass(8.0), 1.0).unwrap();
    assert_close(eight.sigma, power.sigma8(), 1e-14);
    // 4 pi/3 512 (Mpc/h)^3 of 0.3111 times 2.77536627e11.
    assert_close(eight.mass, 1.851_735e14, 1e-6);
}

#[test]
fn expectation_of_a_bin_is_the_integral_over_it() {
    let power = planck18();
    let a = 0.5;
    let bins = MassBins::new(1e11, 20, 100_000, 5).unwrap();
    let [expected] = bins.expected(&power, &[Multiplicity::ShethTormen], a).unwrap();
    assert_eq!(expected.len() + 1, bins.edges().len());
    let mut compared = 0;
    // Down to one halo in (Gpc/h)^3, where the mass function falls by up to e^5 within a bin.
    for (edges, expected) in bins.edges().windows(2).zip(expected).filter(|(_, expected)| *expected > 1e-9) {
        let (steps, width) = (40, (edges[1] / edges[0]).ln());
        // Simpson's rule: with a factor of e^(1/8) a step it errs by (1/8)^4/180, 1.4e-6.
        let sum: f64 = (0..=steps)
            .map(|i| {
                let mass = edges[0] * (width * f64::from(i) / f64::from(steps)).exp();
                let weight = if i == 0 || i == steps { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
                weight * Multiplicity::ShethTormen.dn_dlnm(&power.mass_variance(mass, a).unwrap()).unwrap()
            })
            .sum();
        // Five points of Gauss and Legendre err by 4e-13 5^10 at that slope, 4e-6 of the bin's
        // first value, 2e-5 of its mean.
        assert_close(expected, sum / f64::from(3 * steps), 3e-5);
        compared += 1;
    }
    assert!(compared > 10, "{compared}");
}

/// Returns a number in (0, 1) that depends on nothing but its index (splitmix64).
fn random(index: u64) -> f64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

#[test]
fn halos_drawn_from_a_power_law_give_it_back() {
    // N(>M) = N (M/M0)^-1 in the box: dn/dlnM = N/V M0/M. Masses are whole numbers of particles, as
    // of groups.
    let (count, box_size, particle) = (200_000u64, 50.0, 1e10);
    let lightest = 19.5;
    let masses: Vec<f32> = (0..count).map(|i| ((lightest / random(i)).round().min(9.9e7) * particle) as f32).collect();
    let bins = MassBins::new(particle, 20, 100_000_000, 10).unwrap();
    let found = bins.mass_function(&bins.counts(&masses).unwrap(), box_size).unwrap();
    let volume = 50.0f64.powi(3);
    let mut chi_squared = 0.0;
    let mut full = 0;
    for bin in &found {
        // What lies between the edges exactly; rounding to particles moves nothing over an edge at
        // a half.
        let expected = count as f64 * lightest * particle * (1.0 / bin.mass_low - 1.0 / bin.mass_high);
        assert_close(bin.dn_dlnm * volume * (bin.mass_high / bin.mass_low).ln() + 1.0, bin.count as f64 + 1.0, 1e-12);
        assert_close(bin.error + 1.0, bin.dn_dlnm / (bin.count.max(1) as f64).sqrt() + 1.0, 1e-12);
        if expected > 20.0 {
            chi_squared += (bin.count as f64 - expected).powi(2) / expected;
            full += 1;
        }
    }
    // chi^2 of n bins is n with a scatter of sqrt(2 n): five of them.
    let limit = f64::from(full) + 5.0 * (2.0 * f64::from(full)).sqrt();
    assert!(full > 30 && chi_squared < limit, "{chi_squared} of {full} bins");
    assert_eq!(found.iter().map(|bin| bin.count).sum::<u64>(), count);
}

#[test]
fn bins_follow_from_parameters_and_empty_ones_stay() {
    let bins = MassBins::new(6.9e11, 20, 64 * 64 * 64, 5).unwrap();
    let none = bins.mass_function(&bins.counts(&[]).unwrap(), 128.0).unwrap();
    let some = bins.mass_function(&bins.counts(&[2e13, 1e12]).unwrap(), 128.0).unwrap();
    assert_eq!(none.len(), bins.edges().len() - 1);
    assert!(none.iter().all(|bin| bin.count == 0 && bin.dn_dlnm == 0.0 && bin.error == 0.0));
    for (none, some) in none.iter().zip(&some) {
        assert_eq!((none.mass_low, none.mass_high, none.mass), (some.mass_low, some.mass_high, some.mass));
    }
    // 1e12 is less than 20 particles.
    assert_eq!(some.iter().map(|bin| bin.count).sum::<u64>(), 1);
    for edge in bins.edges() {
        assert!(((edge / 6.9e11).fract() - 0.5).abs() < 1e-6);
    }
}

#[test]
fn impossible_requests_name_what_is_wrong() {
    let power = planck18();
    let bins = MassBins::new(1e11, 20, 1000, 5).unwrap();
    let models = [Multiplicity::Tinker { overdensity: 100.0 }];
    let refused = |error| match error {
        CosmologyError::OutOfRange { quantity, .. } => quantity,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(bins.expected(&power, &models, 1.0).unwrap_err()), "overdensity");
    assert_eq!(refused(bins.expected(&power, &[Multiplicity::ShethTormen], 0.0).unwrap_err()), "a");
    assert_eq!(refused(power.mass_variance(-1.0, 1.0).unwrap_err()), "M");
    assert_eq!(refused(bins.counts(&[f32::NAN]).unwrap_err()), "halo mass");
}
