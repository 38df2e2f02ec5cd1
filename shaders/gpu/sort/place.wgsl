// What goes along with key number i: its entry in `index` (`indexed`), or i itself in the first
// pass. `place` writes both.

#if indexed
fn payload(i: u32) -> u32 { return load_index(i); }
#else
fn payload(i: u32) -> u32 { return i; }
#endif

fn place(at: u32, key: u32, payload: u32) {
    store_to_keys(at, key);
    store_to_index(at, payload);
}
