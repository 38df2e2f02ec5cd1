// One level of a segmented reduction: segments of up to 64 values are done, longer ones are announced.
//
// Layout: segment s is values[offsets[s] .. offsets[s + 1]]. A segment of up to 64 values is folded from the left into
// `output[s]`, and `runs[s]` = 0; of a longer one `runs[s]` is the number of runs of 64 that segment_runs.wgsl folds
// for the next level. Above the first level an empty segment is one that is done already. `identity` and `join` are
// written by the host for the operation and the type.
// Workgroup: GROUP invocations, ITEMS segments each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let s = (group_number(id, groups) * ITEMS + item) * GROUP + lane;
        if s < params.segments {
            let begin = min(load_offsets(s), params.values);
            let end = clamp(load_offsets(s + 1u), begin, params.values);
            let number = end - begin;
            store_runs(s, select(0u, (number - 1u) / 64u + 1u, number > 64u));
            if number <= 64u && (number > 0u || params.level == 0u) {
                var result = identity();
                for (var i = begin; i < end; i++) { result = join(result, load_values(i)); }
                store_output(s, result);
            }
        }
    }
}
