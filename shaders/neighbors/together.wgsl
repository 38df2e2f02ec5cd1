// Invocations of one subgroup as one group: what the lanes share goes through registers.

fn share(value: f32, lane_number: u32) -> f32 { return subgroupShuffle(value, lane_number); }
fn share_index(value: u32, lane_number: u32) -> u32 { return subgroupShuffle(value, lane_number); }
fn any_of(value: bool) -> bool { return subgroupAny(value); }
fn widest_of(value: f32) -> f32 { return subgroupMax(value); }
fn farthest_of(value: i32) -> i32 { return subgroupMax(value); }
fn least_of(value: vec3<f32>) -> vec3<f32> { return subgroupMin(value); }
fn most_of(value: vec3<f32>) -> vec3<f32> { return subgroupMax(value); }

/// Bounds of a node that all lanes want: each loads its part.
fn bounds_shared(node: u32) -> Bounds {
    let word% = load_box(6u * node + min(%u * LANES + lane, 5u));
    return Bounds(
        vec3<f32>(WORD_0, WORD_1, WORD_2),
        vec3<f32>(WORD_3, WORD_4, WORD_5),
    );
}
