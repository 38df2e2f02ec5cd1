//! Fenced blocks of documents in Markdown, and the comparison of printed output with them.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block of a document.
#[derive(Debug)]
pub struct Block {
    /// The line of its opening fence, from 1 on.
    pub line: usize,
    /// The word behind the opening fence.
    pub language: String,
    pub text: String,
    /// Only blank lines stand between it and the block before.
    pub follows: bool,
}

/// Returns all documents of the repository at `root`, sorted.
pub fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "python/README.md"]
            .map(|name| root.join(name))
            .to_vec();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the fenced blocks of a document, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut is_open, mut follows) = (false, false);
    for (at, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(language) if !is_open => {
                let language = language.trim().to_owned();
                found.push(Block { line: at + 1, language, text: String::new(), follows });
                is_open = true;
            }
            Some(_) => (is_open, follows) = (false, true),
            None if is_open => {
                let block = found.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => follows &= line.trim().is_empty(),
        }
    }
    assert!(!is_open, "the last fence is not closed");
    found
}

/// Returns `true` if a printed word is the expected one, or a number as another driver may round
/// it: counts from 100 on, such as of halos, may differ by 2 %, numbers with a point by 0.1 % or by
/// a unit of the last digit.
fn is_same_word(printed: &str, expected: &str) -> bool {
    let (Ok(found), Ok(number)) = (printed.parse::<f64>(), expected.parse::<f64>()) else {
        return printed == expected;
    };
    let difference = (found - number).abs();
    if expected.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return difference == 0.0 || number.abs() >= 100.0 && difference <= 0.02 * number.abs();
    }
    let (digits, exponent) = expected.split_once('e').unwrap_or((expected, "0"));
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    let unit = 10f64.powi(exponent.parse::<i32>().unwrap_or(0) - decimals);
    difference <= (1e-3 * number.abs()).max(1.001 * unit) || found.is_nan() && number.is_nan()
}

/// Returns `true` if a printed line is the expected one. The amount of blank space does not matter.
fn is_same_line(printed: &str, expected: &str) -> bool {
    let words = |line: &str| -> Vec<String> {
        line.split(|c: char| c.is_whitespace() || ",;=()[]".contains(c))
            .filter(|word| !word.is_empty())
            .map(String::from)
            .collect()
    };
    let (printed, expected) = (words(printed), words(expected));
    printed.len() == expected.len()
        && printed.iter().zip(&expected).all(|(printed, expected)| is_same_word(printed, expected))
}

/// Returns `true` if `printed` is the output that a document shows. A line `..` stands for any
/// lines.
pub fn is_same_output(printed: &str, expected: &str) -> bool {
    let filled =
        |text: &str| -> Vec<String> { text.lines().filter(|line| !line.trim().is_empty()).map(String::from).collect() };
    let (printed, expected) = (filled(printed), filled(expected));
    let (mut printed, mut is_any) = (&printed[..], false);
    for line in &expected {
        if line.trim() == ".." {
            is_any = true;
            continue;
        }
        let Some(at) = printed.iter().position(|printed| is_same_line(printed, line)) else { return false };
        if at > 0 && !is_any {
            return false;
        }
        (printed, is_any) = (&printed[at + 1..], false);
    }
    is_any || printed.is_empty()
}
