// The nearest sources of each query, up to LENGTH at a time, in the order of (squared distance,
// index).
//
// Layout: as in search.wgsl. Results are rows of `params.k` entries in `index` and `distance`, of
// which this dispatch writes `params.write` from `params.done` on; missing entries have index NONE
// and distance infinity. If there are more passes to come (`params.unit` is 0), or the traversal
// has stopped and goes on in the next dispatch, `distance` holds squares.

#import neighbors::search
var<storage, read_write> index: array<u32>;
var<storage, read_write> distance: array<f32>;

#import neighbors::query_reach
#import neighbors::knn_list

#if later_pass
/// The last entry of the pass before, behind which this list begins.
var<private> previous_d#: f32;
var<private> previous_s#: u32;
#endif

fn begin_query#(row: u32) {
    let first = result_row(row, number#) * params.k + params.done;
#if later_pass
    previous_d# = load_distance(first - 1u);
    previous_s# = load_index(first - 1u);
#endif
#if resumes
    // Where a traversal has stopped, the last entry that it had bounds all others.
    reach# = load_distance(first + params.write - 1u);
#else
    reach# = params.reach;
#endif
    clear_list#(reach#);
#if resumes
    if begin_at > 0u {
        for (var n = 0u; n < params.write; n++) { insert#(load_distance(first + n), load_index(first + n)); }
    }
#endif
}

fn accept#(d: f32, s: u32) {
    if skip == 1u && s == number# { return; }
#if later_pass
    if d > previous_d# || (d == previous_d# && s > previous_s#) { keep#(d, s); }
#else
    keep#(d, s);
#endif
}

fn end_query#(row: u32) {
    let first = result_row(row, number#) * params.k + params.done;
    // The last entry first.
    for (var n = params.write; n > 0u; n--) {
        take_last#();
        put(first + n - 1u, reach#, worst#);
    }
}

/// Stores an entry: the square if there are more passes to come or the traversal has stopped.
fn put(at: u32, d: f32, s: u32) {
    store_index(at, s);
#if cursor
    if stopped { store_distance(at, d); return; }
#endif
    if params.unit == 0.0 { store_distance(at, d); return; }
    store_distance(at, select(params.infinity, params.unit * sqrt(d), s != NONE));
}
