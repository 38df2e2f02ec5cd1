// Common head of the kernels over particles: where a particle's nodes are, and where they lie in a
// rank's array.
//
// Particles are the sites of a box of a lattice with displacements d0, d1, d2 in box units, or
// (`in_cells`) a cell of the array in `cell` and offsets d0, d1, d2 in cells. With `listed` the
// sites are those in `site`, anywhere in the lattice: 16 bits along x, 16 along y, a word along z.
// Their nodes count from params.first on, over one period of the mesh, which has the rank's own
// cells in its middle.
//
// Lines with @ are repeated for each of WIDTH nodes along an axis.

#import mesh::window

struct Located {
    sane: bool,
    x: Nodes,
    y: Nodes,
    z: Nodes,
}

#if listed
/// Nodes whose first lies in the period of the mesh that begins at params.first.
fn in_period(nodes: Nodes, axis: u32) -> Nodes {
    let begin = bitcast<i32>(params.first[axis]);
    let cells = i32(params.mesh[axis]);
    let rest = (nodes.first - begin) % cells;
    return Nodes(begin + select(rest, rest + cells, rest < 0), nodes.at);
}
#else
fn in_period(nodes: Nodes, axis: u32) -> Nodes { return nodes; }
#endif

#if !in_cells
fn site_of(particle: u32) -> vec3<u32> {
#if listed
    let site = load_site(particle);
    return vec3<u32>(site.x >> 16u, site.x & 0xffffu, site.y);
#else
    let line = particle / params.local.z;
    return params.first.xyz + vec3<u32>(line / params.local.y, line % params.local.y, particle % params.local.z);
#endif
}

fn locate(particle: u32) -> Located {
    let site = site_of(particle);
    let shift = vec3<f32>(load_d0(particle), load_d1(particle), load_d2(particle)) * params.per_cell.xyz;
    if !sane(shift) { return Located(false, Nodes(0, 0.0), Nodes(0, 0.0), Nodes(0, 0.0)); }
    return Located(
        true,
        in_period(nodes_of_site(site.x, params.sites.x, params.per_site.x, params.mesh.x, shift.x), 0u),
        in_period(nodes_of_site(site.y, params.sites.y, params.per_site.y, params.mesh.y, shift.y), 1u),
        in_period(nodes_of_site(site.z, params.sites.z, params.per_site.z, params.mesh.z, shift.z), 2u),
    );
}
#else
fn locate(particle: u32) -> Located {
    let cell = load_cell(particle);
    let k = i32(cell % params.shape.z) + params.base.z;
    let j = i32(cell / params.shape.z % params.shape.y) + params.base.y;
    let i = i32(cell / params.shape.z / params.shape.y) + params.base.x;
    let shift = vec3<f32>(load_d0(particle), load_d1(particle), load_d2(particle));
    if !sane(shift) { return Located(false, Nodes(0, 0.0), Nodes(0, 0.0), Nodes(0, 0.0)); }
    return Located(true, nodes_near(i, shift.x), nodes_near(j, shift.y), nodes_near(k, shift.z));
}
#endif

/// Places in the array of WIDTH nodes along an axis, from `first` on; an axis that is not cut
/// closes on itself. One remainder an axis: the next node's place is one more, or 0.
fn places(first: i32, axis: u32) -> vec4<u32> {
    var at = u32(first - params.base[axis]);
    // Beyond the array where the axis is cut.
    var end = 0xffffffffu;
    if ((params.mesh.w >> axis) & 1u) == 1u {
        end = params.mesh[axis];
        let rest = first % i32(end);
        at = u32(select(rest, rest + i32(end), rest < 0));
    }
    var found = vec4<u32>(0u);
    found[@] = at; at = select(at + 1u, 0u, at + 1u == end);
    return found;
}

fn inside(nodes: Nodes, axis: u32) -> bool {
    let low = nodes.first - params.base[axis];
    return ((params.mesh.w >> axis) & 1u) == 1u || (low >= 0 && low <= i32(params.shape[axis]) - WIDTH);
}

fn all_inside(at: Located) -> bool {
    return inside(at.x, 0u) && inside(at.y, 1u) && inside(at.z, 2u);
}
