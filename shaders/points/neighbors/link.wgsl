// Links points that lie within reach of each other: a forest in which every tree is becoming a connected component.
//
// Layout: as in search.wgsl, but for `order`: there it is the parent of each point along the curve, itself or one before it; a root is
// its own parent. Links only ever join a root to a lower point, so any number of invocations may do it at once, nothing
// waits, and where a walk stops in between, no link is lost.
//
// Each lane knows which of its queries are one tree already, and a point of the tree once all are. That point may be anywhere on the way to
// the root: what is looked up of it may be out of date, and is a member of the same tree still.
//
// Software renderers execute what stands behind a condition whether it holds or not: loops with few rounds are what keeps the
// dear parts from being executed for every source.

/// Steps towards a root after which it is not looked for any more, where nothing depends on it.
const CLIMB: u32 = 16u;

/// Of the lane's queries.
var<private> of_lane: Bounds;
/// Slots with a query.
var<private> mine: u32;
/// Slots that are known to be one tree with this one.
var<private> kin#: u32;
/// A point of the tree of all queries, once they are one.
var<private> root: u32;
/// A point of the tree of all queries of the group, once they are known to be one.
var<private> one: u32;
/// Rounds of loops that were not counted yet.
var<private> hops: u32;

/// Whether points of a box are all within reach of each other.
fn tight(diagonal: f32) -> bool {
    return square(apart(diagonal), 0.0, 0.0) * TIGHTER <= params.reach;
}

fn start#(row: u32) {
    reach# = params.reach;
    kin# = 1u << #u;
    mine |= kin#;
}

/// After `start#` of all slots. The queries of a lane lie in one leaf.
fn ready() {
    root = first_row;
    of_lane = Bounds(vec3<f32>(FAR), vec3<f32>(-FAR));
    if mine == 0u { return; }
    of_lane.low = min(of_lane.low, select(vec3<f32>(FAR), vec3<f32>(x#, y#, z#), reach# >= 0.0));
    of_lane.high = max(of_lane.high, select(vec3<f32>(-FAR), vec3<f32>(x#, y#, z#), reach# >= 0.0));
    if tight(load_unit * box_word(first_row / LEAF, 7u)) {
        kin# = mine;
    }
}

fn widest() -> f32 { return params.reach; }

/// Whether the lane's queries reach a node.
fn wants(node: Node) -> bool {
    if mine == 0u { return false; }
    let g = gap_between(of_lane, node.bounds);
    return square_of(measured(g)) * CLOSER <= params.reach;
}

fn finish#(row: u32) { }

/// Whether all queries of the lane are known to be one.
fn whole() -> bool {
    return kin0 == mine;
}

/// Makes one tree of a source and of the queries that are near it. Each step takes the one with the higher parent: if that is its
/// root it is hooked to the other's parent, else it goes on from there, and its next parent is its parent's.
fn take(source: u32) {
    if whole() && source == root { hits = 0u; }
    var joined = 0u;
    var a = source;
    var b = source;
    loop {
        if a == b {
            if hits == 0u { break; }
            let slot = firstTrailingBit(hits);
            var kin = 0u;
            kin |= select(0u, kin#, extractBits(kin#, slot, 1u) == 1u);
            joined |= kin;
            hits &= ~kin;
            b = select(first_row + slot, root, kin == mine);
        }
        let up_a = load_order(a);
        let up_b = load_order(b);
        let low = min(up_a, up_b);
        let high = max(up_a, up_b);
        if low == high {
            a = low;
            b = low;
            continue;
        }
        let from_a = up_a == high;
        let at = select(b, a, from_a);
        let top = load_order(high);
        if high == at {
            if exchange_order(at, at, low) {
                a = low;
                b = low;
            }
        } else {
            if top != high { _ = min_order(at, top); }
            a = select(a, high, from_a);
            b = select(high, b, from_a);
        }
        hops += 1u;
        if hops > params.rounds / 64u {
            stopped = true;
            hits = 0u;
            break;
        }
    }
    if joined != 0u { root = a; }
    kin# = select(kin#, joined, (kin# & joined) != 0u);
}

fn at_leaf() {
    let shared_root = share_index(root, 0u);
    let other = mine != 0u && (!whole() || root != shared_root);
    one = select(shared_root, NONE, any_of(other));
}

fn is_news(j: u32) -> bool {
    return load_order(j) != one;
}

fn admit#(d: f32, parent: u32) { }

fn offered(parent: u32) {
    take(load_order(parent));
}

/// Counts the rounds of all lanes: they may have been one after the other.
fn count_hops() {
    rounds += sum_of(hops);
    hops = 0u;
}

fn undone() -> bool {
    count_hops();
    return any_of(stopped);
}

/// Whether a node's points all are one with all queries: those of a node no longer than the reach are with each other.
fn settled(level: u32, node: u32, shared_node: Node) -> bool {
    if any_of(mine != 0u && !whole()) || !tight(shared_node.diagonal) { return false; }
    var a = (node * LEAF) << (3u * level);
    var b = select(a, root, mine != 0u);
    for (var climbed = 0u; climbed < CLIMB && a != b; climbed++) {
        let up_a = load_order(a);
        let up_b = load_order(b);
        if up_a == a && up_b == b { break; }
        a = up_a;
        b = up_b;
        hops += 1u;
    }
    if mine != 0u { root = b; }
    let same = a == b;
    count_hops();
    return !any_of(!same);
}
