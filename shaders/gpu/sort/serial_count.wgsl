// Radix sort for software renderers, upsweep: how many keys of every tile have each digit.
//
// Layout: tiles are `params.tile` consecutive keys; `table` holds one word a digit and tile, digit by digit.
// Workgroup: GROUP invocations, one tile each, counted in 1 KiB of private memory: there a private word costs a tenth
// of a word of a storage buffer. (Larger private arrays take compilers minutes.) No workgroup memory, no barriers.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile = group_number(id, groups) * GROUP + lane;
    let last = counted();
    if tile < params.tiles && last > 0u {
        let begin = min(tile * params.tile, last);
        let end = begin + min(params.tile, last - begin);
        var number: array<u32, 256>;
        for (var i = begin; i < end; i++) { number[digit(load_keys(i))] += 1u; }
        for (var d = 0u; d <= params.mask; d++) { store_table(d * params.tiles + tile, number[d]); }
    }
}
