//! The words of a text in WGSL: what stands in it but for blanks and comments.

/// Names, keywords and numbers, and every other character by itself, in their order.
pub(crate) fn words(text: &str) -> Vec<&str> {
    let (mut rest, mut words) = (text, Vec::new());
    while let Some(first) = rest.chars().next() {
        let is_comment = rest.starts_with("//") || rest.starts_with("/*");
        let length = match rest.find(|c: char| !(c.is_alphanumeric() || c == '_')) {
            _ if rest.starts_with("//") => rest.find(ends_a_line).unwrap_or(rest.len()),
            _ if is_comment => block_comment(rest),
            Some(0) => first.len_utf8(),
            end => end.unwrap_or(rest.len()),
        };
        let (word, others) = rest.split_at(length);
        if !is_comment && !first.is_whitespace() {
            words.push(word);
        }
        rest = others;
    }
    words
}

fn ends_a_line(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The length of the comment that a text begins with, which may have others inside.
fn block_comment(text: &str) -> usize {
    let (mut open, mut at) = (0, 0);
    while let Some(two) = text.as_bytes().get(at..at + 2) {
        match two {
            b"/*" => open += 1,
            b"*/" => open -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if open == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blanks_are_no_words() {
        assert_eq!(words("fn  each(\n x:f32)"), ["fn", "each", "(", "x", ":", "f32", ")"]);
        assert_eq!(words("a// fn end(\nb"), ["a", "b"]);
        assert_eq!(words("a/* é /* b */ c */d/e"), ["a", "d", "/", "e"]);
        assert_eq!(words("a /* without an end"), ["a"]);
        assert_eq!(words("Δ_1·2"), ["Δ_1", "·", "2"]);
        assert!(words("").is_empty());
    }
}
