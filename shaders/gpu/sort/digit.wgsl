// The digit of a key that one pass sorts by. `ordered` (written by the host for the kind of key) turns a key into a
// word that is ordered as an unsigned number.

fn digit(key: u32) -> u32 { return (ordered(key) >> params.shift) & params.mask; }
