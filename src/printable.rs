//! Text without control characters, for terminals.
//!
//! File names, file contents and messages of drivers may have control characters: escape sequences
//! that control a terminal, line breaks that fake a second message, marks that change the direction
//! of text. Messages show them escaped as in Rust (`\u{1b}`, `\n`).

use std::borrow::Cow;
use std::path::Path;

/// Returns `true` if a character is invisible and changes how others are shown: a control character
/// (C0, DEL, C1), a line or paragraph separator, or a mark of direction.
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` with unprintable characters escaped, except for line breaks and tabs.
///
/// ```
/// assert_eq!(meshloom::io::printable("\u{1b}[31mred\n"), "\\u{1b}[31mred\n");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unprintable(c) && !matches!(c, '\n' | '\t'))
}

/// Returns a path for messages, with all unprintable characters escaped, line breaks too.
///
/// ```
/// assert_eq!(meshloom::io::printable_path("a\nb.npy".as_ref()), "a\\nb.npy");
/// ```
pub fn printable_path(path: &Path) -> String {
    escaped(&path.to_string_lossy(), is_unprintable).into_owned()
}

fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(printable("é 中 \t\n"), "é 中 \t\n");
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
        assert_eq!(
            printable("\x07\x1b]0;x\x07\r\x7f\u{9b}2J\u{202e}"),
            r"\u{7}\u{1b}]0;x\u{7}\r\u{7f}\u{9b}2J\u{202e}"
        );
        assert_eq!(printable_path(Path::new("a\tb\nmeshloom: c\u{2028}")), r"a\tb\nmeshloom: c\u{2028}");
    }
}
