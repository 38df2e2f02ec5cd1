// Group search: the queries of a group traverse a tree together.
//
// A group is `lanes * SLOTS` queries that follow each other on a curve: SLOTS in each of `lanes`
// invocations, which share what they load through one of the modules `neighbors::lanes`. Lines with
// a `#` are written once for each slot, with the number of the slot in its place; those with a `$`
// once for each child of a node that a lane looks at.
//
// All lanes of a group come to every vote together: loops and conditions around one depend on
// parameters, results of votes and variables of a function that hold such, and on nothing else.
// Where lanes go apart (the sources that one accepts, steps to roots) no lane votes, and they come
// together again before anybody does (`come_together`): that lanes which have left a loop wait for
// the others is not promised by Vulkan. `tests/shaders.rs` goes through every form and checks it.
//
// The kernel that imports this module defines what is done with sources:
// - `begin_query#(row)` and `end_query#(row)` for each query, `begin_group()` after the former of
//   all slots;
// - `max_reach()`, how far any query of the group reaches, and `reaches(node)`, whether any query
//   of the lane reaches a node;
// - `is_candidate(source)`, asked after `begin_leaf()`: whether a source can matter at all;
// - `accept#(square, index)` for each slot that reaches a source, then `merge_source(index)`;
// - `can_skip(level, node, ..)`, whether nothing more can come of a node, and `must_repeat()`,
//   whether a leaf has to be looked at again;
// - with `queued`, `has_room()`, whether each slot can accept another source, and `empty_queues()`.
//
// Layout: `source` holds the tree's points (2 or 3 words each, along its curve), `order` the index
// of each in the input, `box` eight words per node (bits of low and high, the least index of a
// point, the length of the diagonal), level after level from the leaves; `query` and `number` are
// for the queries what `source` and `order` are for the sources. Without these, the queries are the
// sources. For linking, `parent` is bound instead of `order` (link.wgsl). A leaf is LEAF points,
// a node FAN nodes of the level below. Coordinates are scaled as they are loaded (measure.wgsl).
//
// Workgroup: GROUP invocations in as many groups as they make; memory as the lanes need it.
//
// A node is entered if any lane reaches it: a test of the group's box alone lets one outlier drag
// its group through the whole tree. Along a periodic axis the nearest image counts: a difference d0
// above half the side becomes (query - side) - source, one below its negative query - (source -
// side). Either shift is exact where it is taken, so a distance does not depend on which nodes a
// pair was found in. Compilers that take floats for real numbers (Metal's and DirectX's may) would
// make of it query - (source + side), which is not exact: `held` keeps a shifted coordinate as it
// is.
//
// Some drivers end all loops of an invocation silently after a number of rounds (llvmpipe: 65,535).
// Where a traversal could take more, it stops after `params.rounds` and leaves in `cursor`, one
// word per group, the point where it has to go on (NONE: it is complete): the next dispatch
// continues there. Continuing needs leaves in the order of the curve.

var<uniform> params: Params;
var<storage, read> source: array<f32>;
#if links
var<storage, read_write> parent: array<atomic<u32>>;
#else
var<storage, read> order: array<u32>;
#endif
var<storage, read> box: array<u32>;
#if !own
var<storage, read> query: array<f32>;
var<storage, read> number: array<u32>;
#endif
#if cursor
var<storage, read_write> cursor: array<u32>;
#endif

#import neighbors::measure
#import neighbors::image
#import neighbors::lanes

/// Queries of a workgroup, and those for which there is a word of `cursor`: a group or a part of
/// one.
const BLOCK: u32 = GROUP * SLOTS;
const UNIT: u32 = LANES * SLOTS;
const NONE: u32 = 0xffffffffu;
/// Beyond all coordinates.
const FAR: f32 = 8e37;
/// Beyond all squares.
const FARTHEST: f32 = 0x1.fffffep+127;
/// Tests that only prune take distances a little smaller than they are, so that rounding never
/// discards a true neighbor: compilers may round the same sum in different ways.
const CLOSER: f32 = 0.999999;

struct Bounds {
    low: vec3<f32>,
    high: vec3<f32>,
}

struct Node {
    bounds: Bounds,
    /// The least index of its points.
    least: u32,
    /// Scaled as coordinates are.
    diagonal: f32,
}

/// Shifts subtracted from queries and from sources if all their pairs take the same periodic
/// image; `mixed` if they do not.
struct Image {
    by_query: vec3<f32>,
    by_source: vec3<f32>,
    mixed: bool,
}

/// The query of the first slot.
var<private> first_row: u32;
/// Bounds of the leaf that was found last.
var<private> leaf_bounds: Bounds;
/// Bounds of the group's queries.
var<private> group_bounds: Bounds;
var<private> x#: f32;
var<private> y#: f32;
var<private> z#: f32;
/// Squared; negative for a slot without a query.
var<private> reach#: f32;
/// Index of the query in its input.
var<private> number#: u32;
/// At a distance of exactly `reach#`, only sources of a lower index are wanted.
var<private> worst#: u32;
/// Parameters that inner loops use: reading them again from memory that may have changed is slow.
var<private> sources: u32;
var<private> skip: u32;
/// The leaf to begin at.
var<private> begin_at: u32;
#if cursor
/// Rounds of loops so far, leaves that were looked at, and whether the traversal has stopped.
var<private> rounds: u32;
var<private> leaves: u32;
var<private> stopped: bool;
#endif
#if offsets
/// From the query to the nearest image of the source in question.
var<private> offset#: vec3<f32>;
#endif
/// Slots whose query reaches the source in question; `wanted_hits` says which of them count.
var<private> hits: u32;

fn source_at(i: u32) -> vec3<f32> {
#if planar
    return load_scale * vec3<f32>(load_source(2u * i), load_source(2u * i + 1u), 0.0);
#else
    return load_scale * vec3<f32>(load_source(3u * i), load_source(3u * i + 1u), load_source(3u * i + 2u));
#endif
}

fn query_at(i: u32) -> vec3<f32> {
#if own
    return source_at(i);
#else
#if planar
    return load_scale * vec3<f32>(load_query(2u * i), load_query(2u * i + 1u), 0.0);
#else
    return load_scale * vec3<f32>(load_query(3u * i), load_query(3u * i + 1u), load_query(3u * i + 2u));
#endif
#endif
}

/// Returns the index of a source in its input; when linking, its parent.
fn index_of(i: u32) -> u32 {
#if links
    return load_parent(i);
#else
    return load_order(i);
#endif
}

/// Returns the index of a query in its input.
fn number_of(row: u32) -> u32 {
#if own
    return index_of(row);
#else
    return load_number(row);
#endif
}

/// Returns the row of a query's results: by its index in the input, or along the curve.
fn result_row(row: u32, number: u32) -> u32 {
    return select(row - params.base, number, params.by_number == 1u);
}

/// First node of a level, counted from the leaves.
fn first_of(level: u32) -> u32 {
    return params.starts[level >> 2u][level & 3u];
}

fn box_word(node: u32, word: u32) -> f32 {
    return bitcast<f32>(load_box(8u * node + word));
}

fn bounds_of(node: u32) -> Bounds {
    return Bounds(
        load_scale * vec3<f32>(box_word(node, 0u), box_word(node, 1u), box_word(node, 2u)),
        load_scale * vec3<f32>(box_word(node, 3u), box_word(node, 4u), box_word(node, 5u)),
    );
}

/// Distance along each axis from a point to bounds, or to their nearest image, not yet scaled.
fn gap(at: vec3<f32>, b: Bounds) -> vec3<f32> {
    let plain = max(b.low - at, at - b.high);
    return max(min(plain, min(at - held3(b.high - side), b.low - held3(at - side))), vec3<f32>(0.0));
}

/// Returns the gap between two bounds along each axis.
fn gap_between(a: Bounds, b: Bounds) -> vec3<f32> {
    let plain = max(b.low - a.high, a.low - b.high);
    return max(min(plain, min(a.low - held3(b.high - side), b.low - held3(a.high - side))), vec3<f32>(0.0));
}

/// Which images the queries of the group and the points of `b` take.
fn image_of(b: Bounds) -> Image {
    // Range of the differences query - source.
    let below = group_bounds.low - b.high;
    let above = group_bounds.high - b.low;
    let by_query = select(vec3<f32>(0.0), side, below > half_side);
    let by_source = select(vec3<f32>(0.0), side, above < -half_side);
    let mixed = any((above > half_side) & (below <= half_side)) || any((below < -half_side) & (above >= -half_side));
    return Image(by_query, by_source, mixed);
}

/// Returns the slots among those that reach source `j` that it counts for: in a half traversal the
/// queries before it, so that each pair is found once.
fn wanted_hits(j: u32) -> u32 {
#if half
    return extractBits(hits, 0u, u32(clamp(i32(j) - i32(first_row), 0, 32)));
#else
    return hits;
#endif
}

/// Tests the points of a leaf against all queries of the group. First each lane finds those that
/// any of its own queries reaches, for mostly there are none; these candidates are then accepted
/// one by one.
fn scan(leaf: u32, b: Bounds) {
    let image = image_of(b);
    let mixed = any_lane(image.mixed);
    let low = held3(group_bounds.low - image.by_query);
    let high = held3(group_bounds.high - image.by_query);
    let most = max_reach();
    begin_leaf();
    let qx# = held(x# - image.by_query.x);
    let qy# = held(y# - image.by_query.y);
    let qz# = held(z# - image.by_query.z);
    var candidates = 0u;
    for (var t = 0u; t < LEAF; t += lanes) {
        let j = leaf * LEAF + t + lane;
        // A group may have more lanes than a leaf has points.
        let exists = t + lane < LEAF && j < sources;
        var at = vec3<f32>(0.0);
        if exists { at = held3(source_at(j) - image.by_source); }
        // Most sources of a leaf at the edge of the reach are near none of the queries.
        let outside = max(max(low - at, at - high), vec3<f32>(0.0));
        let inside = exists && (mixed || square_of(scaled3(outside)) * CLOSER <= most);
        share(at);
        let near = lane_ballot(inside && is_candidate(j));
        var left = select(near, 0u, mixed);
        while left != 0u {
            let n = firstTrailingBit(left);
            left &= left - 1u;
            let s = shared_from(n);
            let dx# = qx# - s.x;
            let dy# = qy# - s.y;
            let dz# = qz# - s.z;
            hits = 0u;
            hits |= select(0u, 1u << #u, square(scaled(dx#), scaled(dy#), scaled(dz#)) * CLOSER <= reach#);
            if wanted_hits(leaf * LEAF + t + n) != 0u { candidates |= 1u << (t + n); }
        }
        // Where pairs take different images, all sources are candidates.
        candidates |= select(0u, near << t, mixed);
    }
#if queued
    loop {
        while candidates != 0u && has_room() { candidates = accept_first(leaf, candidates); }
        come_together();
        if !any_lane(candidates != 0u || !has_room()) { break; }
        empty_queues();
#if cursor
        rounds += LEAF + 8u;
#endif
    }
#else
    while candidates != 0u { candidates = accept_first(leaf, candidates); }
    come_together();
#endif
}

/// Accepts the first candidate of a leaf for the queries that reach it; returns the others.
fn accept_first(leaf: u32, candidates: u32) -> u32 {
    let j = leaf * LEAF + firstTrailingBit(candidates);
    let at = source_at(j);
    let s = index_of(j);
    let dx# = nearest_image(x#, at.x, 0u);
    let dy# = nearest_image(y#, at.y, 1u);
    let dz# = nearest_image(z#, at.z, 2u);
    let d# = square(scaled(dx#), scaled(dy#), scaled(dz#));
#if offsets
    offset# = -params.offset_unit * vec3<f32>(dx#, dy#, dz#);
#endif
    hits = 0u;
    hits |= select(0u, 1u << #u, d# <= reach#);
    hits = wanted_hits(j);
    if extractBits(hits, #u, 1u) == 1u { accept#(d#, s); }
    merge_source(s);
    return candidates & (candidates - 1u);
}

// Entries of the stack are nodes to be visited: the level in the upper 4 bits, the node within its
// level in the others. How many there are is in a variable of `traverse`.
#if nearest_first
#import neighbors::nearest_first
#else
#import neighbors::in_order
#endif

/// Returns the next leaf that is reached, with its bounds; NONE if there is none left, or the
/// traversal has stopped.
fn next_leaf(stack_size: ptr<function, u32>, own_leaf: u32) -> u32 {
    while *stack_size > 0u {
        let entry = pop_entry(stack_size);
        let level = entry >> 28u;
        let node = entry & 0xfffffffu;
        if level < params.levels {
            let loaded = load_node(first_of(level) + node);
            if !any_lane(reaches(loaded)) { continue; }
#if cursor
            if any_lane(rounds > params.rounds) {
                stop_at(node << (3u * level));
                break;
            }
#endif
            if can_skip(level, node, loaded) { continue; }
            if level == 0u {
                if node == own_leaf { continue; }
                leaf_bounds = loaded.bounds;
                return node;
            }
        }
        let first = node * FAN;
        let base = first_of(level - 1u) + first;
        let count = min(FAN, first_of(level) - base);
#if cursor
        rounds += 2u * count + 2u;
#endif
        push(stack_size, base, first, count, level - 1u);
    }
    return NONE;
}

#if cursor
fn stop_at(leaf: u32) {
    stopped = true;
    begin_at = leaf;
}
#endif

/// Looks at `own_leaf`, if it is one, and traverses the rest of the tree. Leaves are scanned in one
/// place: each is long code.
fn traverse(own_leaf: u32) {
    var stack_size = 0u;
    push_entry(&stack_size, params.levels << 28u);
    var leaf = own_leaf;
    if leaf != NONE { leaf_bounds = load_node(leaf).bounds; }
    loop {
        if leaf == NONE {
            leaf = next_leaf(&stack_size, own_leaf);
            if leaf == NONE { break; }
#if cursor
            rounds += params.leaf_rounds;
            leaves++;
#endif
        }
        scan(leaf, leaf_bounds);
#if resumes
        if must_repeat() {
            stop_at(leaf);
            break;
        }
#endif
        leaf = NONE;
    }
}

fn load_slot#(row: u32) {
    reach# = -1.0;
    if row >= params.queries { return; }
    let at = query_at(row);
    x# = at.x;
    y# = at.y;
    z# = at.z;
    number# = number_of(row);
    begin_query#(row);
    if reach# >= 0.0 { group_bounds = Bounds(min(group_bounds.low, at), max(group_bounds.high, at)); }
}

/// Returns the leaf that the points of a group are in, the first of which is `row`, if it is looked
/// at first; NONE if it comes in its turn.
fn own_leaf_of(row: u32) -> u32 {
#if own
#if nearest_first
    return row / LEAF;
#else
    return NONE;
#endif
#else
    return NONE;
#endif
}

/// Returns the first leaf that a group looks at, the first query of which is `row`; NONE if it is
/// complete.
fn first_leaf(row: u32) -> u32 {
#if half
    let begin = row / LEAF;
#else
    let begin = 0u;
#endif
#if resumes
    if row >= params.queries { return begin; }
    return max(group_value(load_cursor((row - params.base) / UNIT)), begin);
#else
    return begin;
#endif
}

/// Keeps how far a group has come, for traversals that stop.
fn keep_cursor() {
#if cursor
    if lane % LANES != 0u || first_row >= params.queries { return; }
    let unit = (first_row - params.base) / UNIT;
#endif
#if resumes
    store_cursor(unit, select(NONE, begin_at, stopped));
#endif
#if marks
    store_cursor(unit, select(NONE, 0u, stopped));
#endif
#if counts
    store_cursor(unit, select(leaves, NONE, stopped));
#endif
}

/// Searches for the queries of this invocation and the others of its group, from `row` on.
fn search(row: u32) {
    first_row = row;
    let group_row = group_value(row);
    let begin = first_leaf(group_row);
    if begin == NONE { return; }
    begin_at = begin;
    group_bounds = Bounds(vec3<f32>(FAR), vec3<f32>(-FAR));
    let row# = row + #u;
    worst# = NONE;
    load_slot#(row#);
    come_together();
    var searching = false;
    searching |= reach# >= 0.0;
    begin_group();
    if params.sources > 0u && any_lane(searching) {
        group_bounds = Bounds(lane_min(group_bounds.low), lane_max(group_bounds.high));
        traverse(own_leaf_of(group_row));
#if queued
        empty_queues();
#endif
    }
    if row# < params.queries { end_query#(row#); }
    keep_cursor();
    come_together();
}

/// Searches for the queries of a workgroup, of which there may be fewer than it has room for: one
/// block of them, or several for a histogram.
fn search_blocks(number: u32, invocation: u32) {
    begin_images(params.side, params.nothing);
    sources = params.sources;
    skip = params.skip;
    load_scale = params.load_scale;
    square_scale = params.square_scale;
    max_difference = params.max_difference;
    begin_lanes();
    let row = params.first + number * params.blocks * BLOCK + invocation * SLOTS;
#if histogram
    begin_histogram(invocation);
    for (var block = 0u; block < params.blocks; block++) { search(row + block * BLOCK); }
    end_histogram(invocation);
#else
    search(row);
#endif
}
