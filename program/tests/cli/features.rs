//! Messages of builds about features that they lack.
#![cfg(unix)]

#[allow(unused_imports)]
use super::cli::{Call, Scratch};

#[cfg(not(feature = "hdf5"))]
#[test]
fn without_hdf5_it_is_said_how_to_get_it() {
    let scratch = Scratch::new();
    let named = scratch.file("snapshot.hdf5", b"");
    let signed = scratch.file("snapshot", b"\x89HDF\r\n\x1a\n and more");
    let out = scratch.word("out");
    for snapshot in [&named, &signed] {
        for words in ["sort", "knn -k 1", "power --box 1"] {
            let words: Vec<&str> = words.split(' ').collect();
            let call = Call::new(&[&words[..1], &[snapshot, "-o", &out], &words[1..]].concat());
            call.run().is_error(words[0], 1, &["built without HDF5", "feature `hdf5`", ".npy"]);
        }
    }
    let points = scratch.file("points.npy", b"");
    let call = Call::new(&["fof", &points, "--linking-length", "1", "-o", &scratch.word("groups.h5")]);
    call.run().is_error("fof", 2, &["built without HDF5", "feature `hdf5`", ".npz"]);
    let call = Call::simulate(&scratch.join("out"), &["--hdf5", "one"]);
    call.run().is_error("simulate", 2, &["built without HDF5", "feature `hdf5`"]);
    assert!(!scratch.join("out").exists());
}

#[cfg(not(feature = "reference"))]
#[test]
fn without_the_libraries_nothing_is_compared() {
    for subject in ["fft", "sort", "knn", "pairs", "fof"] {
        let call = Call::new(&["bench", subject, "--size", "8", "--reference"]);
        call.run().is_error(subject, 1, &["--reference", "feature `reference`"]);
    }
}
