// The order of a traversal: leaves along the curve, from `begin_at` on.

fn is_reached(child: u32, done: u32, count: u32, node: u32, most: f32) -> bool {
    if child < done || child >= count { return false; }
    let g = gap_between(group_bounds, bounds_of(node + child));
    return square_of(scaled3(g)) * CLOSER <= most;
}

/// Puts the children that the group may reach and has not looked at on the stack, the first on top.
fn push(stack_size: ptr<function, u32>, base: u32, first: u32, count: u32, level: u32) {
    let most = max_reach();
    let done = max(begin_at >> (3u * level), first) - first;
    // More lanes than LANES have all children in the first rounds; the others find none, and their
    // shift stays below 32.
    var reached = 0u;
    reached |= lane_ballot(is_reached(lane + $u * lanes, done, count, base, most)) << (($u * lanes) & 31u);
    while reached != 0u {
        let child = firstLeadingBit(reached);
        reached ^= 1u << child;
        push_entry(stack_size, (level << 28u) | (first + child));
    }
}
