// Paints particles onto tiles of cells in workgroup memory, and writes each cell once: the cells
// of paint.wgsl, in any order of particles.
//
// Layout: particles as in particle.wgsl; `order` and `starts` their lists (tile_order.wgsl); `out`
// as in tile_store.wgsl.
//
// A tile of more than params.tiles.w particles is split among workgroups, which paint that many
// each and add their cells to memory. `work` serves for that. From params.splits.x on it holds:
// the number of split tiles; the number of parts; the numbers of split tiles, of params.splits.y at
// most; for each part the split that it belongs to and its number. The cells of splits come first,
// 2 * TILE_CELLS words each: low words, then high ones. With `parts` this is the kernel that
// paints the parts, otherwise the one for all tiles, which notes those to be split.
//
// Workgroup: GROUP invocations, at least 28. A tile, with `parts` one part after the other.
// Memory: 12.5 KiB.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
#if listed
var<storage, read> site: array<vec2<u32>>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read> order: array<u32>;
var<storage, read> starts: array<u32>;
var<storage, read_write> work: array<atomic<u32>>;
#if !parts
#if density
var<storage, read_write> out: array<f32>;
#else
var<storage, read_write> out: array<vec2<u32>>;
#endif
#endif

#import mesh::particle
#import mesh::shares
#import mesh::tile
#if !parts
#import mesh::tile_store
#endif

// The low word of each cell; and the carries to its high word, two cells per word. A workgroup
// paints at most 2^14 particles, whose units in a cell carry 2^10 times at most.
var<workgroup> low: array<atomic<u32>, TILE_CELLS>;
var<workgroup> carries: array<atomic<u32>, TILE_CELLS / 2u>;
// Where each of the tile's lists begins in `order`, its length, and the particles of earlier lists.
var<workgroup> begins: array<u32, LISTS>;
var<workgroup> lengths: array<u32, LISTS>;
var<workgroup> earlier: array<u32, LISTS + 1u>;
#if parts
var<workgroup> all_parts: u32;
#else
// The number of this tile among those that are split, and of its first part.
var<workgroup> split: u32;
var<workgroup> first_part: u32;
#endif

/// Returns the tile before along an axis; before the first one comes the last one. Where the axis
/// does not close on itself, no particle of that reaches on.
fn tile_before(place: u32, axis: u32) -> u32 { return select(place, params.tiles[axis], place == 0u) - 1u; }

/// Sets the beginning and the length of list `number` of a tile.
fn find_list(number: u32, places: vec3<u32>) {
    // Along each axis 0: own particles that stay; 1: those that reach on; 2: the same of the tile
    // before.
    let kind = vec3<u32>(number / 9u, number / 3u % 3u, number % 3u);
    let x = select(places.x, tile_before(places.x, 0u), kind.x == 2u);
    let y = select(places.y, tile_before(places.y, 1u), kind.y == 2u);
    let z = select(places.z, tile_before(places.z, 2u), kind.z == 2u);
    let reach = min(kind, vec3<u32>(1u));
    let list = 8u * ((x * params.tiles.y + y) * params.tiles.z + z) + 4u * reach.x + 2u * reach.y + reach.z;
    let begin = load_starts(list);
    begins[number] = begin;
    // An axis with one tile has no particles that reach on.
    lengths[number] = load_starts(list + 1u) - begin;
}

/// Sets how many particles come before list `number`; for LISTS, all that the tile takes.
fn add_up(number: u32) {
    var sum = 0u;
    for (var n = 0u; n < number; n++) { sum += lengths[n]; }
    earlier[number] = sum;
}

/// Returns particle `i` of the tile.
fn particle_of(i: u32) -> u32 {
    // The last list with no more particles before it.
    var list = 0u;
    for (var step = 16u; step > 0u; step /= 2u) {
        if list + step < LISTS && earlier[list + step] <= i { list += step; }
    }
    return load_order(begins[list] + i - earlier[list]);
}

fn add_units(cell: u32, units: u32) {
    if units == 0u { return; }
    let before = atomicAdd(&low[cell], units);
    if before + units < before { atomicAdd(&carries[cell / 2u], 1u << (16u * (cell & 1u))); }
}

/// Returns both words of a cell.
fn units_of(cell: u32) -> vec2<u32> {
    return vec2<u32>(atomicLoad(&low[cell]), (atomicLoad(&carries[cell / 2u]) >> (16u * (cell & 1u))) & 0xffffu);
}

/// Adds the shares of those nodes of a particle that belong to the tile.
fn paint(particle: u32, tile: Tile) {
    let at = locate(particle);
    let x = takers(at.x, 0u);
    let y = takers(at.y, 1u);
    let z = takers(at.z, 2u);
    let in_x = shares(UNIT, x.weights);
    for (var i = 0; i < WIDTH; i++) {
        // Beyond the tile on either side: the difference wraps around.
        let cell_x = x.places[i] - tile.first.x;
        if cell_x < tile.cells.x {
            let in_y = shares(in_x[i], y.weights);
            for (var j = 0; j < WIDTH; j++) {
                let cell_y = y.places[j] - tile.first.y;
                if cell_y < tile.cells.y {
                    let in_z = shares(in_y[j], z.weights);
                    let row = (cell_x * TILE_Y + cell_y) * TILE_Z;
                    let cell@ = z.places[@] - tile.first.z;
                    if cell@ < tile.cells.z { add_units(row + cell@, in_z[@]); }
                }
            }
        }
    }
}

fn clear(lane: u32) {
    for (var cell = lane; cell < TILE_CELLS; cell += GROUP) { atomicStore(&low[cell], 0u); }
    for (var pair = lane; pair < TILE_CELLS / 2u; pair += GROUP) { atomicStore(&carries[pair], 0u); }
}

#if parts
/// Paints a part: the number of its split and its own among the parts of that.
fn paint_part(part: u32, lane: u32) {
    let at = params.splits.x + 2u + params.splits.y + 2u * part;
    let split = load_work(at);
    let first = load_work(at + 1u) * params.tiles.w;
    let places = tile_places(load_work(params.splits.x + 2u + split));
    let tile = tile_at(places);
    clear(lane);
    if lane < LISTS { find_list(lane, places); }
    workgroupBarrier();
    if lane <= LISTS { add_up(lane); }
    workgroupBarrier();
    let end = min(earlier[LISTS], first + params.tiles.w);
    for (var i = first + lane; i < end; i += GROUP) { paint(particle_of(i), tile); }
    workgroupBarrier();
    let place = 2u * TILE_CELLS * split;
    for (var cell = lane; cell < TILE_CELLS; cell += GROUP) {
        let units = units_of(cell);
        if any(units != vec2<u32>(0u)) {
            let before = add_work(place + cell, units.x);
            let high = units.y + select(0u, 1u, before + units.x < before);
            if high != 0u { add_work(place + TILE_CELLS + cell, high); }
        }
    }
    workgroupBarrier();
}

fn each_workgroup(number: u32, lane: u32) {
    if lane == 0u { all_parts = load_work(params.splits.x + 1u); }
    let parts = workgroupUniformLoad(&all_parts);
    for (var part = number; part < parts; part += params.splits.z) { paint_part(part, lane); }
}
#else
/// Notes that a tile with this number of particles is split.
fn claim(number: u32, particles: u32) {
    split = add_work(params.splits.x, 1u);
    first_part = add_work(params.splits.x + 1u, (particles - 1u) / params.tiles.w + 1u);
    store_work(params.splits.x + 2u + split, number);
}

/// Clears the cells of the split and notes its parts.
fn prepare_split(particles: u32, lane: u32) {
    let place = 2u * TILE_CELLS * split;
    for (var word = lane; word < 2u * TILE_CELLS; word += GROUP) { store_work(place + word, 0u); }
    let parts = (particles - 1u) / params.tiles.w + 1u;
    let at = params.splits.x + 2u + params.splits.y + 2u * first_part;
    for (var part = lane; part < parts; part += GROUP) {
        store_work(at + 2u * part, split);
        store_work(at + 2u * part + 1u, part);
    }
}

fn each_workgroup(number: u32, lane: u32) {
    if number >= params.tiles.x * params.tiles.y * params.tiles.z { return; }
    let places = tile_places(number);
    let tile = tile_at(places);
    clear(lane);
    if lane < LISTS { find_list(lane, places); }
    workgroupBarrier();
    if lane <= LISTS { add_up(lane); }
    if lane == LISTS && earlier[LISTS] > params.tiles.w { claim(number, earlier[LISTS]); }
    workgroupBarrier();
    let particles = earlier[LISTS];
    let is_split = particles > params.tiles.w;
    if is_split { prepare_split(particles, lane); }
    let end = select(particles, 0u, is_split);
    for (var i = lane; i < end; i += GROUP) { paint(particle_of(i), tile); }
    workgroupBarrier();
    if is_split { return; }
    for (var cell = lane; cell < TILE_CELLS; cell += GROUP) { store_cell(tile, cell, units_of(cell)); }
}
#endif

#each_workgroup
