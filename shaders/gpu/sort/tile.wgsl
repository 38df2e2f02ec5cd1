// The keys of a tile of `params.tile` consecutive ones, of which the first `last` count: the first key, and the one behind the last.

fn keys_of(tile: u32, last: u32) -> vec2<u32> {
    let begin = min(tile * params.tile, last);
    return vec2<u32>(begin, begin + min(params.tile, last - begin));
}
