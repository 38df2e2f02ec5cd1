//! Whether all ranks have set up the same fit: those that have not would wait for each other for ever, or mix samples of different fits without a word.

use super::error::InferenceError;
use crate::comm::Communicator;
use crate::hash::{START, fnv1a};

/// What a rank asks for.
pub(super) struct Asked {
    /// The option.
    pub name: &'static str,
    /// What it says of it: for the fit, or for each iteration.
    pub said: Vec<String>,
}

/// The first rank that does not have what rank 0 has, and the first of what it has otherwise. `all` are the numbers of each rank, one rank after the other.
fn first_apart<T: Copy>(all: &[T], each: usize, are_alike: impl Fn(T, T) -> bool) -> Option<[usize; 2]> {
    let first = &all[..each];
    let apart = |own: &[T]| first.iter().zip(own).position(|(&first, &own)| !are_alike(first, own));
    all.chunks(each).map(apart).enumerate().find_map(|(rank, what)| Some([rank, what?]))
}

/// Refuses options that are not the same on all ranks, on all of them alike; each gives the same list of names. All ranks call it.
///
/// # Errors
/// [`InferenceError::Differ`], with the first rank and option.
pub(super) fn of_options(comm: &Communicator, asked: &[Asked]) -> Result<(), InferenceError> {
    let hash = |asked: &Asked| asked.said.iter().fold(START, |hash, said| fnv1a(fnv1a(hash, said.as_bytes()), b"\n"));
    let all = comm.all_gather(&asked.iter().map(hash).collect::<Vec<u64>>())?;
    let Some([rank, at]) = first_apart(&all, asked.len(), |a, b| a == b) else { return Ok(()) };
    let Asked { name, said } = &asked[at];
    let [first, theirs] = [0, rank].map(|root| text_of(comm, root, &said.join("\n")));
    let (first, theirs) = (first?, theirs?);
    // Of iterations the first one that differs.
    let (number, (theirs, first)) =
        theirs.lines().zip(first.lines()).enumerate().find(|(_, (a, b))| a != b).unwrap_or((0, (&theirs, &first)));
    let what = if said.len() > 1 { format!("{name} of iteration {number}") } else { (*name).into() };
    Err(InferenceError::Differ { rank, what, theirs: theirs.into(), first: first.into() })
}

/// The text that a rank has, on all of them.
fn text_of(comm: &Communicator, root: usize, own: &str) -> Result<String, InferenceError> {
    let own = if comm.rank() == root { own.as_bytes() } else { &[] };
    Ok(String::from_utf8_lossy(&comm.all_gather_v(own)?.into_raw().0).into_owned())
}

/// Refuses numbers that are further apart on two ranks than roundings of their devices, on all ranks alike. All ranks call it.
///
/// # Errors
/// [`InferenceError::Differ`], with the first rank.
pub(super) fn of_numbers(comm: &Communicator, what: &str, own: f64, apart: f64) -> Result<(), InferenceError> {
    let all = comm.all_gather(&[own, apart])?;
    let numbers: Vec<f64> = all.chunks(2).map(|one| one[0]).collect();
    // That of rank 0 decides, so that all find the same.
    let most = all[1];
    let Some([rank, _]) = first_apart(&numbers, 1, |a, b| a == b || (a - b).abs() <= most) else { return Ok(()) };
    let [theirs, first] = [numbers[rank], numbers[0]].map(|number| format!("{number:?}"));
    Err(InferenceError::Differ { rank, what: what.into(), theirs, first })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    #[test]
    fn the_first_rank_and_option_that_differ_are_named_on_all_ranks() {
        let asked = |rank: usize| {
            let pairs = if rank == 2 { ["2", "5"] } else { ["2", "3"] }.map(String::from);
            let modes = if rank == 1 { vec!["bent".to_string()] } else { vec!["straight".into()] };
            vec![
                Asked { name: "seed", said: vec!["1".into()] },
                Asked { name: "pairs", said: pairs.into() },
                Asked { name: "mode", said: modes },
            ]
        };
        let found = |ranks: usize, asked: &(dyn Fn(usize) -> Vec<Asked> + Sync)| {
            run_threads(ranks, |comm| {
                Ok::<_, InferenceError>(of_options(&comm, &asked(comm.rank())).err().map(|error| error.to_string()))
            })
            .unwrap()
        };
        assert_eq!(found(3, &|_| asked(0)), [None, None, None]);
        for said in found(4, &asked) {
            assert!(
                said.unwrap()
                    .starts_with("rank 1 asks for another fit than rank 0: mode is bent there and straight on")
            );
        }
        for said in found(4, &|rank| asked(if rank == 1 { 0 } else { rank })) {
            assert!(
                said.unwrap()
                    .contains("rank 2 asks for another fit than rank 0: pairs of iteration 1 is 5 there and 3 on")
            );
        }
    }
}
