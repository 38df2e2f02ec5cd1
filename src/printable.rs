//! Text that a terminal shows and does not obey.
//!
//! Names of files, contents of files and words of drivers may hold control characters: escape sequences that colour, move
//! or rename a terminal, line breaks that forge a second message, marks that turn the direction of writing. Messages
//! show them as Rust writes them (`\u{1b}`, `\n`).

use std::borrow::Cow;
use std::path::Path;

/// Whether a character would not be seen but change how others are shown: a control character (C0, DEL, C1), a line or
/// paragraph separator, or a mark of direction.
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` with unprintable characters escaped, but for line breaks and tabs, which a message may have of its own.
///
/// ```
/// assert_eq!(meshloom::io::printable("\u{1b}[31mred\n"), "\\u{1b}[31mred\n");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unprintable(c) && !matches!(c, '\n' | '\t'))
}

/// A path as messages show it, with all unprintable characters escaped: it stays on its line.
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
