// The shares of a particle's nodes in integer units.
//
// A particle is UNIT integer units. They are shared out along x, then y, then z, the remainder of
// each rounding going to the heaviest node: the shares add up to UNIT exactly, and integer sums do
// not depend on their order, so mass is conserved to the last bit and the mesh is the same for any
// order of the additions and any number of ranks.

const UNIT: u32 = 268435456u;

/// Nodes along an axis in the order in which they take their shares, the heaviest last.
struct Takers {
    weights: vec4<f32>,
    places: vec4<u32>,
}

fn takers(nodes: Nodes, axis: u32) -> Takers {
    let last = heaviest(nodes.at);
    let places = places(nodes.first, axis);
    var found: Takers;
    let node@ = (last + @ + 1) % WIDTH;
    found.weights[@] = weight(nodes.at, node@);
    found.places[@] = places[node@];
    return found;
}

/// Shares of `whole` units by weight, each at most what is left; the last node takes all of that.
fn shares(whole: u32, weights: vec4<f32>) -> vec4<u32> {
    var left = whole;
    var found = vec4<u32>(0u);
    found[@] = select(min(u32(fma(f32(whole), weights[@], 0.5)), left), left, @ + 1 == WIDTH); left -= found[@];
    return found;
}
