// Paints particles of equal mass onto a mesh of 64-bit fixed-point cells.
//
// Layout: particles as in particle.wgsl; `mesh` holds two u32 per cell, low word first; `faults[0]` counts particles that
// were not painted: not a finite position, or a node outside the array.
//
// A particle is UNIT integer units. They are shared out along x, then y, then z, the remainder of each rounding going
// to the heaviest node: the shares add up to UNIT exactly, and integer sums do not depend on their order, so mass is
// conserved to the last bit and the mesh is the same for any order of the atomics and any number of ranks. The high
// word takes a carry when the low one wraps.
//
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read_write> mesh: array<atomic<u32>>;
var<storage, read_write> faults: array<atomic<u32>>;

#import mesh::particle

const UNIT: u32 = 268435456u;

fn deposit(cell: u32, amount: u32) {
    let before = add_mesh(2u * cell, amount);
    if before + amount < before { add_mesh(2u * cell + 1u, 1u); }
}

/// The share of `whole` units that goes to a node of weight `w`, at most the `left` that remain; the last node (`rest`) takes all of them.
fn share(whole: u32, w: f32, left: u32, rest: bool) -> u32 {
    return select(min(u32(f32(whole) * w + 0.5), left), left, rest);
}

fn each(particle: u32) {
    let at = locate(particle);
    if !at.sane || !all_inside(at) {
        add_faults(0u, 1u);
        return;
    }
    let last = vec3<i32>(heaviest(at.x.at), heaviest(at.y.at), heaviest(at.z.at));
    var left_x = UNIT;
    for (var i = 1; i <= WIDTH; i++) {
        let a = (last.x + i) % WIDTH;
        let in_x = share(UNIT, weight(at.x.at, a), left_x, i == WIDTH);
        left_x -= in_x;
        let row_x = place(at.x.first + a, 0u) * params.shape.y;
        var left_y = in_x;
        for (var j = 1; j <= WIDTH; j++) {
            let b = (last.y + j) % WIDTH;
            let in_y = share(in_x, weight(at.y.at, b), left_y, j == WIDTH);
            left_y -= in_y;
            let row_y = (row_x + place(at.y.first + b, 1u)) * params.shape.z;
            var left_z = in_y;
            for (var k = 1; k <= WIDTH; k++) {
                let c = (last.z + k) % WIDTH;
                let in_z = share(in_y, weight(at.z.at, c), left_z, k == WIDTH);
                left_z -= in_z;
                if in_z > 0u { deposit(row_y + place(at.z.first + c, 2u), in_z); }
            }
        }
    }
}

#each params.first.w
