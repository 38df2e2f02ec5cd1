// A step towards the bin of a distance from the first edge on and below the last: BINS bins, whose edges `pairs_edge(i)` gives.

fn pairs_step(low: u32, step: u32, distance: f32) -> u32 {
    let next = min(low + step, BINS);
    return select(low, next, low + step < BINS && pairs_edge(next) <= distance);
}
