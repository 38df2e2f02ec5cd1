// Numbers of 64 bits in two words: (high, low).

fn precedes(a: vec2<u32>, b: vec2<u32>) -> bool { return (a.x < b.x) | ((a.x == b.x) & (a.y < b.y)); }

fn minus(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x - b.x - select(0u, 1u, a.y < b.y), a.y - b.y); }

/// A number without its `shift` lowest bits, if what is left fits one word.
fn shifted(a: vec2<u32>, shift: u32) -> u32 {
    if shift >= 32u { return a.x >> (shift - 32u); }
    return (a.y >> shift) | select(a.x << (32u - shift), 0u, shift == 0u);
}
