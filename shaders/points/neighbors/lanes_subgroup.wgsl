// A group of the lanes of one subgroup, as many as the driver gives it (LANES at least): what they
// share goes through registers.
//
// The stack is in registers, too: entry `e` in lane `e % lanes`, in its register `e / lanes`. Lines
// with a `?` are written once for each register. Nothing is indexed dynamically, so that the
// registers need not lie in memory.
//
// Everything here is called in uniform flow of the subgroup.
//
// Workgroup: GROUP invocations, a whole number of full subgroups. No workgroup memory, no barriers:
// groups go their own ways.

/// Lanes of the subgroup, a power of two, and its logarithm.
var<private> lanes: u32;
var<private> lane_shift: u32;
var<private> lane: u32;

var<private> stack_?: u32;

fn begin_lanes() {}
/// Waits until all lanes of the group arrive.
fn come_together() { reconverge(); }
/// A value that is the same in all lanes, so that a compiler knows it.
fn group_value(value: u32) -> u32 { return subgroupBroadcastFirst(value); }
/// Which of the first 32 lanes say yes; others never do.
fn lane_ballot(value: bool) -> u32 { return subgroupBallot(value).x; }
fn any_lane(value: bool) -> bool { return subgroupAny(value); }
fn lane_sum(value: u32) -> u32 { return subgroupAdd(value); }
fn lane_max_f32(value: f32) -> f32 { return subgroupMax(value); }
fn lane_max_i32(value: i32) -> i32 { return subgroupMax(value); }
fn lane_min(value: vec3<f32>) -> vec3<f32> { return subgroupMin(value); }
fn lane_max(value: vec3<f32>) -> vec3<f32> { return subgroupMax(value); }

/// The value of this lane that others read.
var<private> shared_at: vec3<f32>;

fn share(at: vec3<f32>) { shared_at = at; }

fn shared_from(from_lane: u32) -> vec3<f32> {
    return vec3<f32>(
        subgroupShuffle(shared_at.x, from_lane),
        subgroupShuffle(shared_at.y, from_lane),
        subgroupShuffle(shared_at.z, from_lane),
    );
}

/// The words of a node that this lane has loaded: word `n` is number `n / lanes` of lane `n %
/// lanes`.
var<private> loaded$: u32;

/// Word `n` of the node, a constant, from the lane that has loaded it.
fn shared_word(n: u32) -> u32 {
    var word = loaded0;
    word = select(word, loaded$, n >> lane_shift == $u);
    return subgroupShuffle(word, n & (lanes - 1u));
}

/// A node that all lanes look at: each loads some of its words.
fn load_node(node: u32) -> Node {
    loaded$ = load_box(8u * node + min($u * lanes + lane, 7u));
    let low = vec3<u32>(shared_word(0u), shared_word(1u), shared_word(2u));
    let high = vec3<u32>(shared_word(3u), shared_word(4u), shared_word(5u));
    let bounds = Bounds(load_scale * bitcast<vec3<f32>>(low), load_scale * bitcast<vec3<f32>>(high));
    return Node(bounds, shared_word(6u), load_scale * bitcast<f32>(shared_word(7u)));
}

fn push_entry(stack_size: ptr<function, u32>, entry: u32) {
    let place = *stack_size;
    stack_? = select(stack_?, entry, place == ?u * lanes + lane);
    *stack_size = place + 1u;
}

fn pop_entry(stack_size: ptr<function, u32>) -> u32 {
    let place = *stack_size - 1u;
    *stack_size = place;
    var entry = stack_0;
    entry = select(entry, stack_?, place >> lane_shift == ?u);
    return subgroupShuffle(entry, place & (lanes - 1u));
}

fn each_subgroup(number: u32, invocation: u32, size: u32, place: u32) {
    lanes = size;
    lane_shift = firstTrailingBit(size);
    lane = place;
    search_blocks(number, invocation);
}

#each_subgroup
