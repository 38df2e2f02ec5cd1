// The LENGTH nearest sources of each slot's query, in registers: entries of a squared distance and
// an index, in the order of (square, index), which makes the list unique. Lines with an `@` are
// written once for each entry.
//
// Nothing is indexed dynamically: a new entry is compared with all, and those behind it move by one
// through selections.

var<private> distance#_@: f32;
var<private> index#_@: u32;

/// An empty list of what is within `reach`.
fn clear_list#(reach: f32) {
    distance#_@ = reach;
    index#_@ = NONE;
    worst# = NONE;
}

/// Distance of the next entry if the new one comes before it: the new one, or the entry that
/// moves.
var<private> moved_d: f32;
var<private> moved_s: u32;

/// Entry `@` when an entry is inserted; called for all entries in order.
fn insert_at#_@(d: f32, s: u32) {
    let old_d = distance#_@;
    let old_s = index#_@;
    let before = d < old_d || (d == old_d && s < old_s);
    // Before the entry is written, so that it can stay in its register.
    let next_d = select(d, old_d, before);
    let next_s = select(s, old_s, before);
    distance#_@ = select(old_d, moved_d, before);
    index#_@ = select(old_s, moved_s, before);
    moved_d = next_d;
    moved_s = next_s;
}

/// Puts an entry in its place; the last one leaves the list, and `reach#` and `worst#` become those
/// of the new last one.
fn insert#(d: f32, s: u32) {
    moved_d = d;
    moved_s = s;
    insert_at#_@(d, s);
    take_reach#();
}

/// Takes the reach that the list leaves: its last entry. (Each line overwrites the one before.)
fn take_reach#() {
    reach# = distance#_@;
    worst# = index#_@;
}
