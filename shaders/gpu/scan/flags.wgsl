// What is scanned: whether flags are set. The index of every flag that is set goes to its place in `output`, as far as
// that reaches, and their number to `number[0]`.

fn value(i: u32) -> u32 { return select(0u, 1u, load_input(i) != 0u); }

fn emit(i: u32, before: u32, own: u32, ends: bool) {
    if own != 0u && before < params.outputs { store_output(before, i); }
    // One element beyond the last stands for the end; it is never set.
    if ends { store_number(0u, before); }
}
