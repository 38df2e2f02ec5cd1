// Directions of a preconditioner and a vector y, over two kinds of parts: fields and others. With
// `updates` multiples of the directions are added to y, with the bits of one update after the
// other. With `measures` the greatest magnitudes of the products of y with each direction are
// found, and with `adds` the sums of these products, which need the magnitudes.
//
// Layout: an element is a `Value`, a number or four of them. `directions` params.directions vectors
// of params.count elements one after the other; `tiles` the numbers of runs of TILE elements of
// these parts, those of fields first; the layout of `words` is in direction_words.wgsl. Lines with
// a `$` are written once for each direction.
// Workgroup: GROUP invocations, params.per elements of one kind each, neighbors next to each other.
// Workgroup memory: two words for each direction.

var<uniform> params: Params;
var<storage, read> directions: array<Value>;
var<storage, read> tiles: array<u32>;
#if updates
var<storage, read_write> y: array<Value>;
#else
var<storage, read> y: array<Value>;
#endif
var<storage, read_write> words: array<atomic<u32>>;

#import exchange::value
#import inference::direction_words

var<workgroup> here: array<atomic<u32>, 2 * DIRECTIONS>;

fn factor(kind: u32, n: u32) -> f32 { return bitcast<f32>(load_words(FACTORS + kind * DIRECTIONS + n)); }

fn point_of(kind: u32, n: u32) -> i32 {
    let bits = select(params.field_bits, params.other_bits, kind == OTHERS);
    return i32(bits) - top_of(load_words(MOST + kind * DIRECTIONS + n));
}

#if adds
/// Adds to a sum of the workgroup.
fn add(n: u32, own: vec2<u32>) {
    let before = atomicAdd(&here[2u * n], own.x);
    atomicAdd(&here[2u * n + 1u], own.y + select(0u, 1u, before + own.x < before));
}
#endif

fn each_workgroup(number: u32, lane: u32) {
    for (var n = lane; n < 2u * DIRECTIONS; n += GROUP) { atomicStore(&here[n], 0u); }
    workgroupBarrier();
    // The first workgroups have fields, so that each adds to sums of one kind.
    let kind = select(FIELDS, OTHERS, number >= params.field_groups);
    let block = number - select(0u, params.field_groups, kind == OTHERS);
    let first = select(0u, params.field_tiles, kind == OTHERS);
    let end = select(params.field_tiles, params.tiles, kind == OTHERS);
#if updates
    let factor$ = factor(kind, $u);
#endif
#if measures
    var most$ = 0u;
#endif
#if adds
    let point$ = point_of(kind, $u);
    var sum$ = vec2<u32>(0u);
#endif
    for (var item = 0u; item < params.per; item++) {
        let place = (block * params.per + item) * GROUP + lane;
        let tile = first + place / TILE;
        if tile >= end { break; }
        let i = load_tiles(tile) * TILE + place % TILE;
        if i >= params.count { continue; }
        var value = load_y(i);
#if updates
        if $u < params.directions { value = fma(Value(factor$), load_directions($u * params.count + i), value); }
        store_y(i, value);
#endif
#if measures
        if $u < params.directions { most$ = max(most$, bits_of(load_directions($u * params.count + i) * value)); }
#endif
#if adds
        if $u < params.directions { sum$ = plus(sum$, integer(load_directions($u * params.count + i) * value, point$)); }
#endif
    }
#if measures
    atomicMax(&here[$u], most$);
    workgroupBarrier();
    for (var n = lane; n < params.directions; n += GROUP) {
        max_words(MOST + kind * DIRECTIONS + n, atomicLoad(&here[n]));
    }
#endif
#if adds
    add($u, sum$);
    workgroupBarrier();
    for (var n = lane; n < params.directions; n += GROUP) {
        let low = atomicLoad(&here[2u * n]);
        let at = SUMS + 2u * (kind * DIRECTIONS + n);
        let before = add_words(at, low);
        let high = atomicLoad(&here[2u * n + 1u]) + select(0u, 1u, before + low < before);
        if high != 0u { add_words(at + 1u, high); }
    }
#endif
}

#each_workgroup
