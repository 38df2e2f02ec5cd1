//! Whether the processes of one job were called alike.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};

use meshloom::comm::{CommError, Communicator};

use crate::failure::Failure;

/// Options that may differ from process to process: which device each has, and what it prints. Those with a value have `true`.
const OWN: [(&str, bool); 3] = [("--device", true), ("--json", false), ("--quiet", false)];

/// The words of a call that all processes must have, in their order, as the system has them: paths need not be text.
fn common_words(words: impl IntoIterator<Item = OsString>) -> Vec<Vec<u8>> {
    let mut words = words.into_iter().map(OsString::into_encoded_bytes);
    let mut common = Vec::new();
    while let Some(word) = words.next() {
        let equals = word.iter().position(|byte| *byte == b'=');
        let name = &word[..equals.unwrap_or(word.len())];
        match OWN.iter().find(|(own, _)| own.as_bytes() == name) {
            Some((_, true)) if equals.is_none() => drop(words.next()),
            Some(_) => (),
            None => common.push(word),
        }
    }
    common
}

/// The first word in which two calls differ: those of the one and of the other, nothing where a call has ended.
fn difference<'a>(one: &[&'a [u8]], other: &[&'a [u8]]) -> Option<[&'a [u8]; 2]> {
    let word = |words: &[&'a [u8]], at: usize| words.get(at).copied().unwrap_or_default();
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

fn compare(comm: &Communicator, mine: &[Vec<u8>]) -> Result<Result<(), Failure>, CommError> {
    // Words have no byte of 0 in them.
    let text = mine.join(&0);
    // The same in all processes of one program: this hasher has no key.
    let mut digest = DefaultHasher::new();
    text.hash(&mut digest);
    let Some(rank) = comm.first_to_differ(digest.finish())? else { return Ok(Ok(())) };
    let all = comm.all_gather_v(&text)?;
    let words = |rank: usize| -> Vec<&[u8]> { all.get(rank).unwrap_or_default().split(|byte| *byte == 0).collect() };
    let [first, other] = [words(0), words(rank)];
    let [first, other] = difference(&first, &other).unwrap_or_default();
    let text = |word: &[u8]| String::from_utf8(word.into()).unwrap_or_else(|_| word.escape_ascii().to_string());
    let said = |word: &[u8]| if word.is_empty() { "nothing more".into() } else { format!("`{}`", text(word)) };
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

    fn words(call: &str) -> Vec<Vec<u8>> {
        common_words(call.split_whitespace().map(OsString::from))
    }

    #[test]
    fn devices_and_what_is_printed_may_differ() {
        assert_eq!(words("knn --device 1 a.npy --quiet -k 3"), words("knn a.npy --json --device=0000:81:00.0 -k 3"));
        assert_eq!(words("knn --device"), [b"knn"]);
        assert_ne!(words("knn --ranks 2"), words("knn --ranks 3"));
    }

    #[cfg(unix)]
    #[test]
    fn paths_that_are_not_text_are_told_apart() {
        use std::os::unix::ffi::OsStringExt;

        let word = |byte| common_words([OsString::from_vec(vec![b'p', byte])]);
        run_threads(2, |comm| {
            match compare(&comm, &word([0xfe, 0xff][comm.rank()]))? {
                Err(Failure::Usage(message)) => assert!(message.contains(r"`p\xff`"), "{message}"),
                _ => panic!("they pass"),
            }
            Ok::<_, CommError>(())
        })
        .unwrap();
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
