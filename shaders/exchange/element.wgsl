// The elements of a sum, in blocks of GROUP.

/// The element of a lane in a block; beyond the last where there is no such block, without a
/// product that 32 bits do not hold.
fn element(block: u32, lane: u32) -> u32 {
    return select(params.count, block * GROUP + lane, block <= params.count / GROUP);
}
