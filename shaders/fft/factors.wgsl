
// Multiplies each mode by its factor in a table.
fn factor_place(at: vec4<u32>) -> u32 {
    let local = at.xyz - params.factors_first.xyz;
    return (local.x * params.factors_extent.y + local.y) * params.factors_extent.z + local.z;
}
