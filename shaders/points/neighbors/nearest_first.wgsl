// The order of a traversal: of the children of a node the nearest first.

/// Returns the key of a child in the order, the first least, with its number in the lowest bits; -1
/// if the group does not reach it.
fn visit_key(child: u32, count: u32, node: u32, most: f32) -> i32 {
    if child >= count { return -1; }
    let b = bounds_of(node + child);
    let g = gap_between(group_bounds, b);
    if square_of(scaled3(g)) * CLOSER > most { return -1; }
    let m = abs(0.5 * (group_bounds.low + group_bounds.high) - 0.5 * (b.low + b.high));
    let c = scaled3(min(m, abs(side - m)));
    return i32((bitcast<u32>(square_of(c)) & 0xfffffff8u) | child);
}

/// Puts the children that the group may reach on the stack, the first on top.
fn push(stack_size: ptr<function, u32>, base: u32, first: u32, count: u32, level: u32) {
    let most = max_reach();
    var key$ = visit_key(lane + $u * lanes, count, base, most);
    for (var n = 0u; n < count; n++) {
        var own_last = -1;
        own_last = max(own_last, key$);
        let last = lane_max_i32(own_last);
        if last < 0 { break; }
        key$ = select(key$, -1, key$ == last);
        push_entry(stack_size, (level << 28u) | (first + (u32(last) & 7u)));
    }
}
