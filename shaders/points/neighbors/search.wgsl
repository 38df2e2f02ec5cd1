// Group search: the queries of one group walk a tree together.
//
// A group is LANES * SLOTS queries that lie next to each other on a curve: SLOTS in each of LANES invocations, which share what
// they load. Lines with a `#` are written once for each slot. Written elsewhere is
// - what is done for a query: `start#`, `ready` after those of all slots, `finish#`;
// - what is wanted: `wants` says whether a lane's queries reach a node, `widest` how far any of the group does; `is_news`, asked after `at_leaf`,
//   whether a source can matter, `wanted_hits` to which of the slots that it is near;
// - what becomes of a source: `admit#` for each slot that wants it, then `offered`;
// - `push`, which puts the children of a node on the stack.
//
// Layout: `source` holds the tree's points (DIMS words each, along its curve), `order` the number of each in the input, `box` eight
// words a node (bits of low and high, the least number of a point, the length of the diagonal), level after level from the leaves; `query` and
// `number` are for the queries what `source` and `order` are for the sources.
// A leaf is LEAF points, a node FAN nodes of the level below. Coordinates are taken in units of the search (measure.wgsl) as they are loaded.
//
// Workgroup: LANES invocations and one group, or GROUP invocations with a group each if LANES is 1. No workgroup memory;
// a stack of STACK words an invocation.
//
// A node is entered if any lane wants it: a test of the group's box alone lets one outlier drag its group
// through the whole tree. Along a periodic axis the nearest image counts: a difference d0 above half the side becomes
// (query - side) - source, one below its negative query - (source - side). Either shift is exact where it is taken, so a
// distance does not depend on which nodes a pair was found in.
//
// Some drivers end all loops of an invocation silently after so many rounds (llvmpipe: 65,535). Where a walk could take more, it
// stops after `params.rounds`, and leaves in `cursor`, a word a group, where it has to go on (NONE: it is done): the next dispatch
// goes on from there. `undone` says that a leaf has to be looked at again, which stops the walk at it too, `settled` that nothing
// more can come of a node.

const LEAF: u32 = 32u;
const FAN: u32 = 8u;
const STACK: u32 = 80u;
const NONE: u32 = 0xffffffffu;
/// Beyond all coordinates.
const FAR: f32 = 8e37;
/// What only says where to look is taken a little nearer than it is: compilers round the same sum in different ways.
const CLOSER: f32 = 0.999999;

struct Bounds {
    low: vec3<f32>,
    high: vec3<f32>,
}

struct Node {
    bounds: Bounds,
    /// The least number of its points.
    least: u32,
    /// As a difference is loaded.
    diagonal: f32,
}

/// What is taken from queries and from sources, if all pairs of theirs take one image.
struct Image {
    by_query: vec3<f32>,
    by_source: vec3<f32>,
    mixed: bool,
}

var<private> lane: u32;
/// The query of the first slot.
var<private> first_row: u32;
var<private> stack: array<u32, STACK>;
var<private> top: u32;
/// Of the leaf that was found last.
var<private> leaf_bounds: Bounds;
/// Bounds of the group's queries.
var<private> around: Bounds;
var<private> x#: f32;
var<private> y#: f32;
var<private> z#: f32;
/// Squared; negative for a place without a query.
var<private> reach#: f32;
/// Number of the query in its input.
var<private> number#: u32;
/// At a distance of `reach#`, only sources with a lower number are wanted.
var<private> worst#: u32;
/// Parameters that inner loops use: reading them again and again from memory is dear where memory may have changed.
var<private> side: vec3<f32>;
var<private> half_side: vec3<f32>;
var<private> sources: u32;
var<private> load_unit: f32;
var<private> skip: u32;
/// Rounds of loops so far, the leaf to begin with, and whether the walk has stopped at it.
var<private> rounds: u32;
var<private> begin_at: u32;
var<private> stopped: bool;
/// Slots whose query reaches the source in question. `wanted_hits` says which of them count.
var<private> hits: u32;
/// Leaves that were looked at.
var<private> leaves: u32;

/// Where results of a query go.
fn line_of(row: u32, number: u32) -> u32 {
    return select(row - params.base, number, params.by_number == 1u);
}

/// First node of a level, counted from the leaves.
fn first_of(level: u32) -> u32 {
    return params.starts[level >> 2u][level & 3u];
}

fn box_word(node: u32, word: u32) -> f32 {
    return bitcast<f32>(load_box(8u * node + word));
}

fn bounds_of(node: u32) -> Bounds {
    return Bounds(
        load_unit * vec3<f32>(box_word(node, 0u), box_word(node, 1u), box_word(node, 2u)),
        load_unit * vec3<f32>(box_word(node, 3u), box_word(node, 4u), box_word(node, 5u)),
    );
}

/// Distance along each axis from a point to bounds, or to their nearest image, not yet measured.
fn gap(at: vec3<f32>, b: Bounds) -> vec3<f32> {
    let plain = max(b.low - at, at - b.high);
    return max(min(plain, min(at - (b.high - side), b.low - (at - side))), vec3<f32>(0.0));
}

/// The same between two bounds.
fn gap_between(a: Bounds, b: Bounds) -> vec3<f32> {
    let plain = max(b.low - a.high, a.low - b.high);
    return max(min(plain, min(a.low - (b.high - side), b.low - (a.high - side))), vec3<f32>(0.0));
}

/// Which images the queries of the group and the points of `b` take.
fn image_of(b: Bounds) -> Image {
    // Range of the differences query - source.
    let below = around.low - b.high;
    let above = around.high - b.low;
    let by_query = select(vec3<f32>(0.0), side, below > half_side);
    let by_source = select(vec3<f32>(0.0), side, above < -half_side);
    let mixed = any((above > half_side) & (below <= half_side)) || any((below < -half_side) & (above >= -half_side));
    return Image(by_query, by_source, mixed);
}

/// Difference to the nearest image of a source.
fn nearest(q: f32, s: f32, axis: u32) -> f32 {
    let d = q - s;
    let l = side[axis];
    let h = half_side[axis];
    return select(select(d, q - (s - l), d < -h), (q - l) - s, d > h);
}

/// Offers the points of a leaf to all queries of the group: first each lane finds those that any query of its own reaches, for mostly
/// there are none, then it offers them one by one.
fn scan(leaf: u32, b: Bounds) {
    let image = image_of(b);
    let low = around.low - image.by_query;
    let high = around.high - image.by_query;
    let most = widest();
    at_leaf();
    let qx# = x# - image.by_query.x;
    let qy# = y# - image.by_query.y;
    let qz# = z# - image.by_query.z;
    var met = 0u;
    for (var t = 0u; t < LEAF; t += LANES) {
        let j = leaf * LEAF + t + lane;
        var at = vec3<f32>(0.0);
        if j < sources { at = source_at(j) - image.by_source; }
        // Most sources of a leaf at the edge of what is reached are near none of the queries.
        let out = max(max(low - at, at - high), vec3<f32>(0.0));
        let inside = j < sources && (image.mixed || square_of(measured(out)) * CLOSER <= most);
        let near = lanes_where(inside && is_news(j));
        var left = select(near, 0u, image.mixed);
        while left != 0u {
            let n = firstTrailingBit(left);
            left &= left - 1u;
            let sx = share(at.x, n);
            let sy = share(at.y, n);
            let sz = share(at.z, n);
            let dx# = qx# - sx;
            let dy# = qy# - sy;
            let dz# = qz# - sz;
            hits = 0u;
            hits |= select(0u, 1u << #u, square(apart(dx#), apart(dy#), apart(dz#)) * CLOSER <= reach#);
            if wanted_hits(leaf * LEAF + t + n) != 0u { met |= 1u << (t + n); }
        }
        // Where pairs take different images, all are offered.
        met |= select(0u, near << t, image.mixed);
    }
    while met != 0u {
        let j = leaf * LEAF + firstTrailingBit(met);
        met &= met - 1u;
        let at = source_at(j);
        let s = load_order(j);
        let dx# = nearest(x#, at.x, 0u);
        let dy# = nearest(y#, at.y, 1u);
        let dz# = nearest(z#, at.z, 2u);
        let d# = square(apart(dx#), apart(dy#), apart(dz#));
        hits = 0u;
        hits |= select(0u, 1u << #u, d# <= reach#);
        hits = wanted_hits(j);
        if extractBits(hits, #u, 1u) == 1u { admit#(d#, s); }
        offered(s);
    }
}

/// The next leaf that is wanted, with its bounds; NONE if there is no more, or the walk has stopped.
fn next_leaf(own_leaf: u32) -> u32 {
    while top > 0u {
        top--;
        let level = stack[top] >> 28u;
        let node = stack[top] & 0xfffffffu;
        if level < params.levels {
            let shared_node = node_shared(first_of(level) + node);
            if !any_of(wants(shared_node)) { continue; }
            if BOUNDED && any_of(rounds > params.rounds) {
                stop_at(node << (3u * level));
                break;
            }
            if settled(level, node, shared_node) { continue; }
            if level == 0u {
                if node == own_leaf { continue; }
                leaf_bounds = shared_node.bounds;
                return node;
            }
        }
        let first = node * FAN;
        let base = first_of(level - 1u) + first;
        let count = min(FAN, first_of(level) - base);
        rounds += 2u * count + 2u;
        push(base, first, count, level - 1u);
    }
    return NONE;
}

fn stop_at(leaf: u32) {
    stopped = true;
    begin_at = leaf;
}

fn walk(own_leaf: u32) {
    stack[0] = params.levels << 28u;
    top = 1u;
    loop {
        let leaf = next_leaf(own_leaf);
        if leaf == NONE { break; }
        rounds += params.leaf_rounds;
        leaves++;
        scan(leaf, leaf_bounds);
        if undone() {
            stop_at(leaf);
            break;
        }
    }
}

fn enter#(row: u32) {
    reach# = -1.0;
    if row >= params.queries { return; }
    let at = query_at(row);
    x# = at.x;
    y# = at.y;
    z# = at.z;
    number# = number_of(row);
    start#(row);
    if reach# >= 0.0 { around = Bounds(min(around.low, at), max(around.high, at)); }
}

fn search(group_of_queries: u32) {
    side = params.side.xyz;
    half_side = params.half_side.xyz;
    sources = params.sources;
    skip = params.skip;
    load_unit = params.load_unit;
    zoom = params.zoom;
    farthest = params.farthest;
    // A workgroup of groups may have more than there are.
    if group_of_queries * (LANES * SLOTS) >= params.queries { return; }
    begin_at = first_leaf(group_of_queries - params.base / (LANES * SLOTS));
    if begin_at == NONE { return; }
    around = Bounds(vec3<f32>(FAR), vec3<f32>(-FAR));
    first_row = group_of_queries * (LANES * SLOTS) + lane * SLOTS;
    let row# = first_row + #u;
    worst# = NONE;
    enter#(row#);
    around = Bounds(least_of(around.low), most_of(around.high));
    ready();
    if sources > 0u && around.low.x <= around.high.x {
        let own = own_leaf(group_of_queries);
        if own != NONE { scan(own, node_shared(own).bounds); }
        walk(own);
    }
    if row# < params.queries { finish#(row#); }
    if lane == 0u { leave(group_of_queries - params.base / (LANES * SLOTS)); }
}
