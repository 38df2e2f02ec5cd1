// The description of a neighbor that a callback gets.

struct Neighbor {
    /// Index of the source in its input.
    index: u32,
    distance: f32,
    /// From the query to the nearest image of the source; the third component is 0 in two
    /// dimensions.
    offset: vec3<f32>,
}
