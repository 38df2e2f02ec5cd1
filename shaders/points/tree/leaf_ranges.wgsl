// The least and the greatest of the numbers that the points of each leaf of a tree have.
//
// Layout: `values` holds a word for each of `params.count` points along the curve, `ranges` two
// words per leaf: the least, the greatest. Floats from 0 on are ordered as their bits are.
// Workgroup: 64 invocations and 16 leaves; four invocations share a leaf, each with PART points: a
// sector of memory. 512 bytes of workgroup memory.

var<uniform> params: Params;
var<storage, read> values: array<u32>;
var<storage, read_write> ranges: array<u32>;

const PART: u32 = LEAF / 4u;

var<workgroup> leasts: array<u32, GROUP>;
var<workgroup> greatests: array<u32, GROUP>;

fn each_workgroup(number: u32, lane: u32) {
    let part = number * GROUP + lane;
    let first = min(part * PART, params.count);
    let end = min(first + PART, params.count);
    var least = 0xffffffffu;
    var greatest = 0u;
    for (var i = first; i < end; i++) {
        let value = load_values(i);
        least = min(least, value);
        greatest = max(greatest, value);
    }
    leasts[lane] = least;
    greatests[lane] = greatest;
    workgroupBarrier();
    if lane % 4u == 0u && first < end {
        for (var other = lane + 1u; other < lane + 4u; other++) {
            least = min(least, leasts[other]);
            greatest = max(greatest, greatests[other]);
        }
        store_ranges(part / 2u, least);
        store_ranges(part / 2u + 1u, greatest);
    }
}

#each_workgroup
