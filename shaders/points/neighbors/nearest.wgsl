// The nearest sources of each query: lists in the order of (squared distance, index).
//
// Layout: as in search.wgsl. `last_of` is the entry that a list begins behind, `first_reach` how far it looks at first;
// `empty#`, `offer#`, `restore#` and `close#` keep the list of a slot.

struct Entry {
    distance: f32,
    index: u32,
}

var<private> last#: Entry;

fn start#(row: u32) {
    let line = line_of(row, number#);
    last# = last_of(line);
    reach# = first_reach(line);
    empty#(reach#);
    if begin_at > 0u { restore#(line); }
}

fn admit#(d: f32, s: u32) {
    if skip == 1u && s == number# { return; }
    if behind(last#, d, s) { offer#(d, s); }
}

fn finish#(row: u32) {
    close#(line_of(row, number#));
}
