// A step towards the bin of a square of a distance from the first edge on and below the last: BINS bins, whose edges `pairs_edge(i)` gives. Sums have two
// words a bin, low first.

fn pairs_step(low: u32, step: u32, square: f32) -> u32 {
    let next = min(low + step, BINS);
    return select(low, next, low + step < BINS && pairs_edge(next) <= square);
}

fn pairs_add(bin: u32, amount: u32) {
    let before = add_bins(2u * bin, amount);
    if before + amount < before { add_bins(2u * bin + 1u, 1u); }
}
