// Group search: the queries of one group walk a tree together, each with a reach of its own.
//
// A group is LANES * SLOTS queries that lie next to each other on a curve: SLOTS in each of LANES invocations, which share what
// they load. Lines with a `#` are written once for each slot. What is done with a source in reach is the business of
// `start#`, `admit#` and `finish#`, which are written elsewhere.
//
// Layout: `source` holds the tree's points (DIMS words each, along its curve), `order` the number of each in the input, `box` eight
// words a node (bits of low and high, the least number of a point, the squared diagonal), level after level from the leaves; `query` and
// `number` are for the queries what `source` and `order` are for the sources.
// A leaf is LEAF points, a node FAN nodes of the level below. Coordinates are scaled such that the whole has extent 1.
//
// Workgroup: LANES invocations and one group, or GROUP invocations with a group each if LANES is 1. No workgroup memory;
// a stack of STACK words an invocation.
//
// A node is entered if any query's own reach touches it: a test of the group's box alone lets one outlier drag its group
// through the whole tree. Along a periodic axis the nearest image counts: a difference d0 above half the side becomes
// (query - side) - source, one below its negative query - (source - side). Either shift is exact where it is taken, so a
// distance does not depend on which nodes a pair was found in.
//
// Some drivers end all loops of an invocation silently after so many rounds (llvmpipe: 65,535). Where a walk could take more, it
// stops after `params.rounds`, and leaves in `cursor`, a word a group, where it has to go on (NONE: it is done): the next dispatch
// goes through the leaves in their order (ORDERED) from there. `undone` says that a leaf has to be looked at again, which stops the walk
// at it too; `settled` that nothing more can come of a node, and `matters` that something may of the sources that the lanes hold,
// whose numbers `index_of` gives (NONE: none is near).

const LEAF: u32 = 32u;
const FAN: u32 = 8u;
const STACK: u32 = 80u;
const NONE: u32 = 0xffffffffu;
/// Farther than anything: squared, it is beyond NOWHERE.
const FAR: f32 = 1.5e19;
/// A squared distance that nothing has.
const NOWHERE: f32 = 4e37;
/// Bounds are taken a little nearer than they are, for rounding.
const CLOSER: f32 = 0.999999;

struct Bounds {
    low: vec3<f32>,
    high: vec3<f32>,
}

struct Node {
    bounds: Bounds,
    /// The least number of its points.
    least: u32,
    /// Squared.
    diagonal: f32,
}

var<private> lane: u32;
var<private> stack: array<u32, STACK>;
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
var<private> skip: u32;
/// Rounds of loops so far, the leaf to begin with, and whether the walk has stopped at it.
var<private> rounds: u32;
var<private> begin_at: u32;
var<private> stopped: bool;
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

fn widest() -> f32 {
    var most = -1.0;
    most = max(most, reach#);
    return widest_of(most);
}

fn box_word(node: u32, word: u32) -> f32 {
    return bitcast<f32>(load_box(8u * node + word));
}

fn bounds_of(node: u32) -> Bounds {
    return Bounds(
        vec3<f32>(box_word(node, 0u), box_word(node, 1u), box_word(node, 2u)),
        vec3<f32>(box_word(node, 3u), box_word(node, 4u), box_word(node, 5u)),
    );
}

/// Distance along each axis from a point to bounds, or to their nearest image.
fn gap(at: vec3<f32>, b: Bounds) -> vec3<f32> {
    let plain = max(b.low - at, at - b.high);
    return max(min(plain, min(at - (b.high - side), b.low - (at - side))), vec3<f32>(0.0));
}

/// The same between two bounds.
fn gap_between(a: Bounds, b: Bounds) -> vec3<f32> {
    let plain = max(b.low - a.high, a.low - b.high);
    return max(min(plain, min(a.low - (b.high - side), b.low - (a.high - side))), vec3<f32>(0.0));
}

/// Where many points coincide, their numbers tell that they are not wanted.
fn touches(at: vec3<f32>, node: Node, reach: f32, worst: u32) -> bool {
    let g = gap(at, node.bounds);
    return dot(g, g) * CLOSER <= reach && (reach > 0.0 || node.least < worst);
}

fn may_reach(dx: f32, dy: f32, dz: f32, reach: f32) -> bool {
    return (dx * dx + dy * dy + dz * dz) * CLOSER <= reach;
}

/// Offers the points of a leaf to all queries of the group.
fn scan(leaf: u32, b: Bounds) {
    // Range of the differences query - source.
    let below = around.low - b.high;
    let above = around.high - b.low;
    let by_query = select(vec3<f32>(0.0), side, below > half_side);
    let by_source = select(vec3<f32>(0.0), side, above < -half_side);
    let mixed = any((above > half_side) & (below <= half_side)) || any((below < -half_side) & (above >= -half_side));
    if mixed {
        scan_mixed(leaf);
        return;
    }
    // Most sources of a leaf at the edge of what is reached are near none of the queries.
    let low = around.low - by_query;
    let high = around.high - by_query;
    let most = widest();
    let qx# = x# - by_query.x;
    let qy# = y# - by_query.y;
    let qz# = z# - by_query.z;
    for (var t = 0u; t < LEAF; t += LANES) {
        let j = leaf * LEAF + t + lane;
        var at = vec3<f32>(FAR, 0.0, 0.0);
        if j < sources { at = source_at(j) - by_source; }
        let out = max(max(low - at, at - high), vec3<f32>(0.0));
        let inside = dot(out, out) * CLOSER <= most;
        let near = lanes_where(inside);
        if near == 0u { continue; }
        var index = NONE;
        if inside { index = index_of(j); }
        if !matters(index) { continue; }
        for (var m = 0u; m < LANES; m += BATCH) {
            if extractBits(near, m, BATCH) == 0u { continue; }
            // Mostly nothing is near enough: that is found out for a batch at once.
            let sx@ = share(at.x, m + @u);
            let sy@ = share(at.y, m + @u);
            let sz@ = share(at.z, m + @u);
            var hit = false;
            hit = hit | may_reach(qx# - sx@, qy# - sy@, qz# - sz@, reach#);
            if !any_of(hit) { continue; }
            for (var n = m; n < m + BATCH; n++) {
                if extractBits(near, n, 1u) == 0u { continue; }
                let sx = share(at.x, n);
                let sy = share(at.y, n);
                let sz = share(at.z, n);
                let s = share_index(index, n);
                let dx# = qx# - sx;
                let dy# = qy# - sy;
                let dz# = qz# - sz;
                let d# = dx# * dx# + dy# * dy# + dz# * dz#;
                if d# <= reach# { admit#(d#, s); }
            }
        }
    }
}

/// Difference to the nearest image of a source.
fn nearest(q: f32, s: f32, axis: u32) -> f32 {
    let d = q - s;
    let l = side[axis];
    let h = half_side[axis];
    return select(select(d, q - (s - l), d < -h), (q - l) - s, d > h);
}

/// The same where the pairs of the leaf take different images.
fn scan_mixed(leaf: u32) {
    for (var t = 0u; t < LEAF; t += LANES) {
        let j = leaf * LEAF + t + lane;
        var at = vec3<f32>(FAR, 0.0, 0.0);
        var index = NONE;
        if j < sources {
            at = source_at(j);
            index = index_of(j);
        }
        if !matters(index) { continue; }
        for (var n = 0u; n < LANES; n++) {
            let s = share_index(index, n);
            if s != NONE {
                let sx = share(at.x, n);
                let sy = share(at.y, n);
                let sz = share(at.z, n);
                let dx# = nearest(x#, sx, 0u);
                let dy# = nearest(y#, sy, 1u);
                let dz# = nearest(z#, sz, 2u);
                let d# = dx# * dx# + dy# * dy# + dz# * dz#;
                if d# <= reach# { admit#(d#, s); }
            }
        }
    }
}

/// Where a child stands in the order of visits, first least, with its number in the lowest bits; -1 if the group does not
/// reach it, or has been there (those before `done`).
fn rank_of(child: u32, done: u32, count: u32, node: u32, most: f32) -> i32 {
    if child < done || child >= count { return -1; }
    let b = bounds_of(node + child);
    let g = gap_between(around, b);
    if dot(g, g) * CLOSER > most { return -1; }
    if ORDERED { return i32(child); }
    let m = abs(0.5 * (around.low + around.high) - 0.5 * (b.low + b.high));
    let c = min(m, abs(side - m));
    return i32((bitcast<u32>(dot(c, c)) & 0xfffffff8u) | child);
}

fn walk(own_leaf: u32) {
    stack[0] = params.levels << 28u;
    var top = 1u;
    while top > 0u {
        top--;
        let level = stack[top] >> 28u;
        let node = stack[top] & 0xfffffffu;
        if level < params.levels {
            let shared_node = node_shared(first_of(level) + node);
            var near = false;
            near = near | touches(vec3<f32>(x#, y#, z#), shared_node, reach#, worst#);
            if !any_of(near) { continue; }
            if level == 0u {
                if node == own_leaf { continue; }
                if BOUNDED && any_of(rounds > params.rounds) {
                    stopped = true;
                    begin_at = node;
                    return;
                }
                if settled(0u, node, shared_node) { continue; }
                rounds += params.leaf_rounds;
                leaves++;
                scan(node, shared_node.bounds);
                if undone() {
                    stopped = true;
                    begin_at = node;
                    return;
                }
                continue;
            }
            if settled(level, node, shared_node) { continue; }
        }
        let first = node * FAN;
        let base = first_of(level - 1u) + first;
        let count = min(FAN, first_of(level) - base);
        let most = widest();
        // The children that the group may reach, the first on top of the stack.
        rounds += 2u * count;
        let done = max(begin_at >> (3u * (level - 1u)), first) - first;
        var key% = rank_of(lane + %u * LANES, done, count, base, most);
        for (var n = 0u; n < count; n++) {
            var far = -1;
            far = max(far, key%);
            far = farthest_of(far);
            if far < 0 { break; }
            key% = select(key%, -1, key% == far);
            stack[top] = ((level - 1u) << 28u) | (first + (u32(far) & 7u));
            top++;
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
    // A workgroup of groups may have more than there are.
    if group_of_queries * (LANES * SLOTS) >= params.queries { return; }
    begin_at = first_leaf(group_of_queries - params.base / (LANES * SLOTS));
    if begin_at == NONE { return; }
    around = Bounds(vec3<f32>(FAR), vec3<f32>(-FAR));
    let row# = group_of_queries * (LANES * SLOTS) + #u * LANES + lane;
    worst# = NONE;
    enter#(row#);
    around = Bounds(least_of(around.low), most_of(around.high));
    if sources > 0u && around.low.x <= around.high.x {
        let own = own_leaf(group_of_queries);
        if own != NONE { scan(own, node_shared(own).bounds); }
        walk(own);
    }
    if row# < params.queries { finish#(row#); }
    if lane == 0u { leave(group_of_queries - params.base / (LANES * SLOTS)); }
}
