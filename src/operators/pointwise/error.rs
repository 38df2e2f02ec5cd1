//! Errors of pointwise functions.

use wgpu::naga::Span;

/// A text that is not a pointwise function, or that cannot be differentiated.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointwiseError {
    /// It is not WGSL; what the compiler says, with the line.
    #[error("the pointwise function is not valid WGSL:\n{0}")]
    Wgsl(String),
    /// It has something that pointwise functions cannot have.
    #[error("line {line} of the pointwise function: {why}\n    {text}")]
    Unsupported {
        /// The line, from 1 on.
        line: u32,
        /// The line's text.
        text: String,
        /// The unsupported part, and what to write instead.
        why: String,
    },
    /// The function is missing, or its arguments or its result are not numbers or vectors.
    #[error("{0}")]
    Signature(String),
    /// Functions that do not fit together.
    #[error("{0}")]
    Mismatch(String),
}

message_debug!(PointwiseError);

impl PointwiseError {
    pub(super) fn at(source: &str, span: Span, why: impl Into<String>) -> Self {
        if !span.is_defined() {
            return PointwiseError::Signature(why.into());
        }
        let line = span.location(source).line_number;
        let text = source.lines().nth(line as usize - 1).unwrap_or_default().trim().to_string();
        PointwiseError::Unsupported { line, text, why: why.into() }
    }
}
