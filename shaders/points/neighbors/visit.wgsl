// What a callback makes of all sources within a radius.
//
// Layout: as in search.wgsl, and the arrays of the callback, which defines State, begin, each, end and `finished`; `told` is what it
// is told of a square.

var<private> state#: State;

fn start#(row: u32) {
    state# = begin(line_of(row, number#), params.radius);
    reach# = select(params.reach, -1.0, finished(state#));
}

fn admit#(d: f32, s: u32) {
    if (skip == 1u && s == number#) || (skip == 2u && s <= number#) { return; }
    state# = each(state#, Neighbor(s, told(d)));
    if finished(state#) { reach# = -1.0; }
}

fn finish#(row: u32) {
    end(line_of(row, number#), state#);
}
