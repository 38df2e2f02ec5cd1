// Each invocation is a group by itself: nothing is shared.

fn share(value: f32, lane_number: u32) -> f32 { return value; }
fn share_index(value: u32, lane_number: u32) -> u32 { return value; }
fn lanes_where(value: bool) -> u32 { return u32(value); }
fn any_of(value: bool) -> bool { return value; }
fn sum_of(value: u32) -> u32 { return value; }
fn widest_of(value: f32) -> f32 { return value; }
fn farthest_of(value: i32) -> i32 { return value; }
fn least_of(value: vec3<f32>) -> vec3<f32> { return value; }
fn most_of(value: vec3<f32>) -> vec3<f32> { return value; }
fn node_shared(node: u32) -> Node {
    return Node(bounds_of(node), load_box(8u * node + 6u), load_unit * box_word(node, 7u));
}
