// A mode times the factors of an operator, for callbacks of transforms (`fft::Spectral`).
//
// `table` holds, for each result, the factors of the three axes, then once the terms of the
// Laplacian.

fn operated(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    let starts = params.table_starts;
    let local = at.xyz - params.table_first.xyz + vec3<u32>(0u, starts.x, starts.y);
    let one = result * starts.z + local;
    let top = load_table(one.x) * load_table(one.y) * load_table(one.z);
    let two = starts.w + local;
    let low = load_table(two.x) + load_table(two.y) + load_table(two.z);
    let constant = params.table_constant;
    let turned = multiply(Complex(Real(constant.x), Real(constant.y)), value);
    return turned * Real(select(top / low, 0.0, low == 0.0));
}
