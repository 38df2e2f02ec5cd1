// Searches in which every query has a reach of its own and wants every source within it.

fn begin_group() {}
#if histogram
fn begin_leaf() { empty_full(); }
#else
fn begin_leaf() {}
#endif
fn is_candidate(j: u32) -> bool { return true; }
fn merge_source(s: u32) {}
#if !whole
fn can_skip(level: u32, node: u32, loaded: Node) -> bool { return false; }
#endif
fn must_repeat() -> bool { return false; }

/// Returns the greatest reach of the group.
fn max_reach() -> f32 {
    var most = -1.0;
    most = max(most, reach#);
    return lane_max_f32(most);
}

/// Returns `true` if a query reaches a node. Where many points coincide, the indices of a node tell
/// that none of them is wanted.
fn touches(at: vec3<f32>, node: Node, reach: f32, worst: u32) -> bool {
    let g = gap(at, node.bounds);
    return square_of(scaled3(g)) * CLOSER <= reach && (reach > 0.0 || node.least < worst);
}

/// Returns `true` if any query of the lane reaches a node.
fn reaches(node: Node) -> bool {
    var near = false;
    near = near | touches(vec3<f32>(x#, y#, z#), node, reach#, worst#);
    return near;
}
