// Finds the keys of long runs.
//
// Layout: `codes` holds sorted codes. For each aligned BLOCK of them `ends` receives how many at its beginning (low half) and at its end (high
// half) belong to long runs, `sizes` the sum of both, and `total[0]` how many there are in all.
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

/// Whether all of a block that begins with `first`, which is less than `last`, belongs to one run.
fn is_run(first: u32, last: u32) -> bool {
    if last - first < BLOCK { return false; }
    let code = code_at(first);
    return code_at(first + BLOCK - 1u) == code && !is_exact(code);
}

fn each_invocation(block: u32) {
    let last = counted();
    let first = block * BLOCK;
    var leading = 0u;
    var trailing = 0u;
    if first < last && is_run(first, last) {
        leading = BLOCK;
    } else if first < last {
        let length = min(last - first, BLOCK);
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
    }
    store_ends(block, leading | (trailing << 16u));
    store_sizes(block, leading + trailing);
    if leading + trailing > 0u { add_total(0u, leading + trailing); }
}

#each_invocation params.parts
