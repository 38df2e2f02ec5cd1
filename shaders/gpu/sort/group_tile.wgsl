// Tiles of TILE consecutive keys. How many keys count may be known to the device only: their tiles
// are the first of those that were recorded, the others end at once, and tables have no more tiles
// than there are.

const TILE: u32 = GROUP * EACH;

/// Returns the tiles of the first `last` keys.
fn tiles_of(last: u32) -> u32 { return last / TILE + select(0u, 1u, last % TILE > 0u); }
