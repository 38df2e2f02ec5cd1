// The Z-order (Morton) curve.

fn along3(x: u32, y: u32, z: u32) -> vec2<u32> { return interleave3(x, y, z); }
fn along2(x: u32, y: u32) -> vec2<u32> { return interleave2(x, y); }
