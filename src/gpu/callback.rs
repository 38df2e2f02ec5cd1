//! Functions in WGSL that a caller gives to a kernel of the library.

use std::sync::Arc;

use super::params::{KernelParams, ParamField, declarations};
use super::{Access, Array, DeviceElement, DeviceError, Element, KernelSource, RawArray, Slot, Trust};

/// Functions in WGSL that run inside kernels of the library, with the arrays and parameters that
/// they use. They need no pass over memory and no intermediate array.
///
/// The functions that the text must define are documented where a callback is used:
/// [`TransformCallbacks`](crate::fft::TransformCallbacks) and [`Filter`](crate::fft::Filter) for
/// transforms, [`neighbors`](crate::points::neighbors) for searches.
///
/// - Arrays are reached by name: [`read`](Self::read) gives `load_x(i: u32)`,
///   [`write`](Self::write) and [`atomic`](Self::atomic) the other accessors of [`KernelSource`]. A
///   kernel binds at most eight arrays on the smallest devices, of which up to five are its own.
/// - Parameters are fields of `params`.
/// - Names are shared with the kernel and with other callbacks in it: begin yours with a prefix of
///   your own. A duplicate name is a compile error when the kernel is first used.
/// - The kernels are compiled with run-time checks, as [`Kernel::new`](super::Kernel::new) says,
///   unless the callback was made with [`new_unchecked`](Self::new_unchecked). Entry points and
///   bindings of the text's own are refused.
///
/// ```
/// use meshloom::gpu::Callback;
///
/// meshloom::kernel_params! { struct LowPass { low_pass_end: u32 } }
/// let low_pass = Callback::new(
///     "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
///          return select(Complex(), value, all(at.xyz < vec3<u32>(params.low_pass_end)));
///      }",
/// )
/// .params(&LowPass { low_pass_end: 8 });
/// assert!(low_pass.text().contains("on_mode"));
/// ```
#[must_use = "a callback does nothing until it is given to a kernel"]
#[derive(Clone, Debug)]
pub struct Callback {
    text: Arc<str>,
    arrays: Vec<(Slot, RawArray)>,
    fields: Vec<ParamField>,
    values: Vec<u8>,
    loop_rounds: u32,
    trust: Trust,
}

/// Key of a callback's kernels: the text, the bindings of arrays, the types of parameters, and the
/// trust in the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallbackKey {
    text: String,
    fields: String,
    trust: Trust,
}

impl Callback {
    /// Creates a callback with this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self::with_trust(Trust::Nobody, text)
    }

    /// Same as [`new`](Self::new), for kernels without run-time checks.
    ///
    /// # Safety
    /// For all arguments that it may be called with, the text must satisfy the requirements of
    /// [`Kernel::new_unchecked`](super::Kernel::new_unchecked).
    pub unsafe fn new_unchecked(text: impl Into<Arc<str>>) -> Self {
        Self::with_trust(Trust::Caller, text)
    }

    /// Returns a callback with the same arrays, this text, and the parameters of another callback.
    pub(crate) fn with_text(self, text: impl Into<Arc<str>>, params: Option<&Callback>) -> Self {
        let (fields, values) = params.map(|other| (other.fields.clone(), other.values.clone())).unwrap_or_default();
        Callback { text: text.into(), fields, values, ..self }
    }

    /// Creates a callback of the library.
    pub(crate) fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self::with_trust(Trust::Library, text)
    }

    fn with_trust(trust: Trust, text: impl Into<Arc<str>>) -> Self {
        let (arrays, fields, values) = (Vec::new(), Vec::new(), Vec::new());
        Callback { text: text.into(), arrays, fields, values, loop_rounds: 0, trust }
    }

    fn array<T: DeviceElement>(mut self, name: &str, array: &Array<T>, access: Access) -> Self {
        self.arrays.push((Slot { name: name.into(), element: T::ELEMENT, access }, array.raw().clone()));
        self
    }

    /// Gives it an array to read, as `load_name(i)`.
    pub fn read<T: DeviceElement>(self, name: &str, array: &Array<T>) -> Self {
        self.array(name, array, Access::Read)
    }

    /// Gives it an array of any type to read.
    pub(crate) fn read_raw(mut self, name: &str, element: Element, array: &RawArray) -> Self {
        self.arrays.push((Slot { name: name.into(), element, access: Access::Read }, array.clone()));
        self
    }

    /// Gives it an array to read and write; no two invocations may touch one element. Not for
    /// transforms, which may call a function for points that are not stored.
    pub fn write<T: DeviceElement>(self, name: &str, array: &Array<T>) -> Self {
        self.array(name, array, Access::ReadWrite)
    }

    /// Gives it an array of `u32` or `i32` that is changed by atomic operations. Not for
    /// transforms, as [`write`](Self::write).
    pub fn atomic<T: DeviceElement>(self, name: &str, array: &Array<T>) -> Self {
        self.array(name, array, Access::Atomic)
    }

    /// Gives it parameters, made with [`kernel_params!`](crate::kernel_params): at most 96 bytes
    /// for all callbacks of a kernel. Fields that WGSL would put elsewhere than Rust are an error
    /// where the callback is given.
    pub fn params<P: KernelParams>(mut self, values: &P) -> Self {
        self.fields = P::fields();
        self.values = bytemuck::bytes_of(values).to_vec();
        self
    }

    /// Sets the maximum number of rounds of loops in one call (0 by default). Searches on drivers
    /// that limit the rounds of an invocation
    /// ([`Capabilities::loop_rounds`](super::Capabilities::loop_rounds)) are cut into portions
    /// accordingly.
    pub fn loop_rounds(mut self, rounds: u32) -> Self {
        self.loop_rounds = rounds;
        self
    }

    /// Returns its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the rounds of loops of one call.
    pub(crate) fn rounds(&self) -> u32 {
        self.loop_rounds
    }

    /// Returns the trust in the text.
    pub(crate) fn trust(&self) -> Trust {
        self.trust
    }

    /// Returns its arrays, in the order of their declarations.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &RawArray> {
        self.arrays.iter().map(|(_, array)| array)
    }

    /// Returns its arrays as they are declared.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.arrays.iter().map(|(slot, _)| slot)
    }

    /// Returns the values of its parameters, to follow those of a kernel and of other callbacks at
    /// a multiple of 16 bytes.
    pub(crate) fn values(&self) -> Vec<u8> {
        let mut values = self.values.clone();
        values.resize(values.len().next_multiple_of(16), 0);
        values
    }

    fn fields(&self) -> String {
        if self.fields.is_empty() { String::new() } else { format!("@align(16) {}", declarations(&self.fields)) }
    }

    /// Returns the declarations of its arrays and its text.
    pub(crate) fn wgsl(&self) -> String {
        let declaration = |slot: &Slot| {
            let (name, element) = (&slot.name, slot.element.wgsl());
            match slot.access {
                Access::Read => format!("var<storage, read> {name}: array<{element}>;\n"),
                Access::ReadWrite => format!("var<storage, read_write> {name}: array<{element}>;\n"),
                Access::Atomic => format!("var<storage, read_write> {name}: array<atomic<{element}>>;\n"),
            }
        };
        self.slots().map(declaration).collect::<String>() + &self.text
    }

    /// A kernel that says `#import module` where the text is to stand, with the text and its
    /// parameters.
    pub(crate) fn bind(&self, source: KernelSource, module: &'static str) -> KernelSource {
        source.callers_module(module, self.wgsl()).more_params(&self.fields())
    }

    /// Returns what distinguishes its kernels from those of other callbacks.
    pub(crate) fn key(&self) -> CallbackKey {
        CallbackKey { text: self.wgsl(), fields: self.fields(), trust: self.trust }
    }

    /// Returns `true` if the text has this definition: its keyword and its name.
    pub(crate) fn defines(&self, definition: &str) -> bool {
        let wanted = words(definition);
        words(&self.text).windows(wanted.len()).any(|found| found == wanted)
    }

    /// Refuses a text without the functions (or other definitions) that `place` calls, and
    /// parameters that WGSL has at other offsets, before a driver says so less clearly.
    pub(crate) fn check(&self, place: &str, definitions: &[&str]) -> Result<(), DeviceError> {
        let misuse = |why: String| Err(DeviceError::misuse(place, why));
        if let Some(missing) = definitions.iter().find(|definition| !self.defines(definition)) {
            return misuse(format!("the text has no `{missing}`"));
        }
        for field in &self.fields {
            let align = match &field.wgsl {
                wgsl if wgsl.starts_with("vec2") => 8,
                wgsl if wgsl.contains("vec4") => 16,
                _ => 4,
            };
            field.check_offset(field.offset.next_multiple_of(align)).or_else(misuse)?;
        }
        Ok(())
    }
}

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
    fn a_definition_is_not_what_a_comment_or_another_name_says() {
        let defines = |text: &str| Callback::new(text).check("a test", &["fn on_load"]).is_ok();
        assert!(defines("fn on_load(value: Real) -> Real { return value; }"));
        assert!(defines("fn\n  on_load (value: Real) -> Real { return value; }"));
        assert!(!defines("// fn on_load(value: Real) as it was\nfn on_store(value: Real) -> Real { return value; }"));
        assert!(!defines("/* fn on_load( */ fn on_load_2(value: Real) -> Real { return value; }"));
        assert!(!defines("fn my_on_load(value: Real) -> Real { return on_load(value); }"));
    }

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
