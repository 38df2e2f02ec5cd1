// The LENGTH nearest sources of each slot's query, in registers: entries of a squared distance and an index, in the order of (square,
// index), which makes the list unique. Lines with an `@` are written once for each entry.
//
// Nothing is indexed dynamically: a new entry is compared with all, and those behind it move by one through selections.

var<private> distance#_@: f32;
var<private> index#_@: u32;

/// An empty list of what is within `reach`.
fn clear_list#(reach: f32) {
    distance#_@ = reach;
    index#_@ = NONE;
    worst# = NONE;
}

/// Puts an entry in its place; the last one leaves the list, and `reach#` and `worst#` become those of the new last one.
fn insert#(d: f32, s: u32) {
    let d@ = distance#_@;
    let s@ = index#_@;
    let before@ = d < d@ || (d == d@ && s < s@);
    // What entry `@` becomes if the new one comes before it: the new one, or the entry before.
    var moved_d = d;
    var moved_s = s;
    distance#_@ = select(d@, moved_d, before@); moved_d = select(d, d@, before@);
    index#_@ = select(s@, moved_s, before@); moved_s = select(s, s@, before@);
    take_reach#();
}

/// The reach that the list leaves: its last entry. (Each line overwrites the one before.)
fn take_reach#() {
    reach# = distance#_@;
    worst# = index#_@;
}
