// A group of one lane, which shares nothing: every invocation traverses the tree for itself, with a
// stack in an array of its own.
//
// Workgroup: GROUP invocations, a group each. No workgroup memory.

const lanes: u32 = 1u;
const lane: u32 = 0u;

var<private> stack: array<u32, STACK>;

fn begin_lanes() {}
/// There is one.
fn come_together() {}
fn group_value(value: u32) -> u32 { return value; }
fn lane_ballot(value: bool) -> u32 { return u32(value); }
fn any_lane(value: bool) -> bool { return value; }
fn lane_sum(value: u32) -> u32 { return value; }
fn lane_max_f32(value: f32) -> f32 { return value; }
fn lane_max_i32(value: i32) -> i32 { return value; }
fn lane_min(value: vec3<f32>) -> vec3<f32> { return value; }
fn lane_max(value: vec3<f32>) -> vec3<f32> { return value; }

var<private> shared_at: vec3<f32>;

fn share(at: vec3<f32>) { shared_at = at; }
fn shared_from(from_lane: u32) -> vec3<f32> { return shared_at; }

fn load_node(node: u32) -> Node {
    return Node(bounds_of(node), load_box(8u * node + 6u), load_scale * box_word(node, 7u));
}

fn push_entry(stack_size: ptr<function, u32>, entry: u32) {
    stack[*stack_size] = entry;
    *stack_size += 1u;
}

fn pop_entry(stack_size: ptr<function, u32>) -> u32 {
    *stack_size -= 1u;
    return stack[*stack_size];
}

fn each_workgroup(number: u32, invocation: u32) {
    search_blocks(number, invocation);
}

#each_workgroup
