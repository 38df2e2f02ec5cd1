// Counts values into at most 2048 bins, for GPUs: within a workgroup first.
//
// Layout: as histogram_direct.wgsl.
// Workgroup: 256 invocations, 4096 values; 8 KiB of workgroup memory.

var<workgroup> local: array<atomic<u32>, 2048>;

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let last = counted();
    for (var bin = lane; bin < params.bins; bin += 256u) { atomicStore(&local[bin], 0u); }
    workgroupBarrier();
    for (var k = 0u; k < 16u; k++) {
        let i = group_number(id, groups) * 4096u + k * 256u + lane;
        if i < last {
            let value = load_values(i);
            if value < params.bins { atomicAdd(&local[value], 1u); }
        }
    }
    workgroupBarrier();
    for (var bin = lane; bin < params.bins; bin += 256u) {
        let number = atomicLoad(&local[bin]);
        if number > 0u { add_bins(bin, number); }
    }
}
