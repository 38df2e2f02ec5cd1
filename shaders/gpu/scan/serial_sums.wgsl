// Reduce-then-scan for software renderers, first half: the sum of every part of the input.
//
// Layout: parts are `params.chunk` consecutive elements; `sums` receives one word a part.
// Workgroup: GROUP invocations, one part each, serially. No workgroup memory, no barriers.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let part = group_number(id, groups) * GROUP + lane;
    if part < params.parts {
        let last = counted();
        let begin = min(part * params.chunk, last);
        let end = begin + min(params.chunk, last - begin);
        var sum = 0u;
        for (var i = begin; i < end; i++) { sum += load_input(i); }
        store_sums(part, sum);
    }
}
