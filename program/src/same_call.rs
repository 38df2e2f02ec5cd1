//! Checks that the processes of one job were called alike.

use std::ffi::OsString;
use std::fmt::Debug;

use meshloom::comm::{CommError, Communicator};

use crate::failure::{Ended, Failure};

/// Options that may differ between processes: the device, and what is printed. Those with a value
/// have `true`.
const OWN: [(&str, bool); 3] = [("--device", true), ("--json", false), ("--quiet", false)];

/// Returns the words of a call that all processes must have, in their order.
fn common_words(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let mut common = Vec::new();
    while let Some(word) = words.next() {
        let bytes = word.as_encoded_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=');
        let name = &bytes[..equals.unwrap_or(bytes.len())];
        match OWN.iter().find(|(own, _)| own.as_bytes() == name) {
            Some((_, true)) if equals.is_none() => drop(words.next()),
            Some(_) => (),
            None => common.push(word),
        }
    }
    common
}

/// Checks that all processes were called alike: others would do a part of another job. Collective.
///
/// # Errors
/// - [`Failure::Usage`] on all ranks, with the first word that differs.
/// - [`CommError`].
pub fn check(comm: &Communicator) -> Result<(), Ended> {
    compare(comm, common_words(std::env::args_os().skip(1)))
}

fn compare(comm: &Communicator, words: Vec<OsString>) -> Result<(), Ended> {
    let names: Vec<String> = (1..=words.len()).map(|at| format!("word {at}")).collect();
    let words: Vec<(&str, &dyn Debug)> =
        names.iter().zip(&words).map(|(name, word)| (name.as_str(), word as &dyn Debug)).collect();
    match comm.agree("meshloom", &words) {
        Err(error @ CommError::Differ { .. }) => Err(Failure::Usage(error.to_string()).into()),
        agreed => Ok(agreed?),
    }
}

#[cfg(test)]
mod tests {
    use meshloom::comm::run_threads;

    use super::*;

    fn words(call: &str) -> Vec<OsString> {
        common_words(call.split_whitespace().map(OsString::from))
    }

    #[test]
    fn devices_and_what_is_printed_may_differ() {
        assert_eq!(words("knn --device 1 a.npy --quiet -k 3"), words("knn a.npy --json --device=0000:81:00.0 -k 3"));
        assert_eq!(words("knn --device"), ["knn"]);
        assert_ne!(words("knn --ranks 2"), words("knn --ranks 3"));
    }

    #[cfg(unix)]
    #[test]
    fn paths_that_are_not_text_are_told_apart() {
        use std::os::unix::ffi::OsStringExt;

        differ([vec![OsString::from_vec(vec![b'p', 0xfe])], vec![OsString::from_vec(vec![b'p', 0xff])]], r"p\xFF");
    }

    /// Checks that all ranks name what differs between the calls of two.
    fn differ(calls: [Vec<OsString>; 2], what: &str) {
        run_threads(2, |comm| {
            match compare(&comm, calls[comm.rank()].clone()) {
                Err(Ended::Together(Failure::Usage(message))) => assert!(message.contains(what), "{message}"),
                _ => panic!("{calls:?} pass"),
            }
            assert!(compare(&comm, calls[0].clone()).is_ok());
            Ok::<_, CommError>(())
        })
        .unwrap();
    }

    #[test]
    fn the_first_word_that_differs_is_named_on_all_ranks() {
        for (one, other, what) in [
            (
                "simulate --seed 1 --json",
                "simulate --seed 2",
                r#"`word 3` differs between ranks: rank 0 has "1", rank 1 has "2""#,
            ),
            ("fof p.npy", "fof p.npy --box 1", "rank 0 has 2 arguments, rank 1 has 4 arguments"),
            ("fof p.npy --box 1", "fof p.npy", "rank 0 has 4 arguments, rank 1 has 2 arguments"),
        ] {
            differ([one, other].map(words), what);
        }
    }
}
