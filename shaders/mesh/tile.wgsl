// Tiles of cells of a rank's array, each of which one workgroup paints. Along each axis tiles
// differ by one cell at most, the larger ones first, and have TILE_X, TILE_Y and TILE_Z cells at
// most.
//
// The window of a particle begins in one tile and may reach the next one along each axis. A *list*
// holds the particles of a tile that reach the same next tiles, three bits along x, y and z: list
// 8 * tile + bits. So a tile takes its particles from 27 lists: along each axis those of its own
// that stay and that reach on, and those of the tile before that reach on.

const LISTS: u32 = 27u;
const TILE_CELLS: u32 = TILE_X * TILE_Y * TILE_Z;

/// A tile: its first cell in the array, and its cells along each axis.
struct Tile {
    first: vec3<u32>,
    cells: vec3<u32>,
}

/// Returns how many tiles come before a tile along each axis; numbers are in C order.
fn tile_places(number: u32) -> vec3<u32> {
    let line = number / params.tiles.z;
    return vec3<u32>(line / params.tiles.y, line % params.tiles.y, number % params.tiles.z);
}

fn tile_at(places: vec3<u32>) -> Tile {
    let longer = params.longer.xyz;
    let cells = params.shorter.xyz + select(vec3<u32>(0u), vec3<u32>(1u), places < longer);
    return Tile(places * params.shorter.xyz + min(places, longer), cells);
}
