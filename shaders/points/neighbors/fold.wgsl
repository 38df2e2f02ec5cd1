// Runs a callback over finished lists of neighbors.
//
// Layout: `index` and `distance` hold the entries of row `base + row`. With `rows` they are
// `offset[row]..offset[row + 1]`; otherwise `params.k` for each row, of which missing ones (NONE)
// come last. `number` is the index of each query, from `params.base` on, which the callback gets.
// With `offsets`, `source` holds the sources by their index (2 or 3 words each), and `query` the
// queries as `number` has them; with `own` the queries are sources. Then the arrays of the
// callback, which defines State, begin, each, end and, if `stopping`, done.
// Workgroup: GROUP invocations, one row each. No workgroup memory.

var<uniform> params: Params;
#if rows
var<storage, read> offset: array<u32>;
#endif
var<storage, read> index: array<u32>;
var<storage, read> distance: array<f32>;
var<storage, read> number: array<u32>;
#if offsets
var<storage, read> source: array<f32>;
#if !own
var<storage, read> query: array<f32>;
#endif
#endif

#import neighbors::image
#import neighbors::neighbor
#import neighbors::callback

const NONE: u32 = 0xffffffffu;

#if offsets
fn source_at(i: u32) -> vec3<f32> {
#if planar
    return params.load_scale * vec3<f32>(load_source(2u * i), load_source(2u * i + 1u), 0.0);
#else
    return params.load_scale * vec3<f32>(load_source(3u * i), load_source(3u * i + 1u), load_source(3u * i + 2u));
#endif
}

fn query_at(at: u32) -> vec3<f32> {
#if own
    return source_at(load_number(at));
#else
#if planar
    return params.load_scale * vec3<f32>(load_query(2u * at), load_query(2u * at + 1u), 0.0);
#else
    return params.load_scale * vec3<f32>(load_query(3u * at), load_query(3u * at + 1u), load_query(3u * at + 2u));
#endif
#endif
}
#endif

/// From a query to the nearest image of a source, by the differences that its distance was computed
/// from.
fn offset_to(at: vec3<f32>, s: u32) -> vec3<f32> {
#if offsets
    let other = source_at(s);
    let d = vec3<f32>(nearest_image(at.x, other.x, 0u), nearest_image(at.y, other.y, 1u), nearest_image(at.z, other.z, 2u));
    return -params.offset_unit * d;
#else
    return vec3<f32>(0.0);
#endif
}

/// Returns `true` if the callback wants no more neighbors.
fn finished(state: State) -> bool {
#if stopping
    return done(state);
#else
    return false;
#endif
}

fn each_invocation(row: u32) {
    begin_images(params.side, params.nothing);
    let query = load_number(params.base + row);
#if rows
    let first = load_offset(row);
    let last = load_offset(row + 1u);
    let reach = params.radius;
#else
    let first = row * params.k;
    var last = first;
    while last < first + params.k {
        if load_index(last) == NONE { break; }
        last++;
    }
    var reach = 0.0;
    if last > first { reach = load_distance(last - 1u); }
#endif
    var at = vec3<f32>(0.0);
#if offsets
    at = query_at(params.base + row);
#endif
    var state = begin(query, reach);
    for (var i = first; i < last; i++) {
        if finished(state) { break; }
        let s = load_index(i);
        state = each(state, Neighbor(s, load_distance(i), offset_to(at, s)));
    }
    end(query, state);
}

#each_invocation params.rows
