// Finds the keys of long runs.
//
// Layout: `codes` holds sorted codes. For each aligned BLOCK of them `ends` receives how many at
// its beginning (low half) and at its end (high half) belong to long runs, `sizes` the sum of both,
// and `total[0]` how many there are in all.
// Workgroup: GROUP invocations, a block each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> codes: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read> sample: array<u32>;
var<storage, read_write> ends: array<u32>;
var<storage, read_write> sizes: array<u32>;
var<storage, read_write> total: array<atomic<u32>>;

#import gpu::counted
#import gpu::sort::tied

/// Returns `true` if all of a block from `first`, which is less than `last`, is one run.
fn is_run(first: u32, last: u32) -> bool {
    if last - first < BLOCK { return false; }
    let code = code_at(first);
    return code == code_at(first + BLOCK - 1u) && leaves_open(code);
}

/// Returns the number of keys of long runs at the beginning (x) and end (y) of a block.
fn ends_of(first: u32, last: u32) -> vec2<u32> {
    if is_run(first, last) { return vec2<u32>(BLOCK, 0u); }
    let length = min(last - first, BLOCK);
    var leading = 0u;
    var trailing = 0u;
    if first > 0u && is_run(first - BLOCK, last) {
        let code = code_at(first - 1u);
        while leading < length {
            if code_at(first + leading) != code { break; }
            leading++;
        }
    }
    if last - first > BLOCK && is_run(first + BLOCK, last) {
        let code = code_at(first + BLOCK);
        while trailing < length {
            if code_at(first + length - 1u - trailing) != code { break; }
            trailing++;
        }
    }
    return vec2<u32>(leading, trailing);
}

fn each_invocation(block: u32) {
    let last = counted();
    let first = block * BLOCK;
    set_counting();
    var near = false;
    if first < last { near = is_run(first, last); }
    if first < last && first > 0u { near |= is_run(first - BLOCK, last); }
    if first < last && last - first > BLOCK { near |= is_run(first + BLOCK, last); }
    var found = vec2<u32>(0u);
    // A loop of one round: a software renderer executes what stands in a condition, masked, for
    // every block.
    for (var round = select(0u, 1u, near); round > 0u; round--) { found = ends_of(first, last); }
    store_ends(block, found.x | (found.y << 16u));
    store_sizes(block, found.x + found.y);
    if found.x + found.y > 0u { add_total(0u, found.x + found.y); }
}

#each_invocation params.parts
