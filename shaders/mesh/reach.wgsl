// How far particles reach beyond the cells their rank owns: the ghost cells that painting them
// needs.
//
// Layout: particles as in particle.wgsl, where `base` and `shape` describe the own cells; `reach`
// holds, by axis, the cells below and above (6 words, to be cleared before), then the number of
// particles without a finite position.
// Workgroup: GROUP invocations, ITEMS particles each; one atomic maximum per word and invocation.
// No workgroup memory.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
#if listed
var<storage, read> site: array<vec2<u32>>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read_write> reach: array<atomic<u32>>;

#import mesh::particle

fn each_workgroup(number: u32, lane: u32) {
    var below = vec3<i32>(0);
    var above = vec3<i32>(0);
    var lost = 0u;
    for (var item = 0u; item < ITEMS; item++) {
        let particle = (number * ITEMS + item) * GROUP + lane;
        if particle < params.first.w {
            let at = locate(particle);
            let first = vec3<i32>(at.x.first, at.y.first, at.z.first) - params.base.xyz;
            if at.sane {
                below = max(below, -first);
                above = max(above, first + WIDTH - vec3<i32>(params.shape.xyz));
            } else {
                lost++;
            }
        }
    }
    for (var axis = 0u; axis < 3u; axis++) {
        if below[axis] > 0 { max_reach(2u * axis, u32(below[axis])); }
        if above[axis] > 0 { max_reach(2u * axis + 1u, u32(above[axis])); }
    }
    if lost > 0u { add_reach(6u, lost); }
}

#each_workgroup
