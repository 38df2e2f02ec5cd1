// Keys of two words, of which the `params.bits` lowest bits count: (high, low).

fn wide_key(i: u32) -> vec2<u32> { return vec2<u32>(load_high(i) & params.high_mask, load_low(i)); }

fn precedes(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x < b.x || (a.x == b.x && a.y < b.y); }
