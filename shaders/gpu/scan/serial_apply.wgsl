// Reduce-then-scan for software renderers, second half: every part again, with the sum of the parts before it.
//
// Layout: as serial_sums.wgsl; `offsets` holds the scanned sums, unless `params.offset` is 0. One element more than
// counted is written where `output` has it: it receives the total.
// Workgroup: GROUP invocations, one part each, serially. No workgroup memory, no barriers.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let part = group_number(id, groups) * GROUP + lane;
    if part < params.parts {
        let last = counted();
        let span = min(last + 1u, params.span);
        let begin = min(part * params.chunk, span);
        let end = begin + min(params.chunk, span - begin);
        var before = 0u;
        if params.offset == 1u { before = load_offsets(part); }
        for (var i = begin; i < end; i++) {
            var own = 0u;
            if i < last { own = load_input(i); }
            store_output(i, before);
            before += own;
        }
    }
}
