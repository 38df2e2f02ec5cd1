// Sums over the 256 digits: where the keys of each digit begin in a sorted tile, and in the output.
//
// 3.5 KiB of workgroup memory.

// How many keys of the tile have each digit.
var<workgroup> totals: array<atomic<u32>, 256>;
// Where the first key of each digit stands in the tile, and where it goes.
var<workgroup> starts: array<u32, 256>;
var<workgroup> bases: array<u32, 256>;
var<workgroup> sums: array<u32, 128>;

/// Returns how many keys have a digit, of a tile of `here` keys whose `starts` are known.
fn total_of(d: u32, here: u32) -> u32 {
    if d == 255u { return here - starts[d]; }
    return starts[d + 1u] - starts[d];
}

/// Sets `starts` to the sums of `totals`, and `bases` to those of what `given` returns if they are
/// wanted `too`.
fn scan_digits(lane: u32, too: bool) {
    if lane < 32u {
        var sum = 0u;
        for (var k = 0u; k < 16u; k++) {
            let d = (lane & 15u) * 16u + k;
            if lane < 16u { sum += atomicLoad(&totals[d]); } else if too { sum += given(d); }
        }
        sums[lane] = sum;
    }
    workgroupBarrier();
    for (var d = lane; d < 256u; d += GROUP) {
        var start = 0u;
        var base = 0u;
        for (var b = 0u; b < d / 16u; b++) {
            start += sums[b];
            base += sums[16u + b];
        }
        for (var e = d / 16u * 16u; e < d; e++) {
            start += atomicLoad(&totals[e]);
            if too { base += given(e); }
        }
        starts[d] = start;
        if too { bases[d] = base; }
    }
    workgroupBarrier();
}
