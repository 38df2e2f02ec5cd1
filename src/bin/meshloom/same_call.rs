//! Whether the processes of one job were called alike.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};

use meshloom::comm::{CommError, Communicator};

use crate::failure::Failure;

/// Options that may differ from process to process: which device each has, and what it prints. Those with a value have `true`.
const OWN: [(&str, bool); 3] = [("--device", true), ("--json", false), ("--quiet", false)];

/// The words of a call that all processes must have, in their order.
fn common_words(words: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    let mut common = Vec::new();
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        match OWN.iter().find(|(own, _)| *own == name) {
            Some((_, true)) if value.is_none() => drop(words.next()),
            Some(_) => (),
            None => common.push(word),
        }
    }
    common
}

/// The first word in which two calls differ: those of the one and of the other, nothing where a call has ended.
fn difference<'a>(one: &'a [String], other: &'a [String]) -> Option<[&'a str; 2]> {
    let word = |words: &'a [String], at: usize| words.get(at).map_or("", String::as_str);
    (0..one.len().max(other.len())).map(|at| [word(one, at), word(other, at)]).find(|[one, other]| one != other)
}

/// The failure of all ranks whose processes were called differently: each would do a part of another job, or wait for a call that others do
/// not make. One all-gather of 8 bytes a rank, and one of the words where they differ. All ranks call it, first of all.
///
/// # Errors
/// [`CommError`].
pub fn check(comm: &Communicator) -> Result<Result<(), Failure>, CommError> {
    let mine = common_words(std::env::args_os().skip(1));
    compare(comm, &mine)
}

fn compare(comm: &Communicator, mine: &[String]) -> Result<Result<(), Failure>, CommError> {
    // Words have no byte of 0 in them.
    let text = mine.join("\0");
    // The same in all processes of one program: this hasher has no key.
    let mut digest = DefaultHasher::new();
    text.hash(&mut digest);
    let Some(rank) = comm.first_to_differ(digest.finish())? else { return Ok(Ok(())) };
    let all = comm.all_gather_v(text.as_bytes())?;
    let words = |rank: usize| -> Vec<String> {
        String::from_utf8_lossy(all.get(rank).unwrap_or_default()).split('\0').map(String::from).collect()
    };
    let [first, other] = [words(0), words(rank)];
    let [first, other] = difference(&first, &other).unwrap_or_default();
    let said = |word: &str| if word.is_empty() { "nothing more".to_owned() } else { format!("`{word}`") };
    Ok(Err(Failure::Usage(format!(
        "rank {rank} was called with {}, where rank 0 has {}; give all processes the same words but for --device",
        said(other),
        said(first)
    ))))
}

#[cfg(test)]
mod tests {
    use meshloom::comm::run_threads;

    use super::*;

    fn words(call: &str) -> Vec<String> {
        common_words(call.split_whitespace().map(OsString::from))
    }

    #[test]
    fn devices_and_what_is_printed_may_differ() {
        assert_eq!(words("knn --device 1 a.npy --quiet -k 3"), words("knn a.npy --json --device=0000:81:00.0 -k 3"));
        assert_eq!(words("knn --device"), ["knn"]);
        assert_ne!(words("knn --ranks 2"), words("knn --ranks 3"));
    }

    #[test]
    fn the_first_word_that_differs_is_named_on_all_ranks() {
        for (one, other, told) in [
            ("simulate --seed 1 --json", "simulate --seed 2", "rank 1 was called with `2`, where rank 0 has `1`"),
            ("fof p.npy", "fof p.npy --box 1", "rank 1 was called with `--box`, where rank 0 has nothing more"),
            ("fof p.npy --box 1", "fof p.npy", "rank 1 was called with nothing more, where rank 0 has `--box`"),
        ] {
            run_threads(2, |comm| {
                let mine = words(if comm.rank() == 0 { one } else { other });
                match compare(&comm, &mine)? {
                    Err(Failure::Usage(message)) => assert!(message.starts_with(told), "{message}"),
                    _ => panic!("{one} and {other} pass"),
                }
                assert!(compare(&comm, &words(one))?.is_ok());
                Ok::<_, CommError>(())
            })
            .unwrap();
        }
    }
}
