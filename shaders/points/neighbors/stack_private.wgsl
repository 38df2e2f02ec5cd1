// The stack of a traversal in an array of each invocation.

var<private> stack: array<u32, STACK>;
var<private> stack_size: u32;

fn push_entry(entry: u32) {
    stack[stack_size] = entry;
    stack_size++;
}

/// The entry on top, which leaves the stack.
fn pop_entry() -> u32 {
    stack_size--;
    return stack[stack_size];
}
