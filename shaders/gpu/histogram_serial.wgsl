// Counts values into at most 256 bins, for software renderers: by invocation first.
//
// Layout: as histogram_direct.wgsl.
// Workgroup: GROUP invocations, 16384 consecutive values each, counted in private memory. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let last = counted();
    let part = group_number(id, groups) * GROUP + lane;
    if part < params.parts {
        let begin = min(part * 16384u, last);
        let end = begin + min(16384u, last - begin);
        var local: array<u32, 256>;
        for (var i = begin; i < end; i++) {
            let value = load_values(i);
            if value < params.bins { local[value] += 1u; }
        }
        for (var bin = 0u; bin < params.bins; bin++) {
            if local[bin] > 0u { add_bins(bin, local[bin]); }
        }
    }
}
