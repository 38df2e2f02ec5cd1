// The bit of a word above its code that says that all keys with this code are equal.

const EXACT: u32 = 0x80000000u;
