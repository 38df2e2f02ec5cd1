// The keys of a tile, of `params.tiles` equal parts of the first `last` keys: the first key, and
// the one behind the last. How many count may be known to the device only: few are shared out among
// all tiles, too, since tables have only the tiles that threads need.

/// Returns the tiles of a table: all, also those without keys, unless no tile has keys.
fn tiles_of(last: u32) -> u32 { return select(0u, params.tiles, last > 0u); }

fn keys_of(tile: u32, last: u32) -> vec2<u32> {
    if last == 0u { return vec2<u32>(0u); }
    let each = (last - 1u) / params.tiles + 1u;
    if tile > (last - 1u) / each { return vec2<u32>(0u); }
    let begin = tile * each;
    return vec2<u32>(begin, begin + min(each, last - begin));
}
