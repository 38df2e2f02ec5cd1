//! The words of a text in WGSL: everything but blanks and comments.

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

/// The words of a text, for questions about names and calls.
pub(crate) struct WgslWords<'a>(Vec<&'a str>);

impl<'a> WgslWords<'a> {
    /// Splits a text.
    pub fn new(text: &'a str) -> Self {
        WgslWords(words(text))
    }

    /// Returns `true` if the text has the word.
    pub fn contains(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    /// Returns the type that the definition of `function` names as its result.
    pub fn result_of(&self, function: &str) -> Option<String> {
        let start = (1..self.0.len()).find(|&at| self.0[at] == function && self.0[at - 1] == "fn")?;
        let arrow = (start..self.0.len())
            .take_while(|&at| self.0[at] != "{")
            .find(|&at| self.0[at] == ">" && self.0[at - 1] == "-")?;
        Some(self.0[arrow + 1..].iter().take_while(|word| **word != "{").copied().collect())
    }

    /// Returns the arguments of each call of `function`, each joined from its words.
    pub fn calls(&self, function: &str) -> impl Iterator<Item = Vec<String>> {
        let starts = (0..self.0.len()).filter(move |&at| self.0[at] == function && self.0.get(at + 1) == Some(&"("));
        let starts: Vec<usize> = starts.collect();
        starts.into_iter().map(|at| {
            let (mut arguments, mut depth) = (vec![String::new()], 0);
            for &word in &self.0[at + 2..] {
                match word {
                    "(" | "[" => depth += 1,
                    ")" if depth == 0 => break,
                    ")" | "]" => depth -= 1,
                    "," if depth == 0 => {
                        arguments.push(String::new());
                        continue;
                    }
                    _ => {}
                }
                if let Some(last) = arguments.last_mut() {
                    last.push_str(word);
                }
            }
            arguments
        })
    }
}

fn ends_a_line(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns the length of the comment that a text begins with, which may have others inside.
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

    #[test]
    fn calls_have_their_arguments() {
        let text = WgslWords::new("fn f(a: u32) {} /* f(9) */ x = f(c, -1, g(2, 3)) + f (c,0,i32(a[1, 2]))");
        let calls: Vec<_> = text.calls("f").collect();
        assert_eq!(calls, [vec!["a:u32"], vec!["c", "-1", "g(2,3)"], vec!["c", "0", "i32(a[1,2])"]]);
        assert!(text.contains("g") && !text.contains("f(9)"));
        let result = |text: &str| WgslWords::new(text).result_of("f");
        assert_eq!(result("fn g() -> u32 {} fn f(a: u32) -> vec2<f32> { return g(); }"), Some("vec2<f32>".into()));
        assert_eq!(result("fn f() {} fn g() -> u32 { f(); }"), None);
    }
}
