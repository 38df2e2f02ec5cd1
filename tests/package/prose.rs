//! The language of comments, shaders and documents: banned openings and phrases, and the length of
//! comment lines.

use std::fs;
use std::path::{Path, PathBuf};

/// Openings of doc comments.
const OPENINGS: &[&str] = &[
    "What ",
    "Those ",
    "That ",
    "Of ",
    "None ",
    "Who ",
    "Where ",
    "How ",
    "As ",
    "The same",
    "In the form",
    "Says ",
    "Tells ",
    "Takes note",
];

/// Openings of doc comments of functions.
const FUNCTION_OPENINGS: &[&str] = &["Whether ", "The "];

/// Phrases, at the beginnings of words.
const PHRASES: &[&str] = &[
    "so many",
    "none where",
    "where there is none",
    "if there is such",
    "is none to",
    "is no ",
    "are no ",
    "for who ",
    "whoever",
    "lest ",
    "anew",
    "nobody",
    "without a word",
    "which is refused",
    "in the place of",
    "in no ring",
    "takes it away",
    "not come to that",
    "the way of",
    "all the same",
    "but for ",
    "what costs",
    "what tells",
    "is told",
    "all ranks call it",
    "not ours to",
];

/// Columns of a comment line at most, tables and links excepted.
const COLUMNS: usize = 100;

/// A line of prose and what follows it.
struct Prose<'a> {
    text: &'a str,
    /// The first line of a doc comment.
    is_opening: bool,
    /// What a doc comment documents is a function.
    is_function: bool,
}

/// Returns the text without what stands in backticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("x")
}

/// Returns what is banned in a line.
fn banned(prose: &Prose<'_>) -> Vec<&'static str> {
    let text = without_code(prose.text);
    let mut found = Vec::new();
    if prose.is_opening && !text.starts_with("Same as") {
        let functions = if prose.is_function { FUNCTION_OPENINGS } else { &[] };
        found.extend(OPENINGS.iter().chain(functions).filter(|opening| text.starts_with(**opening)));
    }
    let lower = format!(" {} ", text.to_lowercase());
    for phrase in PHRASES {
        let is_word = |(at, _): &(usize, &str)| !lower[..*at].ends_with(|c: char| c.is_alphanumeric());
        let is_longer = |at: usize| lower[at..].starts_with(&format!("{phrase}longer"));
        found.extend(lower.match_indices(phrase).filter(is_word).filter(|(at, _)| !is_longer(*at)).map(|_| *phrase));
    }
    found
}

/// Returns the marker of a comment line and its text.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let marker = ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker))?;
    let text = &line[marker.len()..];
    Some((marker, text.strip_prefix(' ').unwrap_or(text)))
}

/// Returns the faults of a file in Rust or WGSL, each with its line.
fn faults_of_code(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut faults, mut is_fenced, mut was_doc) = (Vec::new(), false, false);
    for (at, line) in lines.iter().enumerate() {
        let Some((marker, text)) = comment(line) else {
            (is_fenced, was_doc) = (false, false);
            continue;
        };
        let is_doc = marker != "//";
        if text.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let code = lines[at..].iter().find(|line| comment(line).is_none() && !line.trim_start().starts_with("#["));
            let is_function = code.is_some_and(|code| {
                let words: Vec<&str> = code.split_whitespace().take(4).collect();
                marker == "///" && words.contains(&"fn")
            });
            let prose = Prose { text, is_opening: is_doc && !was_doc, is_function };
            faults.extend(banned(&prose).into_iter().map(|what| (at + 1, format!("`{what}`"))));
            let is_exempt = text.starts_with('|') || text.contains("](") || text.contains("://");
            if line.chars().count() > COLUMNS && !is_exempt {
                faults.push((at + 1, format!("longer than {COLUMNS} columns")));
            }
        }
        was_doc = is_doc;
    }
    faults
}

/// Returns the faults of a document.
fn faults_of_document(text: &str) -> Vec<(usize, String)> {
    let (mut faults, mut is_fenced) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let prose = Prose { text: line, is_opening: false, is_function: false };
            faults.extend(banned(&prose).into_iter().map(|what| (at + 1, format!("`{what}`"))));
        }
    }
    faults
}

/// Adds the files below a folder that have prose.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            add_files(&path, files);
        } else if ["rs", "wgsl", "md"].iter().any(|kind| path.extension().is_some_and(|found| found == *kind)) {
            files.push(path);
        }
    }
}

#[test]
fn comments_and_documents_are_in_plain_english() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)).to_vec();
    for folder in ["src", "shaders", "crates", "program", "examples", "benches", "tests", "docs", "python/src"] {
        add_files(&root.join(folder), &mut files);
    }
    files.retain(|path| !path.ends_with("tests/package/prose.rs"));
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        let text = fs::read_to_string(path).unwrap();
        let faults = if name.ends_with(".md") { faults_of_document(&text) } else { faults_of_code(&text) };
        wrong.extend(faults.iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    assert!(wrong.is_empty(), "reword these {} lines:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_banned_is_found() {
    let text = "/// What it is.\nfn a() {}\n/// The size; nobody knows `lest `.\nfn b() {}\n// The size is no longer smallest.\n\
                /// ```\n/// What\n/// ```\n/// Returns it, whoever asks.\nfn c() {}\n";
    let found: Vec<(usize, String)> = faults_of_code(text);
    let expected = [(1, "`What `"), (3, "`The `"), (3, "`nobody`"), (9, "`whoever`")];
    assert_eq!(found, expected.map(|(line, what)| (line, what.to_string())));
    let long = format!("// {}\n/// | {} |\n", "a".repeat(98), "b".repeat(98));
    assert_eq!(faults_of_code(&long), [(1, "longer than 100 columns".to_string())]);
    assert_eq!(faults_of_document("What costs what\n```\nnobody\n```\n"), [(1, "`what costs`".to_string())]);
}
