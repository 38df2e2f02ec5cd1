// The nearest sources of each slot's query, up to LENGTH, in registers: entries of a squared
// distance and an index, in the order of (square, index), which makes the list unique. Lines with
// an `@` are written once for each entry.
//
// A list of `params.write` entries is the end of the LENGTH registers; those before it hold
// squares of -1, which stay in front of all others. So one kernel serves every number of entries up
// to LENGTH, and the last register always holds the reach.
//
// Nothing is indexed dynamically: a new entry is compared with all, and those behind it move by one
// through selections. With `queued`, accepted sources wait in a queue of four entries, and those
// of all lanes are inserted together once a lane has no room left: lanes accept different sources,
// and an insertion takes as long for one lane as for all. Until then reaches are too large.

var<private> distance#_@: f32;
var<private> index#_@: u32;

#if queued
/// Entries that wait for insertion, the last that came first; behind them squares of FAR.
var<private> queue_d#: vec4<f32>;
var<private> queue_s#: vec4<u32>;
#endif

/// An empty list of what is within `reach`.
fn clear_list#(reach: f32) {
    distance#_@ = select(-1.0, reach, @u + params.write >= LENGTH);
    index#_@ = NONE;
    worst# = NONE;
#if queued
    queue_d# = vec4<f32>(FARTHEST);
    queue_s# = vec4<u32>(NONE);
#endif
}

#if network
/// The entry before the one in question, and whether the new one comes before that.
var<private> last_d: f32;
var<private> last_s: u32;
var<private> last_before: bool;

/// Entry `@` when an entry is inserted; called for all entries in order. No entry waits for the
/// result of another.
fn insert_at#_@(d: f32, s: u32) {
    let old_d = distance#_@;
    let old_s = index#_@;
    let before = d < old_d || (d == old_d && s < old_s);
    distance#_@ = max(last_d, min(old_d, d));
    index#_@ = select(select(old_s, s, before), last_s, last_before);
    last_d = old_d;
    last_s = old_s;
    last_before = before;
}
#else
/// The new entry, or the one that moves.
var<private> last_d: f32;
var<private> last_s: u32;

/// Entry `@` when an entry is inserted; called for all entries in order. On software renderers this
/// takes three quarters of the time of the other form, for 32 entries.
fn insert_at#_@(d: f32, s: u32) {
    let old_d = distance#_@;
    let old_s = index#_@;
    let before = d < old_d || (d == old_d && s < old_s);
    // Before the entry is written, so that it can stay in its register.
    let next_d = select(d, old_d, before);
    let next_s = select(s, old_s, before);
    distance#_@ = select(old_d, last_d, before);
    index#_@ = select(old_s, last_s, before);
    last_d = next_d;
    last_s = next_s;
}
#endif

/// Puts an entry in its place; the last one leaves the list, and `reach#` and `worst#` become those
/// of the new last one.
fn insert#(d: f32, s: u32) {
#if network
    last_d = -1.0;
    last_before = false;
#else
    last_d = d;
    last_s = s;
#endif
    insert_at#_@(d, s);
    take_reach#();
}

#if queued
/// Lets an entry wait for insertion; there must be room.
fn keep#(d: f32, s: u32) {
    queue_d# = vec4<f32>(d, queue_d#.xyz);
    queue_s# = vec4<u32>(s, queue_s#.xyz);
}

/// Returns `true` if every slot has room for an entry.
fn has_room() -> bool {
    var room = true;
    room = room && queue_s#.w == NONE;
    return room;
}

/// Inserts the first entry that waits.
fn insert_next#() {
    insert#(queue_d#.x, queue_s#.x);
    queue_d# = vec4<f32>(queue_d#.yzw, FARTHEST);
    queue_s# = vec4<u32>(queue_s#.yzw, NONE);
}

/// Inserts all entries that wait.
fn empty_queues() {
    loop {
        var waiting = false;
        waiting = waiting || queue_s#.x != NONE;
        if !waiting { break; }
        insert_next#();
    }
    come_together();
}
#else
fn keep#(d: f32, s: u32) { insert#(d, s); }
#endif

/// Takes the reach that the list leaves: its last entry. (Each line overwrites the one before.)
fn take_reach#() {
    reach# = distance#_@;
    worst# = index#_@;
}

/// Takes the last entry of a list into `reach#` and `worst#`, and moves the others up by one.
fn take_last#() {
    take_reach#();
    last_d = -1.0;
    last_s = NONE;
    move_up#_@();
}

fn move_up#_@() {
    let old_d = distance#_@;
    let old_s = index#_@;
    distance#_@ = last_d;
    index#_@ = last_s;
    last_d = old_d;
    last_s = old_s;
}
