// What a reduction makes of two values (`join`), and the value that changes nothing (`identity`).
// Values are f32, u32 or i32, of one operation: `sum`, `min`, or neither for the maximum. IDENTITY
// are the bits of the identity.

// WGSL has no constants for infinities; the bits of a variable may be anything.
fn identity() -> Value { var bits = IDENTITY; return bitcast<Value>(bits); }

#if sum
fn join(a: Value, b: Value) -> Value { return a + b; }
#else
#if min
fn join(a: Value, b: Value) -> Value { return min(a, b); }
#else
fn join(a: Value, b: Value) -> Value { return max(a, b); }
#endif
#endif
