// Walks through the leaves in their order, from `begin_at` on.

fn is_reached(child: u32, done: u32, count: u32, node: u32, most: f32) -> bool {
    if child < done || child >= count { return false; }
    let g = gap_between(around, bounds_of(node + child));
    return square_of(measured(g)) * CLOSER <= most;
}

/// Puts the children that the group may reach, and has not been to, on the stack, the first on top.
fn push(base: u32, first: u32, count: u32, level: u32) {
    let most = widest();
    let done = max(begin_at >> (3u * level), first) - first;
    var reached = 0u;
    reached |= lanes_where(is_reached(lane + %u * LANES, done, count, base, most)) << (%u * LANES);
    while reached != 0u {
        let child = firstLeadingBit(reached);
        reached ^= 1u << child;
        stack[top] = (level << 28u) | (first + child);
        top++;
    }
}
