// A group of the lanes of one workgroup, which share through its memory: for GPUs whose subgroups
// are small, or cannot vote.
//
// All lanes come to each vote together, by the rules of WGSL itself: what loops and conditions with
// votes depend on are parameters, results of votes and variables of a function, nothing else. Each
// vote takes three barriers.
//
// Workgroup: GROUP = LANES invocations, LEAF at least, one group. Memory: the stack, and 4 words
// per lane.

const lanes: u32 = LANES;
var<private> lane: u32;

var<workgroup> stack: array<u32, STACK>;
/// Sum of a vote; 0 between votes.
var<workgroup> votes: atomic<u32>;
var<workgroup> agreed: u32;
var<workgroup> shared_at: array<vec3<f32>, LANES>;

fn begin_lanes() {
    if lane == 0u { atomicStore(&votes, 0u); }
    workgroupBarrier();
}
/// Votes of a workgroup wait for all anyway.
fn come_together() {}

/// Returns the sum that all lanes have added to `votes`.
fn agree() -> u32 {
    workgroupBarrier();
    if lane == 0u { agreed = atomicExchange(&votes, 0u); }
    return workgroupUniformLoad(&agreed);
}

/// A value that is the same in all lanes, so that a compiler knows it.
fn group_value(value: u32) -> u32 {
    if lane == 0u { agreed = value; }
    return workgroupUniformLoad(&agreed);
}

/// Which of the first 32 lanes say yes; others never do.
fn lane_ballot(value: bool) -> u32 {
    if value { atomicOr(&votes, 1u << (lane & 31u)); }
    return agree();
}

fn any_lane(value: bool) -> bool {
    if value { atomicOr(&votes, 1u); }
    return agree() != 0u;
}

fn lane_sum(value: u32) -> u32 {
    atomicAdd(&votes, value);
    return agree();
}

fn lane_max_u32(value: u32) -> u32 {
    atomicMax(&votes, value);
    return agree();
}

fn lane_max_i32(value: i32) -> i32 {
    return bitcast<i32>(lane_max_u32(bitcast<u32>(value) ^ 0x80000000u) ^ 0x80000000u);
}

/// Bits of numbers are in their order, once those of negative ones are turned.
fn lane_max_f32(value: f32) -> f32 {
    let bits = bitcast<u32>(value);
    let most = lane_max_u32(bits ^ select(0x80000000u, 0xffffffffu, bits >> 31u == 1u));
    return bitcast<f32>(most ^ select(0xffffffffu, 0x80000000u, most >> 31u == 1u));
}

fn lane_max(value: vec3<f32>) -> vec3<f32> {
    return vec3<f32>(lane_max_f32(value.x), lane_max_f32(value.y), lane_max_f32(value.z));
}

fn lane_min(value: vec3<f32>) -> vec3<f32> { return -lane_max(-value); }

/// Gives `at` to other lanes: after the next vote they see it, until all have come to one after
/// that.
fn share(at: vec3<f32>) { shared_at[lane] = at; }
fn shared_from(from_lane: u32) -> vec3<f32> { return shared_at[from_lane]; }

fn load_node(node: u32) -> Node {
    return Node(bounds_of(node), load_box(8u * node + 6u), load_scale * box_word(node, 7u));
}

fn push_entry(stack_size: ptr<function, u32>, entry: u32) {
    if lane == 0u { stack[*stack_size] = entry; }
    *stack_size += 1u;
}

fn pop_entry(stack_size: ptr<function, u32>) -> u32 {
    *stack_size -= 1u;
    return workgroupUniformLoad(&stack[*stack_size]);
}

fn each_workgroup(number: u32, invocation: u32) {
    lane = invocation;
    search_blocks(number, invocation);
}

#each_workgroup
