//! A run against what the field knows of power and halos.
#![cfg(feature = "cli")]

#[path = "shared/cli.rs"]
mod cli;
#[path = "shared/halofit.rs"]
mod halofit;

use std::path::Path;

use cli::{Call, Scratch};
use halofit::Halofit;
use meshloom::cosmology::{Cosmology, Growth, LinearPower, TransferKind};

/// The columns of a table by row.
fn table(path: &Path) -> Vec<Vec<f64>> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(|word| word.parse().unwrap()).collect()).collect()
}

fn power() -> LinearPower {
    LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap()
}

#[test]
fn the_fit_has_its_limits_and_a_known_strength() {
    let power = power();
    let fit = Halofit::new(|k| power.unit(k) * power.growth().at(1.0).unwrap().d1.powi(2), 0.3111);
    // Where fluctuations are small it is linear theory; the nonlinear scale of sigma_8 = 0.81 is near 0.3 h/Mpc with an index of -1.7 to -1.4.
    assert!((fit.boost(0.001) - 1.0).abs() < 1e-2, "{}", fit.boost(0.001));
    assert!((0.2..0.4).contains(&fit.k_sigma) && (-1.8..-1.3).contains(&fit.index), "{} {}", fit.k_sigma, fit.index);
    assert!(fit.boost(1.0) > 4.0 && fit.boost(1.0) < 12.0, "{}", fit.boost(1.0));
}

#[test]
fn power_and_halos_of_a_run_are_those_of_the_field() {
    let scratch = Scratch::new();
    let out = scratch.join("run");
    let (side, count, epochs) = (64.0, 48u64, ["0.0625", "0.5", "0.6667", "1"]);
    let words = "--particles 48 --mesh 96 --box 64 --steps 12 --linking-parameter 0.2 --snapshots 0.0625,0.5,0.6667,1";
    Call::simulate(&out, &words.split(' ').collect::<Vec<_>>()).succeeds();

    // The start has the linear spectrum of its modes: the run's power today over that, grown, is free of most of the sample's variance.
    let growth = Growth::new(Cosmology::planck18());
    let grown = (growth.at(1.0).unwrap().d1 / growth.at(0.0625).unwrap().d1).powi(2);
    let power = power();
    let fit = Halofit::new(|k| power.unit(k) * power.growth().at(1.0).unwrap().d1.powi(2), 0.3111);
    let [start, end] = ["snapshot_0.0625/", "snapshot_1/"].map(|at| table(&out.join(at).join("power_spectrum.csv")));
    for (low, high) in [(0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0)] {
        let (mut found, mut wanted, mut modes) = (0.0, 0.0, 0.0);
        for (first, last) in start.iter().zip(&end).filter(|(row, _)| (low..high).contains(&row[0])) {
            let linear = first[1] * grown;
            (found, wanted, modes) =
                (found + last[1] * last[2], wanted + linear * fit.boost(last[0]) * last[2], modes + last[2]);
        }
        println!("P({low}-{high}) / fit {:.3}, {modes} modes", found / wanted);
        // The fit is good to 5 %, the mesh (a cell of 0.67 Mpc/h, CIC twice) takes up to 20 % at k = 1, and the box lacks modes below 0.1.
        assert!((found / wanted - 1.0).abs() < 0.25, "{low}-{high}: {}", found / wanted);
    }

    // Groups of 100 members and more against Sheth & Tormen, at three times.
    let particle = Cosmology::planck18().particle_mass(side, count.pow(3));
    for epoch in &epochs[1..] {
        let rows = table(&out.join(format!("snapshot_{epoch}/mass_function.csv")));
        let heavy = rows.iter().filter(|row| row[0] >= 99.0 * particle);
        let (mut found, mut wanted) = (0.0, 0.0);
        for row in heavy {
            found += row[3];
            wanted += row[6] * side.powi(3) * (row[1] / row[0]).ln();
        }
        let (ratio, scatter) = (found / wanted, 2.0 / wanted.sqrt());
        println!("a = {epoch}: {found} halos, {wanted:.1} expected");
        assert!(
            wanted > 5.0 && ratio < 1.5 * (1.0 + scatter) && ratio > (1.0 - scatter) / 1.5,
            "{epoch}: {found} {wanted}"
        );
    }
}
