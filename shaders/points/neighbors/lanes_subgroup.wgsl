// A group of the lanes of one subgroup: what they share goes through registers.

fn broadcast(value: f32, from_lane: u32) -> f32 { return subgroupShuffle(value, from_lane); }
fn broadcast_u32(value: u32, from_lane: u32) -> u32 { return subgroupShuffle(value, from_lane); }
fn lane_ballot(value: bool) -> u32 { return subgroupBallot(value).x; }
fn any_lane(value: bool) -> bool { return subgroupAny(value); }
fn lane_sum(value: u32) -> u32 { return subgroupAdd(value); }
fn lane_max_f32(value: f32) -> f32 { return subgroupMax(value); }
fn lane_max_i32(value: i32) -> i32 { return subgroupMax(value); }
fn lane_min(value: vec3<f32>) -> vec3<f32> { return subgroupMin(value); }
fn lane_max(value: vec3<f32>) -> vec3<f32> { return subgroupMax(value); }

/// The words of a node that this lane has loaded: word `n` is number `n / LANES` of lane `n % LANES`.
var<private> loaded$: u32;

/// Word `n` of the node, a constant, from the lane that has loaded it.
fn shared_word(n: u32) -> u32 {
    var word = loaded0;
    word = select(word, loaded$, n / LANES == $u);
    return subgroupShuffle(word, n % LANES);
}

/// A node that all lanes look at: each loads some of its words.
fn load_node(node: u32) -> Node {
    loaded$ = load_box(8u * node + min($u * LANES + lane, 7u));
    let low = vec3<u32>(shared_word(0u), shared_word(1u), shared_word(2u));
    let high = vec3<u32>(shared_word(3u), shared_word(4u), shared_word(5u));
    let bounds = Bounds(load_scale * bitcast<vec3<f32>>(low), load_scale * bitcast<vec3<f32>>(high));
    return Node(bounds, shared_word(6u), load_scale * bitcast<f32>(shared_word(7u)));
}
