// Words of a product with the directions of a preconditioner, which never waits for the host.

/// Kinds of parts.
const FIELDS: u32 = 0u;
const OTHERS: u32 = 1u;
/// A word of the greatest magnitude of the products with each direction, of each kind.
const MOST: u32 = 0u;
/// Two words of the sum of these products, of each direction and kind. They and the greatest
/// magnitudes are 0 between sums.
const SUMS: u32 = 2u * DIRECTIONS;
/// The f32 factor of each direction, of each kind.
const FACTORS: u32 = 6u * DIRECTIONS;
/// The number of four words that the sum over others must have in the end, of each direction.
const WANTED: u32 = 8u * DIRECTIONS;
