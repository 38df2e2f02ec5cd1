// Counts nodes as a whole where all their points count alike for all queries of a group, so that a
// count within a large radius does not visit every pair.
//
// The callback defines `is_alike(near, far)`: whether all pairs with squares of distances from
// `near` to `far` count in the same way; `each_of(state, square, count)`, which counts `count`
// sources with such a square for a query; and `NODE_ROUNDS`, the rounds of loops that `each_of`
// takes at most, with one extra for each loop (search.wgsl).

/// Squares are taken a little larger than they are, so that rounding never puts a source on the
/// other side of an edge.
const FARTHER: f32 = 1.000001;

/// Returns the greatest distance along each axis between points of two bounds.
fn reach_between(a: Bounds, b: Bounds) -> vec3<f32> {
    return min(max(a.high - b.low, b.high - a.low), half_side);
}

/// Returns the number of sources from `first` on in a node of `level`. A node above level 8 could
/// hold 2^31 points and more: there is only one.
fn sources_of(first: u32, level: u32) -> u32 {
    return min(sources - first, select(sources, LEAF << (3u * min(level, 8u)), level <= 8u));
}

/// Returns `true` if all sources from `first` on in a node count, whatever their indices are.
fn all_count(first: u32) -> bool {
#if own
    if skip == 2u { return false; }
#else
    if skip != 0u { return false; }
#endif
#if half
    // Only sources behind a query count.
    if first < first_row + SLOTS { return false; }
#endif
#if resumes
    // The group has looked at leaves of this node before it stopped.
    if first < begin_at * LEAF { return false; }
#endif
    return true;
}

/// Counts `count` sources from `first` on for a query; without itself, if it is left out.
fn take_node#(first: u32, count: u32, square: f32) {
    if reach# < 0.0 { return; }
    let has_query = skip == 1u && first_row + #u >= first && first_row + #u - first < count;
    state# = each_of(state#, square, count - u32(has_query));
}

/// Counts a node if all its points count alike; returns `true` if it did.
fn can_skip(level: u32, node: u32, loaded: Node) -> bool {
    let first = (node << (3u * level)) * LEAF;
    let near = square_of(scaled3(gap_between(group_bounds, loaded.bounds))) * CLOSER;
    let far = square_of(scaled3(reach_between(group_bounds, loaded.bounds))) * FARTHER;
    if any_lane(!(far <= params.reach && all_count(first) && is_alike(near, far))) { return false; }
    take_node#(first, sources_of(first, level), near);
#if cursor
    rounds += SLOTS * NODE_ROUNDS;
#endif
    return true;
}
