// What is scanned: words. Every element of `output` is the sum of the words before it.

fn value(i: u32) -> u32 { return load_input(i); }

fn emit(i: u32, before: u32, own: u32, ends: bool) {
    if i < params.outputs { store_output(i, before); }
}
