// Writes a cell of a tile.
//
// With `density` `out` holds the density of each cell, otherwise its two words, low word first.

#import mesh::painted_density

/// Writes cell `cell` of the TILE_CELLS of a tile, unless the tile has fewer.
fn store_cell(tile: Tile, cell: u32, units: vec2<u32>) {
    let at = vec3<u32>(cell / (TILE_Y * TILE_Z), cell / TILE_Z % TILE_Y, cell % TILE_Z);
    if any(at >= tile.cells) { return; }
    let place = tile.first + at;
    let i = (place.x * params.shape.y + place.y) * params.shape.z + place.z;
#if density
    store_out(i, painted_density(units, params.by));
#else
    store_out(i, units);
#endif
}
