// Walks that take the nearest nodes first.

/// Where a child stands in the order of visits, first least, with its number in the lowest bits; -1 if the group does not
/// reach it.
fn rank_of(child: u32, count: u32, node: u32, most: f32) -> i32 {
    if child >= count { return -1; }
    let b = bounds_of(node + child);
    let g = gap_between(around, b);
    if square_of(measured(g)) * CLOSER > most { return -1; }
    let m = abs(0.5 * (around.low + around.high) - 0.5 * (b.low + b.high));
    let c = measured(min(m, abs(side - m)));
    return i32((bitcast<u32>(square_of(c)) & 0xfffffff8u) | child);
}

/// Puts the children that the group may reach on the stack, the first on top.
fn push(base: u32, first: u32, count: u32, level: u32) {
    let most = widest();
    var key% = rank_of(lane + %u * LANES, count, base, most);
    for (var n = 0u; n < count; n++) {
        var far = -1;
        far = max(far, key%);
        far = farthest_of(far);
        if far < 0 { break; }
        key% = select(key%, -1, key% == far);
        stack[top] = (level << 28u) | (first + (u32(far) & 7u));
        top++;
    }
}
