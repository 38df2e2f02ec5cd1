// Links points that lie within reach of each other: a disjoint-set forest, every tree of which
// grows to a connected component.
//
// Layout: as in search.wgsl, where `parent` is the parent of each point along the curve, itself or
// one before it; a root is its own parent. Links only ever join a root to a lower point, so any
// number of invocations may link at once, none waits for another, and where a traversal stops in
// between, no link is lost.
//
// Each lane keeps which of its queries are in one tree, and a point of that tree once all are. That
// point need not be the root: what is looked up of it may be out of date, and is a member of the
// same tree.
//
// Software renderers execute what stands behind a condition whether it holds or not: loops of few
// rounds keep them from executing the expensive parts for every source.

#import neighbors::search
#import neighbors::fits_reach

/// Steps towards a root after which the search for it is given up, where nothing depends on it.
const MAX_CLIMB: u32 = 16u;

/// Bounds of the lane's queries.
var<private> lane_bounds: Bounds;
/// Slots with a query.
var<private> active_slots: u32;
/// Slots whose queries are known to be in one tree with this one's.
var<private> component_mask#: u32;
/// A point of the tree of all queries of the lane, once they are in one: a possibly outdated
/// ancestor.
var<private> root: u32;
/// A point of the tree of all queries of the group, once they are known to be in one, else NONE.
var<private> group_root: u32;
#if cursor
/// Rounds of loops that are not in `rounds` yet.
var<private> uncounted_rounds: u32;
#endif

fn begin_query#(row: u32) {
    reach# = params.reach;
    component_mask# = 1u << #u;
    active_slots |= component_mask#;
}

/// Begins a group: the queries of a lane lie in one leaf.
fn begin_group() {
    root = first_row;
    lane_bounds = Bounds(vec3<f32>(FAR), vec3<f32>(-FAR));
    if active_slots == 0u { return; }
    lane_bounds.low = min(lane_bounds.low, select(vec3<f32>(FAR), vec3<f32>(x#, y#, z#), reach# >= 0.0));
    lane_bounds.high = max(lane_bounds.high, select(vec3<f32>(-FAR), vec3<f32>(x#, y#, z#), reach# >= 0.0));
    if fits_reach(load_scale * box_word(first_row / LEAF, 7u)) {
        component_mask# = active_slots;
    }
}

fn max_reach() -> f32 { return params.reach; }

/// Returns `true` if the lane's queries reach a node.
fn reaches(node: Node) -> bool {
    if active_slots == 0u { return false; }
    let g = gap_between(lane_bounds, node.bounds);
    return square_of(scaled3(g)) * CLOSER <= params.reach;
}

fn end_query#(row: u32) {}

/// Returns `true` if all queries of the lane are known to be in one tree.
fn in_one_tree() -> bool {
    return component_mask0 == active_slots;
}

/// Joins a source and the queries that are near it to one tree. Each step takes the one of two
/// points with the higher parent: if that is its root, the root is linked to the other's parent,
/// else the step goes on from the parent, and the point is linked to its grandparent.
fn join(source: u32) {
    if in_one_tree() && source == root { hits = 0u; }
    var joined = 0u;
    var a = source;
    var b = source;
    loop {
        if a == b {
            if hits == 0u { break; }
            let slot = firstTrailingBit(hits);
            var mask = 0u;
            mask |= select(0u, component_mask#, extractBits(component_mask#, slot, 1u) == 1u);
            joined |= mask;
            hits &= ~mask;
            b = select(first_row + slot, root, mask == active_slots);
        }
        let up_a = load_parent(a);
        let up_b = load_parent(b);
        let low = min(up_a, up_b);
        let high = max(up_a, up_b);
        if low == high {
            a = low;
            b = low;
            continue;
        }
        let from_a = up_a == high;
        let at = select(b, a, from_a);
        let above = load_parent(high);
        if high == at {
            // Another invocation may have linked it meanwhile: the step goes on from what is there
            // now. Loading it again would be wrong: where caches are not kept alike within a
            // dispatch, it would look like a root for ever.
            let found = exchange_parent(at, at, low);
            let next = select(found.x, low, found.y == 1u);
            a = select(a, next, from_a || found.y == 1u);
            b = select(b, next, !from_a || found.y == 1u);
        } else {
            if above != high { _ = min_parent(at, above); }
            a = select(a, high, from_a);
            b = select(high, b, from_a);
        }
#if cursor
        uncounted_rounds += 1u;
        if uncounted_rounds > params.rounds / 64u {
            stopped = true;
            hits = 0u;
            break;
        }
#endif
    }
    if joined != 0u { root = a; }
    component_mask# = select(component_mask#, joined, (component_mask# & joined) != 0u);
}

fn begin_leaf() {
    let shared_root = group_value(root);
    let differs = active_slots != 0u && (!in_one_tree() || root != shared_root);
    group_root = select(shared_root, NONE, any_lane(differs));
}

/// A source in the tree of all queries has nothing to add.
fn is_candidate(j: u32) -> bool {
    return load_parent(j) != group_root;
}

fn accept#(d: f32, parent: u32) {}

fn merge_source(parent: u32) {
    join(load_parent(parent));
}

#if cursor
/// Counts the rounds of all lanes: a driver may execute them one after the other.
fn count_rounds() {
    rounds += lane_sum(uncounted_rounds);
    uncounted_rounds = 0u;
}

fn must_repeat() -> bool {
    count_rounds();
    return any_lane(stopped);
}
#endif

/// Goes from `a` and from the lane's tree towards their roots until they meet, or for some steps;
/// whether they have met.
fn meets(first: u32) -> bool {
    var a = first;
    var b = select(a, root, active_slots != 0u);
    for (var climbed = 0u; climbed < MAX_CLIMB && a != b; climbed++) {
        let up_a = load_parent(a);
        let up_b = load_parent(b);
        if up_a == a && up_b == b { break; }
        a = up_a;
        b = up_b;
#if cursor
        uncounted_rounds += 1u;
#endif
    }
    if active_slots != 0u { root = b; }
    return a == b;
}

/// Returns `true` if a node's points are all in one tree with all queries: those of a node no
/// longer than the reach are with each other.
fn can_skip(level: u32, node: u32, loaded: Node) -> bool {
    let apart = active_slots != 0u && !in_one_tree();
    if any_lane(apart || !fits_reach(loaded.diagonal)) { return false; }
    let met = meets((node * LEAF) << (3u * level));
#if cursor
    count_rounds();
#endif
    return !any_lane(!met);
}
