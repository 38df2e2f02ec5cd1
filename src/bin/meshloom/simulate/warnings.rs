//! What is wrong with a run that goes ahead: physics that its numbers spoil. Pure.

use meshloom::cosmology::{CosmologyError, LinearPower};
use meshloom::pm::Config;

/// What the user of this run should know, one sentence each.
///
/// # Errors
/// [`CosmologyError`] of a start out of range.
pub fn warnings(config: &Config, power: &LinearPower) -> Result<Vec<String>, CosmologyError> {
    let Config { particles, mesh, .. } = config;
    let mut said = Vec::new();
    if let Some(wave) = config.false_wave() {
        said.push(format!(
            "--mesh {mesh} is no whole multiple of --particles {particles}: the lattice of particles makes a false wave of {wave} times the fundamental \
             mode, which grows as if it were structure; take --mesh {}",
            2 * particles
        ));
    }
    if config.grows_off_nodes(power)? {
        said.push(format!(
            "particles move by {:.2} cells of the mesh before the first step: with --window cic structure will grow by some 10 % too fast from so little; \
             take --window tsc",
            config.start_displacement(power)?
        ));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshloom::cosmology::{Cosmology, TransferKind};
    use meshloom::mesh::Window;

    #[test]
    fn sound_runs_have_none_and_others_are_told_what_to_take() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        let of = |config: Config| warnings(&config, &power).unwrap();
        assert_eq!(of(Config::default()), [""; 0]);
        let [aliased] = &of(Config { particles: 96, box_size: 960.0, ..Config::default() })[..] else { panic!("one") };
        assert!(aliased.contains("false wave of 32 times") && aliased.contains("--mesh 192"), "{aliased}");
        let large = Config { box_size: 640.0, ..Config::default() };
        let [early] = &of(large.clone())[..] else { panic!("one") };
        assert!(early.contains("0.09 cells") && early.contains("--window tsc"), "{early}");
        assert_eq!(of(Config { window: Window::Tsc, ..large }), [""; 0]);
    }
}
