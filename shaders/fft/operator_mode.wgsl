
// Each result is an operator times the mode.
fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex { return operated(value, at, result); }
