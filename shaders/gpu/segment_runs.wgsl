// The long segments of one level of a segmented reduction: every run of 64 values becomes a value of the next level.
//
// Layout: as segments.wgsl; `places` is the exclusive scan of its `runs`, with the total behind it: run r belongs to
// the segment s with places[s] <= r < places[s + 1]. `partial[r]` receives the run, folded from the left.
// Workgroup: GROUP invocations, ITEMS runs each; log2(segments) reads to find a run's segment. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let total = min(load_places(params.segments), params.runs);
    for (var item = 0u; item < ITEMS; item++) {
        let r = (group_number(id, groups) * ITEMS + item) * GROUP + lane;
        if r < total {
            // places[low] <= r < places[high]
            var low = 0u;
            var high = params.segments;
            while high - low > 1u {
                let middle = low + (high - low) / 2u;
                if load_places(middle) <= r { low = middle; } else { high = middle; }
            }
            let first = min(load_offsets(low), params.values);
            let last = clamp(load_offsets(low + 1u), first, params.values);
            let begin = min(first + (r - load_places(low)) * 64u, last);
            let end = begin + min(64u, last - begin);
            var result = identity();
            for (var i = begin; i < end; i++) { result = join(result, load_values(i)); }
            store_partial(r, result);
        }
    }
}
