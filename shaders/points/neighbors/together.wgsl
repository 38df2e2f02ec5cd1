// Invocations of one subgroup as one group: what the lanes share goes through registers.

fn share(value: f32, lane_number: u32) -> f32 { return subgroupShuffle(value, lane_number); }
fn share_index(value: u32, lane_number: u32) -> u32 { return subgroupShuffle(value, lane_number); }
fn lanes_where(value: bool) -> u32 { return subgroupBallot(value).x; }
fn any_of(value: bool) -> bool { return subgroupAny(value); }
fn sum_of(value: u32) -> u32 { return subgroupAdd(value); }
fn widest_of(value: f32) -> f32 { return subgroupMax(value); }
fn farthest_of(value: i32) -> i32 { return subgroupMax(value); }
fn least_of(value: vec3<f32>) -> vec3<f32> { return subgroupMin(value); }
fn most_of(value: vec3<f32>) -> vec3<f32> { return subgroupMax(value); }

/// A node that all lanes want: each loads its part.
fn node_shared(node: u32) -> Node {
    let word% = load_box(8u * node + min(%u * LANES + lane, 7u));
    let low = vec3<u32>(WORD_0, WORD_1, WORD_2);
    let high = vec3<u32>(WORD_3, WORD_4, WORD_5);
    let bounds = Bounds(load_unit * bitcast<vec3<f32>>(low), load_unit * bitcast<vec3<f32>>(high));
    return Node(bounds, WORD_6, load_unit * bitcast<f32>(WORD_7));
}
