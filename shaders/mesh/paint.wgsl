// Paints particles of equal mass onto a mesh of 64-bit fixed-point cells.
//
// Layout: particles as in particle.wgsl; `mesh` holds two u32 per cell, low word first; `faults[0]`
// counts particles that were not painted: not a finite position, or a node outside the array.
//
// Shares are those of shares.wgsl. The high word takes a carry when the low one wraps.
//
// With `wide` a cell is one u64: where a device adds to these, an addition returns nothing and has
// no carry. The cells are the same.
//
// Lines with $ are repeated for each of ROWS rows along z, whose additions are in flight together.
//
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

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
#if wide
var<storage, read_write> mesh: array<atomic<u64>>;
#else
var<storage, read_write> mesh: array<atomic<u32>>;
#endif
var<storage, read_write> faults: array<atomic<u32>>;

#import mesh::particle
#import mesh::each_particle
#import mesh::shares

#if pairs
/// Adds the shares of two nodes of this lane's particle: this lane and its partner add the shares
/// of the first of them together, then those of the second.
fn add_pair(at_0: u32, share_0: u32, at_1: u32, share_1: u32) {
    let kept_at = select(at_0, at_1, is_second);
    let kept = select(share_0, share_1, is_second);
    let given_at = partner(select(at_1, at_0, is_second));
    let given = partner(select(share_1, share_0, is_second));
    let first_at = select(kept_at, given_at, is_second);
    let first = select(kept, given, is_second);
    let second_at = select(given_at, kept_at, is_second);
    let second = select(given, kept, is_second);
#if wide
    if first > 0u { add_mesh(first_at, u64(first)); }
    if second > 0u { add_mesh(second_at, u64(second)); }
#else
    var before_first = first;
    if first > 0u { before_first = add_mesh(2u * first_at, first); }
    var before_second = second;
    if second > 0u { before_second = add_mesh(2u * second_at, second); }
    if before_first + first < before_first { add_mesh(2u * first_at + 1u, 1u); }
    if before_second + second < before_second { add_mesh(2u * second_at + 1u, 1u); }
#endif
}
#endif

fn each_particle(particle: u32) {
    let at = locate(particle);
    let is_painted = at.sane && all_inside(at);
    if is_there && !is_painted { add_faults(0u, 1u); }
#if !pairs
    if !is_painted { return; }
#endif
    let x = takers(at.x, 0u);
    let y = takers(at.y, 1u);
    let z = takers(at.z, 2u);
    let in_x = shares(select(0u, UNIT, is_painted && is_there), x.weights);
    for (var i = 0; i < WIDTH; i++) {
        let row_x = x.places[i] * params.shape.y;
        let in_y = shares(in_x[i], y.weights);
        for (var j = 0; j < WIDTH; j += i32(ROWS)) {
            let row$ = (row_x + y.places[j + $]) * params.shape.z;
            let in$ = shares(in_y[j + $], z.weights);
#if pairs
            add_pair(row$ + z.places[0], in$[0], row$ + z.places[1], in$[1]);
#if tsc
            add_pair(row$ + z.places[2], in$[2], 0u, 0u);
#endif
#else
#if wide
            if in$[@] > 0u { add_mesh(row$ + z.places[@], u64(in$[@])); }
#else
            // Additions before their carries, so that they are in flight together. A share of 0
            // costs none and carries nothing: its variable stays, where a 0 of its own would make
            // compilers wait for each addition in turn.
            var before$@ = in$[@];
            if in$[@] > 0u { before$@ = add_mesh(2u * (row$ + z.places[@]), in$[@]); }
            if before$@ + in$[@] < before$@ { add_mesh(2u * (row$ + z.places[@]) + 1u, 1u); }
#endif
#endif
        }
    }
}

#if pairs
#each_subgroup
#else
#each params.first.w
#endif
