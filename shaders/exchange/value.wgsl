// A `Value` of terms of sums: a number, or with `quads` four. Its greatest magnitude as bits, of
// which those of NaN and infinity are the greatest, and its sum as an integer of two words.

#import gpu::fixed

#if quads
fn bits_of(terms: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(terms) & vec4<u32>(0x7fffffffu);
    let most = max(bits.xy, bits.zw);
    return max(most.x, most.y);
}

// SwiftShader inlines functions. It compiles four copies of `fixed` for each sum for minutes, and a
// loop in a second.
fn integer(terms: vec4<f32>, point: i32) -> vec2<u32> {
    var sum = fixed(terms.x, point);
    for (var n = 1u; n < 4u; n++) { sum = plus(sum, fixed(terms[n], point)); }
    return sum;
}
#else
fn bits_of(term: f32) -> u32 { return bitcast<u32>(term) & 0x7fffffffu; }

fn integer(term: f32, point: i32) -> vec2<u32> { return fixed(term, point); }
#endif
