//! Documents: links and their anchors, the order of the book, the languages of blocks, and sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::markdown;

/// Languages of blocks. Documentation tests run `rust`, `python/tests/test_documents.py` runs
/// `python`, and `program/tests/cli/documents.rs` runs `sh` and reads `toml`. Blocks of
/// `rust,no_run` are parts of examples and tests, which run there. Blocks of `text` do not run.
const LANGUAGES: &[&str] = &["rust", "rust,no_run", "python", "sh", "toml", "text"];

/// Bytes of all documents at most.
const BYTES: usize = 264 << 10;

/// Lines of a page at most.
const LINES: usize = 250;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all documents with their text, by their paths from the root.
fn documents() -> BTreeMap<String, String> {
    let name = |path: &PathBuf| path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
    markdown::documents(root()).iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the lines outside of fenced blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    text.lines()
        .filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_fenced ^= is_fence;
            !is_fenced && !is_fence
        })
        .collect()
}

/// Returns the names by which links reach the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(name).collect()
}

/// Returns the targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text).join("\n");
    let without_code: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
    without_code.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(String::from).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let documents = documents();
    let mut broken = Vec::new();
    for (page, text) in &documents {
        for link in links(text).iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(page).parent().unwrap();
            let target = if file.is_empty() { PathBuf::from(page) } else { folder.join(file) };
            let mut path: Vec<_> = Vec::new();
            for part in target.to_str().unwrap().split('/').filter(|part| *part != ".") {
                if part == ".." {
                    path.pop();
                } else {
                    path.push(part);
                }
            }
            let target = path.join("/");
            let has_anchor = || documents.get(&target).is_none_or(|text| anchors(text).contains(anchor));
            if !root().join(&target).exists() || !anchor.is_empty() && !has_anchor() {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_book_has_every_page_once() {
    let documents = documents();
    // Records of decisions are listed by their index.
    let mut listed = links(&documents["docs/SUMMARY.md"]);
    let records = links(&documents["docs/decisions/README.md"]);
    listed.extend(records.iter().filter(|link| link.starts_with('0')).map(|link| format!("decisions/{link}")));
    let pages: BTreeSet<String> =
        documents.keys().filter_map(|page| page.strip_prefix("docs/")).map(String::from).collect();
    let missing: Vec<_> = pages.iter().filter(|page| *page != "SUMMARY.md" && !listed.contains(page)).collect();
    assert!(missing.is_empty(), "list these pages in docs/SUMMARY.md or docs/decisions/README.md: {missing:#?}");
    assert_eq!(listed.len() + 1, pages.len(), "a page is listed twice, or does not exist");
}

/// Returns the lines of code without comments and indentation.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap().trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn blocks_are_run_or_marked_as_text() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let folders = ["examples", "tests/exchange"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let sources = folders.into_iter().flatten().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let sources: Vec<String> = sources.map(|source| code(&source)).collect();
    let mut wrong = Vec::new();
    for (page, text) in &documents() {
        for block in markdown::blocks(text) {
            if !LANGUAGES.contains(&&*block.language) {
                wrong.push(format!("{page}:{}: `{}`", block.line, block.language));
            }
            if block.language == "rust,no_run" && !sources.iter().any(|source| source.contains(&code(&block.text))) {
                wrong.push(format!("{page}:{}: no example or test has this code", block.line));
            }
            if block.language == "rust" && !lib.contains(&format!("include_str!(\"../{page}\")")) {
                wrong.push(format!("{page}:{}: src/lib.rs does not include the page", block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn documents_are_short() {
    let documents = documents();
    let longest = |page: &str| if page == "README.md" { 110 } else { LINES };
    let long: Vec<_> = documents.keys().filter(|page| documents[*page].lines().count() > longest(page)).collect();
    assert!(long.is_empty(), "too many lines: {long:#?}");
    assert!(documents["ARCHITECTURE.md"].len() <= 8 << 10);
    let bytes: usize = documents.values().map(String::len).sum();
    assert!(bytes <= BYTES, "the documents have {bytes} bytes, {BYTES} are allowed");
}

#[test]
fn outputs_are_compared_by_lines_and_numbers() {
    assert!(markdown::is_same_output("a  1.00 b\n\nc 3\n", "a 1.01 b\nc 3\n"));
    assert!(markdown::is_same_output("a\nb\nc\nd\n", "a\n..\nd\n"));
    assert!(markdown::is_same_output("-148.411 680 2.2e-4\n", "-148.4 670 2.1e-4\n"));
    assert!(markdown::is_same_output("a\nb\n", "..\nb\n"));
    for (printed, shown) in [
        ("a 1.2\n", "a 1.0\n"),
        ("-148.411\n", "-148.7\n"),
        ("a 700\n", "a 670\n"),
        ("a 3\n", "a 4\n"),
        ("a\nb\n", "a\n"),
        ("a\n", "a\nb\n"),
        ("b\na\n", "a\n"),
    ] {
        assert!(!markdown::is_same_output(printed, shown), "{printed} {shown}");
    }
}
