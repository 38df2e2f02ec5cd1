// The elements of a sum, in blocks of GROUP.

/// Returns the element of a lane in a block; beyond the last if the block does not exist, without a
/// product that 32 bits do not hold.
fn element(block: u32, lane: u32) -> u32 {
    return select(params.count, block * GROUP + lane, block <= params.count / GROUP);
}
