// Offers sources to queries with a reach of their own each: `admit#` says what becomes of one that is in reach.
//
// Mostly nothing is near enough, which is found out for a batch of sources at once.

fn ready() {}
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
    return dot(g, g) * CLOSER <= reach && (reach > 0.0 || node.least < worst);
}

/// Whether any query of the lane reaches a node.
fn wants(node: Node) -> bool {
    var near = false;
    near = near | touches(vec3<f32>(x#, y#, z#), node, reach#, worst#);
    return near;
}

/// Offers the points of a leaf to all queries of the group.
fn scan(leaf: u32, b: Bounds) {
    let image = image_of(b);
    if image.mixed {
        scan_mixed(leaf);
        return;
    }
    scan_shifted(leaf, image.by_query, image.by_source);
}

/// Offers the points of a leaf, of which all pairs take one image.
fn scan_shifted(leaf: u32, by_query: vec3<f32>, by_source: vec3<f32>) {
    // Most sources of a leaf at the edge of what is reached are near none of the queries.
    let low = around.low - by_query;
    let high = around.high - by_query;
    let most = widest();
    let qx# = x# - by_query.x;
    let qy# = y# - by_query.y;
    let qz# = z# - by_query.z;
    for (var t = 0u; t < LEAF; t += LANES) {
        let j = leaf * LEAF + t + lane;
        var at = vec3<f32>(FAR, 0.0, 0.0);
        if j < sources { at = source_at(j) - by_source; }
        let out = max(max(low - at, at - high), vec3<f32>(0.0));
        let inside = dot(out, out) * CLOSER <= most;
        let near = lanes_where(inside);
        if near == 0u { continue; }
        var index = NONE;
        if inside { index = load_order(j); }
        for (var m = 0u; m < LANES; m += BATCH) {
            if extractBits(near, m, BATCH) == 0u { continue; }
            // Mostly nothing is near enough: that is found out for a batch at once.
            let sx@ = share(at.x, m + @u);
            let sy@ = share(at.y, m + @u);
            let sz@ = share(at.z, m + @u);
            var hit = false;
            hit = hit | may_reach(qx# - sx@, qy# - sy@, qz# - sz@, reach#);
            if !any_of(hit) { continue; }
            for (var n = m; n < m + BATCH; n++) {
                if extractBits(near, n, 1u) == 0u { continue; }
                let sx = share(at.x, n);
                let sy = share(at.y, n);
                let sz = share(at.z, n);
                let s = share_index(index, n);
                let dx# = qx# - sx;
                let dy# = qy# - sy;
                let dz# = qz# - sz;
                let d# = dx# * dx# + dy# * dy# + dz# * dz#;
                if d# <= reach# { admit#(d#, s); }
            }
        }
    }
}

/// The same where the pairs of the leaf take different images.
fn scan_mixed(leaf: u32) {
    for (var t = 0u; t < LEAF; t += LANES) {
        let j = leaf * LEAF + t + lane;
        var at = vec3<f32>(FAR, 0.0, 0.0);
        var index = NONE;
        if j < sources {
            at = source_at(j);
            index = load_order(j);
        }
        for (var n = 0u; n < LANES; n++) {
            let s = share_index(index, n);
            if s != NONE {
                let sx = share(at.x, n);
                let sy = share(at.y, n);
                let sz = share(at.z, n);
                let dx# = nearest(x#, sx, 0u);
                let dy# = nearest(y#, sy, 1u);
                let dz# = nearest(z#, sz, 2u);
                let d# = dx# * dx# + dy# * dy# + dz# * dz#;
                if d# <= reach# { admit#(d#, s); }
            }
        }
    }
}
