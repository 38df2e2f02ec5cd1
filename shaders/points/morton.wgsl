// The Z-order (Morton) curve: the bits of a cell, interleaved.

#import points::interleave

/// Returns the key of a cell of 21 bits per axis.
fn key3(x: u32, y: u32, z: u32) -> vec2<u32> { return interleave3(x, y, z); }

/// Returns the key of a cell of 31 bits per axis.
fn key2(x: u32, y: u32) -> vec2<u32> { return interleave2(x, y); }
