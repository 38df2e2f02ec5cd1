//! The test that `docs/ci.md` shows, as it stands there.

use meshloom::{Error, Launch, gpu::Options, launch};

/// Smooths a constant field on three ranks as threads.
#[test]
fn a_filter_keeps_a_constant() {
    let sums = launch(Launch::Threads(3), &Options::from_env().unwrap(), |rank| {
        let mesh = rank.mesh([12, 10, 8]).build()?;
        let ones = rank.fill(&mesh, |_| 1.0)?;
        let smooth = rank.filter(&ones, |k| (-k.squared()).exp())?;
        Ok::<_, Error>(rank.sum(&smooth)?)
    });
    assert!(sums.unwrap().iter().all(|sum| (sum - 960.0).abs() < 1e-3));
}
