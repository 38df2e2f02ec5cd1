// With `flip`, keys are signed numbers or floats: `flip` and `negative` (in params) turn their bits
// into words that are ordered as unsigned numbers.

#if flip
fn ordered(key: u32) -> u32 { return key ^ params.flip ^ (bitcast<u32>(bitcast<i32>(key) >> 31u) & params.negative); }
#else
fn ordered(key: u32) -> u32 { return key; }
#endif
