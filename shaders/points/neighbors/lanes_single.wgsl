// A group of one lane: the operations across the lanes of a group, where nothing is shared.

fn broadcast(value: f32, from_lane: u32) -> f32 { return value; }
fn broadcast_u32(value: u32, from_lane: u32) -> u32 { return value; }
fn lane_ballot(value: bool) -> u32 { return u32(value); }
fn any_lane(value: bool) -> bool { return value; }
fn lane_sum(value: u32) -> u32 { return value; }
fn lane_max_f32(value: f32) -> f32 { return value; }
fn lane_max_i32(value: i32) -> i32 { return value; }
fn lane_min(value: vec3<f32>) -> vec3<f32> { return value; }
fn lane_max(value: vec3<f32>) -> vec3<f32> { return value; }

fn load_node(node: u32) -> Node {
    return Node(bounds_of(node), load_box(8u * node + 6u), load_scale * box_word(node, 7u));
}
