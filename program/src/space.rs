//! The space of the points in files, and comparisons of two.

use meshloom::io::printable_path;
use std::path::Path;

use crate::failure::Failure;

/// Space of the points in a file; empty for a bare array.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Space {
    /// Sides of the box, one for each axis; 0 is an open axis.
    pub sides: Option<Vec<f64>>,
    pub scale_factor: Option<f64>,
    /// Densities of matter and of dark energy today over the critical one.
    pub densities: Option<[f64; 2]>,
    /// The Hubble constant in 100 km/s/Mpc.
    pub h: Option<f64>,
    /// Centimeters of a comoving length of 1.
    pub length_unit: Option<f64>,
}

/// A file and what it says.
pub type Said<'a> = (&'a Path, &'a Space);

/// Returns the sides of the box that two files are in, where `--box` does not say them: those that
/// the files say, who must not say different ones.
///
/// # Errors
/// [`Failure::Failed`].
pub fn common_sides(one: Said, other: Said) -> Result<Option<Vec<f64>>, Failure> {
    match (&one.1.sides, &other.1.sides) {
        (Some(sides), Some(others)) if !same(sides, others, ROUNDED) => Err(Failure::Failed(format!(
            "{} has a box of {}, and {} one of {}; two inputs must be in one: give --box if their numbers are",
            printable_path(one.0),
            words(sides),
            printable_path(other.0),
            words(others)
        ))),
        (sides, others) => Ok(sides.clone().or_else(|| others.clone())),
    }
}

/// Returns what two files say differently, by which their numbers may mean something else, each in
/// words for a warning.
pub fn differences(one: Said, other: Said) -> Vec<String> {
    let list = |value: Option<f64>| value.map(|value| vec![value]);
    let compared = [
        ("lengths in units of (cm)", list(one.1.length_unit), list(other.1.length_unit), UNITS),
        ("the scale factor", list(one.1.scale_factor), list(other.1.scale_factor), ROUNDED),
        ("Omega_m and Omega_Lambda", one.1.densities.map(Vec::from), other.1.densities.map(Vec::from), DENSITIES),
        ("h", list(one.1.h), list(other.1.h), ROUNDED),
    ];
    let differ = compared.into_iter().filter_map(|(what, mine, theirs, tolerance)| {
        let (mine, theirs) = (mine?, theirs?);
        (!same(&mine, &theirs, tolerance)).then(|| {
            format!(
                "{} has {what} {}, and {} {}; their numbers are taken as they stand",
                printable_path(one.0),
                words(&mine),
                printable_path(other.0),
                words(&theirs)
            )
        })
    });
    differ.collect()
}

/// Numbers that f32 has rounded.
const ROUNDED: f64 = 1e-6;
/// Units, of which codes have some digits of a megaparsec.
const UNITS: f64 = 1e-3;
/// Densities, of which some codes count radiation to the others.
const DENSITIES: f64 = 1e-3;

fn same(one: &[f64], other: &[f64], tolerance: f64) -> bool {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * a.abs().max(b.abs());
    one.len() == other.len() && one.iter().zip(other).all(near)
}

fn words(numbers: &[f64]) -> String {
    match numbers {
        [first, rest @ ..] if rest.iter().all(|number| number == first) => format!("{first}"),
        many => many.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_are_in_one_space_or_it_is_said() {
        let space = |sides: Option<[f64; 3]>| Space { sides: sides.map(Vec::from), ..Space::default() };
        let common = |one: &Space, other: &Space| {
            common_sides((Path::new("a"), one), (Path::new("b"), other)).map_err(|failure| failure.message())
        };
        let [eight, nine, open, nothing] = [Some([8.0; 3]), Some([9.0, 8.0, 8.0]), Some([0.0; 3]), None].map(space);
        assert_eq!(common(&eight, &space(Some([8.000001; 3]))), Ok(Some(vec![8.0; 3])));
        assert_eq!(
            (common(&eight, &nothing), common(&nothing, &eight)),
            (Ok(Some(vec![8.0; 3])), Ok(Some(vec![8.0; 3])))
        );
        assert_eq!((common(&open, &open), common(&nothing, &nothing)), (Ok(Some(vec![0.0; 3])), Ok(None)));
        let said = common(&eight, &nine).unwrap_err();
        assert!(said.contains("a has a box of 8, and b one of 9, 8, 8"), "{said}");
        assert!(common(&eight, &open).is_err());

        let said = |one: &Space, other: &Space| differences((Path::new("a"), one), (Path::new("b"), other));
        let now = Space {
            scale_factor: Some(1.0),
            densities: Some([0.3, 0.7]),
            h: Some(0.7),
            length_unit: Some(3.0857e24),
            ..eight.clone()
        };
        let rounded = Space { densities: Some([0.3, 0.6999]), length_unit: Some(3.085678e24), ..now.clone() };
        assert_eq!((said(&now, &rounded), said(&now, &nothing)), (vec![], vec![]));
        let other = Space { scale_factor: Some(0.5), length_unit: Some(3.0857e21), ..now.clone() };
        let found = said(&now, &other);
        assert!(found.len() == 2 && found[1].starts_with("a has the scale factor 1, and b 0.5; "), "{found:?}");
    }
}
