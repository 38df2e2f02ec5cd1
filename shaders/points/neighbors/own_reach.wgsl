// Queries with a reach of their own each, which want every source in it.

fn ready() {}
fn at_leaf() {}
fn is_news(j: u32) -> bool { return true; }
fn offered(s: u32) {}
fn settled(level: u32, node: u32, shared_node: Node) -> bool { return false; }
fn undone() -> bool { return false; }

/// The greatest reach of the group.
fn widest() -> f32 {
    var most = -1.0;
    most = max(most, reach#);
    return widest_of(most);
}

/// Where many points coincide, their numbers tell that they are not wanted.
fn touches(at: vec3<f32>, node: Node, reach: f32, worst: u32) -> bool {
    let g = gap(at, node.bounds);
    return square_of(measured(g)) * CLOSER <= reach && (reach > 0.0 || node.least < worst);
}

/// Whether any query of the lane reaches a node.
fn wants(node: Node) -> bool {
    var near = false;
    near = near | touches(vec3<f32>(x#, y#, z#), node, reach#, worst#);
    return near;
}
