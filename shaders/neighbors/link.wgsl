// Links points that lie within reach of each other: a forest in which every tree is becoming a connected component.
//
// Layout: as in search.wgsl, but for `order`: there it is the parent of each point along the curve, itself or one before it; a root is
// its own parent. Links only ever join a root to a lower one, so any number of invocations may do it at once, nothing
// waits, and where a walk stops in between, no link is lost.
//
// The number of a query is the root it was last seen to have, that of a source its parent's parent when it was loaded. Either may be
// out of date, and is a member of the same tree still. Inside of a component that is known they are equal, and no distance is asked for.

/// Rounds of loops that were not counted yet.
var<private> hops: u32;

/// The root of the tree of a point. What is passed on the way comes nearer to the root.
fn root_of(point: u32) -> u32 {
    var at = point;
    loop {
        let up = load_order(at);
        if up == at { break; }
        let top = load_order(up);
        if top != up { _ = min_order(at, top); }
        at = up;
        hops += 1u;
        // Where loops must not be long, roots are brought near before the walk goes on.
        if hops > params.rounds / 64u {
            stopped = true;
            break;
        }
    }
    return at;
}

/// Makes one tree of two; returns its root.
fn unite(one: u32, other: u32) -> u32 {
    var a = root_of(one);
    var b = root_of(other);
    while a != b && !stopped {
        if exchange_order(max(a, b), max(a, b), min(a, b)) { break; }
        hops += 1u;
        a = root_of(a);
        b = root_of(b);
    }
    return min(a, b);
}

/// Counts the rounds of all lanes: they may have been one after the other.
fn count_hops() {
    rounds += sum_of(hops);
    hops = 0u;
}

fn start#(row: u32) {
    number# = root_of(number#);
    reach# = params.reach;
}

/// The root of a source, or what is on the way there.
fn index_of(j: u32) -> u32 {
    return load_order(load_order(j));
}

/// Whether any of the sources that the lanes hold is not known to be one with all queries.
fn matters(index: u32) -> bool {
    let root = share_index(number0, 0u);
    var other = index != NONE && index != root;
    other = other | (reach# >= 0.0 && number# != root);
    return any_of(other);
}

fn admit#(d: f32, s: u32) {
    if s != number# && !stopped { number# = unite(number#, s); }
}

fn finish#(row: u32) { }

fn undone() -> bool {
    count_hops();
    return any_of(stopped);
}

/// Whether a node's points all are one with all queries: those of a node no longer than the reach are with each other.
fn settled(level: u32, node: u32, shared_node: Node) -> bool {
    if !(shared_node.diagonal * TIGHTER <= params.reach) { return false; }
    let root = share_index(root_of((node * LEAF) << (3u * level)), 0u);
    var other = false;
    if reach# >= 0.0 && number# != root { number# = root_of(number#); }
    other = other | (reach# >= 0.0 && number# != root);
    count_hops();
    return !any_of(other);
}
