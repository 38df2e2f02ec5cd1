// Words of steps of conjugate gradients, which never wait for the host.

/// 0 as long as steps go on; otherwise where they ended: before the update of the solution (1), or
/// after it (2).
const PLACE: u32 = 0u;
/// The number of the step that ended.
const STEP: u32 = 1u;
/// Factor of the direction in the solution, and of the direction in the next one, as f32. Both are
/// normal numbers.
const ALONG: u32 = 2u;
const CONJUGATE: u32 = 3u;
/// The f32 1, which compilers must not know: they would change the rounding.
const ONE: u32 = 4u;
/// Numbers of four words.
const GAMMA: u32 = 8u;
const ENERGY: u32 = 12u;
/// Sums of the step: a word of the greatest magnitude for each, then two for each integer. They are
/// 0 between sums.
const SUMS_AT: u32 = 16u;
/// The sums of the last step that has all of them, and the energy before that step.
const LAST_AT: u32 = 32u;
const EARLIER: u32 = 48u;
