// The largest component of all modes, and the first mode that is not finite.
//
// Layout: `found[0]` receives the bits of the largest absolute value of a real or imaginary part
// that is finite (bits of positive numbers are in the order of the numbers), `found[1]` the
// complement of the least index of a mode with a part that is not; both are cleared before.
// Workgroup: GROUP invocations, ITEMS modes each; one atomic maximum per word and workgroup.
// Memory: 8 bytes.

var<uniform> params: Params;
var<storage, read> modes: array<vec2<f32>>;
var<storage, read_write> found: array<atomic<u32>>;

var<workgroup> largest: atomic<u32>;
var<workgroup> first: atomic<u32>;

fn each_workgroup(number: u32, lane: u32) {
    if lane == 0u {
        atomicStore(&largest, 0u);
        atomicStore(&first, 0u);
    }
    workgroupBarrier();
    var most = 0u;
    var bad = 0u;
    for (var item = 0u; item < ITEMS; item++) {
        let mode = (number * ITEMS + item) * GROUP + lane;
        if mode < params.count {
            let value = load_modes(mode);
            let bits = max(bitcast<u32>(value.x) & 0x7fffffffu, bitcast<u32>(value.y) & 0x7fffffffu);
            if bits >= 0x7f800000u { bad = max(bad, ~mode); } else { most = max(most, bits); }
        }
    }
    if most > 0u { atomicMax(&largest, most); }
    if bad > 0u { atomicMax(&first, bad); }
    workgroupBarrier();
    if lane == 0u {
        max_found(0u, atomicLoad(&largest));
        max_found(1u, atomicLoad(&first));
    }
}

#each_workgroup
