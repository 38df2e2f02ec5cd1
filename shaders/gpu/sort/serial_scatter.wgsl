// Radix sort for software renderers, downsweep: every key goes behind those of smaller digits and earlier tiles.
//
// Layout: as serial_count.wgsl, with `table` scanned. `payload` and `place` (written by the host) say what goes along.
// Workgroup: GROUP invocations, one tile each, in order, which makes it stable; 1 KiB of private memory. No workgroup
// memory, no barriers.

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
        var next: array<u32, 256>;
        for (var d = 0u; d <= params.mask; d++) { next[d] = load_table(d * params.tiles + tile); }
        for (var i = begin; i < end; i++) {
            let key = load_keys(i);
            let d = digit(key);
            let at = next[d];
            next[d] = at + 1u;
            place(at, key, payload(i));
        }
    }
}
