// The square root as IEEE 754 rounds it: roots of drivers may be several units of the last place
// away.

/// Returns the root of a finite number from 0 on. A root s of d is the nearest number if s *
/// before(s) < d <= s * after(s), with the numbers beside it (Tuckerman's test).
fn rounded_sqrt(d: f32) -> f32 {
    var root = sqrt(d);
    if root == 0.0 { return root; }
    for (var n = 0u; n < 4u; n++) {
        let after = bitcast<f32>(bitcast<u32>(root) + 1u);
        if fma(-root, after, d) <= 0.0 { break; }
        root = after;
    }
    for (var n = 0u; n < 4u; n++) {
        let bits = bitcast<u32>(root);
        let before = bitcast<f32>(bits - 1u);
        let rest = fma(-root, before, d);
        // The product is d itself for powers of two and what follows them, and without a fused fma
        // where it is rounded to d.
        if rest > 0.0 || (rest == 0.0 && (bits & 0x7fffffu) > 1u) { break; }
        root = before;
    }
    return root;
}
