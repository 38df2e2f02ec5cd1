//! Fingerprints of distributed arrays, to tell whether an array has changed.

use crate::comm::{CommError, Communicator, Op};
use crate::hash::placed;

/// Returns a 64-bit hash of the values of all ranks' sites and of their order, which does not
/// depend on the distribution of sites. `rows` are the first sites of this rank's rows of `length`
/// sites; each of `columns` has one value per site. Collective.
///
/// # Errors
/// [`CommError`] if another rank fails.
pub fn fingerprint(
    comm: &Communicator,
    rows: impl Iterator<Item = u64>,
    length: u64,
    columns: &[&[f32]],
) -> Result<u64, CommError> {
    let rows: Vec<u64> = rows.collect();
    let of_column = |(number, column): (u64, &&[f32])| {
        let sites = rows.iter().flat_map(|&row| row..row + length);
        let marks = sites.zip(*column).map(|(site, value)| {
            placed(site.wrapping_mul(columns.len() as u64).wrapping_add(number), u64::from(value.to_bits()))
        });
        marks.fold(0, u64::wrapping_add)
    };
    let mut sum = [(0..).zip(columns).map(of_column).fold(0, u64::wrapping_add)];
    comm.all_reduce(&mut sum, Op::Sum)?;
    Ok(sum[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    #[test]
    fn fingerprints_know_values_and_places_but_no_ranks() {
        // Four rows of three sites, distributed over ranks.
        let [x, y]: [Vec<f32>; 2] = [1.0, -2.0].map(|unit| (0..12).map(|i| unit * i as f32).collect());
        let of = |x: &[f32], y: &[f32], ranks: usize| {
            let sums = run_threads(ranks, |comm| {
                let own: Vec<u64> = (0..4).filter(|row| row % ranks == comm.rank()).map(|row| 3 * row as u64).collect();
                let part = |all: &[f32]| -> Vec<f32> {
                    own.iter().flat_map(|&row| all[row as usize..row as usize + 3].to_vec()).collect()
                };
                fingerprint(&comm, own.iter().copied(), 3, &[&part(x), &part(y)])
            });
            let sums = sums.unwrap();
            assert!(sums.iter().all(|sum| *sum == sums[0]));
            sums[0]
        };
        let want = of(&x, &y, 1);
        assert_eq!([2, 3].map(|ranks| of(&x, &y, ranks)), [want; 2]);
        let (mut swapped, mut changed) = (x.clone(), x.clone());
        swapped.swap(3, 4);
        changed[11] = f32::from_bits(changed[11].to_bits() ^ 1);
        assert!([of(&y, &x, 1), of(&swapped, &y, 2), of(&changed, &y, 2)].iter().all(|&other| other != want));
    }
}
