// What a callback is told of a neighbour.

struct Neighbor {
    /// Index of the source in its input.
    index: u32,
    distance: f32,
}
