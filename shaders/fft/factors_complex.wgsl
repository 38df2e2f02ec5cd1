
fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    return multiply(value, load_factors(factor_place(at)));
}
