// Runs a callback over all sources within a radius of each query, in no particular order.
//
// Layout: as in search.wgsl, then the arrays of the callback, which defines State, begin, each, end
// and, if `stopping`, done. `squares` says that it is given squares of distances, as they are
// compared, and not distances. With `offsets` it is given displacements, too.

#import neighbors::search
#import neighbors::rounded_sqrt
#import neighbors::neighbor
#import neighbors::callback
#import neighbors::query_reach
#if whole
#import neighbors::whole_nodes
#endif

var<private> state#: State;

/// Returns `true` if the callback wants no more neighbors.
fn finished(state: State) -> bool {
#if stopping
    return done(state);
#else
    return false;
#endif
}

fn begin_query#(row: u32) {
    state# = begin(result_row(row, number#), params.radius);
    reach# = select(params.reach, -1.0, finished(state#));
}

fn accept#(d: f32, s: u32) {
    if (skip == 1u && s == number#) || (skip == 2u && s <= number#) { return; }
#if squares
    state# = each(state#, Neighbor(s, d, vec3<f32>(0.0)));
#else
#if offsets
    state# = each(state#, Neighbor(s, params.unit * rounded_sqrt(d), offset#));
#else
    state# = each(state#, Neighbor(s, params.unit * rounded_sqrt(d), vec3<f32>(0.0)));
#endif
#endif
    if finished(state#) { reach# = -1.0; }
}

fn end_query#(row: u32) {
    end(result_row(row, number#), state#);
}
