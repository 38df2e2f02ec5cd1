// The components of a force from two fields, by modes along y and z: the imaginary unit times the
// first field, times the slope along y and along z and the second field, which is the potential.
//
// `slopes` holds those of all modes along y, then along z.

fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    var slope = Real(1.0);
    if result > 0u { slope = load_slopes(select(params.slopes_start.x + at.z, at.y, result == 1u)); }
    return Complex(-(slope * value.y), slope * value.x);
}
