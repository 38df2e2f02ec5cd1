// Finds the rank that owns the cell of each particle: that of the middle one of its nodes, so that
// ghost cells as wide as the window suffice to paint it there.
//
// Layout: particles as in particle.wgsl; `rank_of` the part of each cell along axis 0, then of each
// along axis 1; `owner` receives the rank of each particle, and that of this rank for particles
// without a finite position. `leaving[0]` counts the particles of other ranks.
// Workgroup: GROUP invocations, ITEMS particles each; one atomic addition for each invocation with
// particles of other ranks. No workgroup memory.

var<uniform> params: Params;
#if listed
var<storage, read> site: array<vec2<u32>>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read> rank_of: array<u32>;
var<storage, read_write> owner: array<u32>;
var<storage, read_write> leaving: array<atomic<u32>>;

#import mesh::particle

fn middle(nodes: Nodes, axis: u32) -> u32 {
    let cells = i32(params.mesh[axis]);
    let rest = (nodes.first + (WIDTH - 1) / 2) % cells;
    return u32(select(rest, rest + cells, rest < 0));
}

fn each_workgroup(number: u32, lane: u32) {
    var others = 0u;
    for (var item = 0u; item < ITEMS; item++) {
        let particle = (number * ITEMS + item) * GROUP + lane;
        if particle < params.first.w {
            let at = locate(particle);
            let part_x = load_rank_of(middle(at.x, 0u));
            let part_y = load_rank_of(params.mesh.x + middle(at.y, 1u));
            let found = select(params.rank, part_x * params.parts + part_y, at.sane);
            store_owner(particle, found);
            others += select(0u, 1u, found != params.rank);
        }
    }
    if others > 0u { add_leaving(0u, others); }
}

#each_workgroup
