// The stack of a traversal in registers of a group's lanes, which all push and pop together: entry `e` is in lane `e % LANES`, in its
// register `e / LANES`. Lines with a `?` are written once for each register.
//
// Nothing is indexed dynamically, so that the registers need not lie in memory. Read and written in uniform flow of the group only.

var<private> stack_?: u32;
var<private> stack_size: u32;

fn push_entry(entry: u32) {
    stack_? = select(stack_?, entry, stack_size - ?u * LANES == lane);
    stack_size++;
}

/// The entry on top, which leaves the stack.
fn pop_entry() -> u32 {
    stack_size--;
    var entry = stack_0;
    entry = select(entry, stack_?, stack_size / LANES == ?u);
    return broadcast_u32(entry, stack_size % LANES);
}
