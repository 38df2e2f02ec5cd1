//! `meshloom kernels`: the list, and kernels in every language.

use std::fs;

use super::cli::{Call, Scratch};
use serde_json::Value;

/// A kernel that is there to stay, of which there is one.
const KERNEL: &str = "mesh::density";

fn names() -> Vec<String> {
    let list = Call::new(&["kernels", "--json"]).succeeds().stdout;
    let list: Value = serde_json::from_str(&list).unwrap();
    let kernels = list["kernels"].as_array().unwrap();
    kernels.iter().map(|kernel| kernel["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_list_has_every_kernel_once_and_is_the_same_each_time() {
    let names = names();
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), names.len(), "a name is there twice: {names:?}");
    assert!(names.iter().any(|name| name == KERNEL), "{names:?}");
    let [table, again] = [0, 1].map(|_| Call::new(&["kernels"]).succeeds().stdout);
    assert_eq!(table, again);
    let first: Vec<&str> = table.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(first, names, "table and JSON list the same");
    let row = table.lines().find(|line| line.starts_with(KERNEL)).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert!(cells[1].parse::<u32>().is_ok() && cells[2].parse::<u32>().is_ok() && cells.len() > 4, "{row}");
}

#[test]
fn a_kernel_is_printed_in_every_language() {
    let scratch = Scratch::new();
    for (stage, words) in [
        ("wgsl", ["@compute", "struct Params"]),
        ("msl", ["metal_stdlib", "kernel void main_"]),
        ("hlsl", ["numthreads", "void main("]),
    ] {
        let text = Call::new(&["kernels", KERNEL, "--stage", stage]).succeeds().stdout;
        assert!(words.iter().all(|word| text.contains(word)), "{stage}: {text}");
        let file = scratch.word(stage);
        let quiet = Call::new(&["kernels", KERNEL, "--stage", stage, "-o", &file]).succeeds().stdout;
        assert!(quiet.is_empty(), "{quiet}");
        assert_eq!(fs::read_to_string(file).unwrap().trim_end(), text.trim_end());
    }
    let file = scratch.word("kernel.spv");
    Call::new(&["kernels", KERNEL, "--stage", "spirv", "--output", &file]).succeeds();
    let bytes = fs::read(file).unwrap();
    assert_eq!((bytes[..4].to_vec(), bytes.len() % 4), (0x0723_0203u32.to_le_bytes().to_vec(), 0));
    assert!(!Call::new(&["kernels", KERNEL, "--stage", "spirv"]).succeeds().stdout.is_empty());
}

#[test]
fn profiles_and_limits_shape_the_text() {
    let scratch = Scratch::new();
    let text = |profile: &str| Call::new(&["kernels", KERNEL, "--profile", profile]).succeeds().stdout;
    assert_eq!(text("floor"), Call::new(&["kernels", KERNEL]).succeeds().stdout);
    assert!(text("gpu").contains("var<uniform>") && text("software").contains("var<storage, read> stored_params"));
    let limits = scratch.file("limits.toml", "workgroup_size = 32\nitems = 3\nwindows = 2\nwindow_bytes = 4096\n");
    let shaped = text(&limits);
    assert!(shaped.contains("const GROUP: u32 = 32u;") && shaped.contains("const ITEMS: u32 = 3u;"), "{shaped}");
    let bindings = |text: &str| text.matches("@binding(").count();
    assert!(bindings(&shaped) > bindings(&text("floor")), "{shaped}");
    let immediate = scratch.file("immediate.toml", "params = \"immediate\"\n");
    assert!(text(&immediate).contains("var<immediate> params: Params;"), "{}", text(&immediate));
    for stage in ["spirv", "msl", "hlsl"] {
        let text = Call::new(&["kernels", KERNEL, "--profile", &immediate, "--stage", stage]).succeeds().stdout;
        assert!(text.contains("Params"), "{stage}: {text}");
    }
}

#[test]
fn wrong_words_and_bad_files_are_errors_that_leave_nothing() {
    let scratch = Scratch::new();
    let out = scratch.word("kernel.txt");
    let unknown_key = scratch.file("key.toml", "items = 4\nsubgrups = 32\n");
    let no_toml = scratch.file("bad.toml", "items = = 4\n");
    let no_size = scratch.file("size.toml", "workgroup_size = 48\n");
    let too_many = scratch.file("windows.toml", "windows = 65\n");
    let missing = scratch.word("missing.toml");
    for (name, code, words, said) in [
        ("an unknown kernel", 2, &["mesh::densty"][..], &["mesh::densty", "near it are", KERNEL][..]),
        ("a beginning of several", 2, &["mesh::"], &["begins the names of", "mesh::"]),
        ("an unknown profile", 2, &[KERNEL, "--profile", "phone"], &["phone", "floor, software, gpu"]),
        ("an unknown stage", 2, &[KERNEL, "--stage", "glsl"], &["glsl", "spirv"]),
        ("a stage of no kernel", 2, &["--stage", "msl"], &["NAME"]),
        ("standard output by name", 2, &[KERNEL, "-o", "-"], &["-"]),
        ("no file", 1, &[KERNEL, "--profile", &missing], &["missing.toml"]),
        ("no TOML", 1, &[KERNEL, "--profile", &no_toml], &["bad.toml", "line 1"]),
        ("an unknown key", 1, &[KERNEL, "--profile", &unknown_key], &["key.toml", "subgrups", "workgroup_size"]),
        ("a size that is no power of two", 2, &[KERNEL, "--profile", &no_size], &["size.toml", "48", "power of two"]),
        ("too many windows", 2, &[KERNEL, "--profile", &too_many], &["windows is 65", "64"]),
    ] {
        let call = Call::new(&["kernels"]).words(words);
        let call = if words.contains(&"-o") || words[0] == "--stage" { call } else { call.words(&["-o", &out]) };
        call.run().is_error(name, code, said);
        assert!(!scratch.join("kernel.txt").exists(), "{name}");
    }
}
