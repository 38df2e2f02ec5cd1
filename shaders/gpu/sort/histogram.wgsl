// How many words have each of 256 values in each of their four bytes: `tally` counts one,
// `add_histogram` adds the counts of a workgroup to the beginning of `table`, byte by byte.
//
// 4 KiB of workgroup memory.

var<workgroup> byte_counts: array<atomic<u32>, 1024>;

fn clear_histogram(lane: u32) {
    for (var d = lane; d < 1024u; d += GROUP) { atomicStore(&byte_counts[d], 0u); }
}

fn tally(word: u32) {
    atomicAdd(&byte_counts[word & 255u], 1u);
    atomicAdd(&byte_counts[256u + ((word >> 8u) & 255u)], 1u);
    atomicAdd(&byte_counts[512u + ((word >> 16u) & 255u)], 1u);
    atomicAdd(&byte_counts[768u + (word >> 24u)], 1u);
}

fn add_histogram(lane: u32) {
    for (var d = lane; d < 1024u; d += GROUP) {
        let number = atomicLoad(&byte_counts[d]);
        if number > 0u { add_table(d, number); }
    }
}
