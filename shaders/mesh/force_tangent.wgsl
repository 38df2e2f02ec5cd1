// How the force that particles read from a mesh changes where they move and the force changes:
//
//     out = sum over nodes of (by . gradient of weight) * force + factor * weight * change
//
// Layout: particles as in particle.wgsl; `mesh` the components of the force and `change` those of
// its change, in a vector for each cell; `by` how far particles move and `out` how their
// accelerations change: all along x, then y, then z. Each node's two vectors are read once for a
// particle. Particles that paint.wgsl would refuse have none. The sum runs over x, then y, then z,
// as in interpolate.wgsl.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read> mesh: array<vec4<f32>>;
var<storage, read> change: array<vec4<f32>>;
var<storage, read> by: array<f32>;
var<storage, read_write> out: array<f32>;

#import mesh::particle
#import mesh::each_particle
#import mesh::slope

fn force(node: u32) -> vec3<f32> { return load_mesh(node).xyz; }
fn changed(node: u32) -> vec3<f32> { return load_change(node).xyz; }

fn tangent(at: Located, by: vec3<f32>) -> vec3<f32> {
    var sum = vec3<f32>(0.0);
    if !at.sane || !all_inside(at) { return sum; }
    let nodes = stencil_of(at);
    for (var a = 0; a < WIDTH; a++) {
        let row_x = nodes.x[a] * params.shape.y;
        // Of a plane: the force, its slopes along y and z, and its change.
        var flat = vec3<f32>(0.0);
        var tilt = vec3<f32>(0.0);
        var rise = vec3<f32>(0.0);
        var kept = vec3<f32>(0.0);
        for (var b = 0; b < WIDTH; b++) {
            let row_y = (row_x + nodes.y[b]) * params.shape.z;
            // A row's loads before their uses.
            let f@ = force(row_y + nodes.z[@]);
            let c@ = changed(row_y + nodes.z[@]);
            var along = vec3<f32>(0.0);
            along = fma(vec3<f32>(nodes.w_z[@]), f@, along);
            var up = vec3<f32>(0.0);
            up = fma(vec3<f32>(nodes.s_z[@]), f@, up);
            var change = vec3<f32>(0.0);
            change = fma(vec3<f32>(nodes.w_z[@]), c@, change);
            let w_y = vec3<f32>(weight(at.y.at, b));
            flat = fma(w_y, along, flat);
            tilt = fma(vec3<f32>(slope(at.y.at, b)), along, tilt);
            rise = fma(w_y, up, rise);
            kept = fma(w_y, change, kept);
        }
        // No product of three numbers, which compilers may take in any order.
        let within = fma(vec3<f32>(by.y), tilt, fma(vec3<f32>(by.z), rise, params.factor * kept));
        sum = fma(vec3<f32>(by.x), slope(at.x.at, a) * flat, fma(vec3<f32>(weight(at.x.at, a)), within, sum));
    }
    return sum;
}

fn each_particle(particle: u32) {
    let count = params.first.w;
    let own = vec3<f32>(load_by(particle), load_by(count + particle), load_by(2u * count + particle));
    let found = tangent(locate(particle), own * params.per_cell.xyz);
    store_out(particle, found.x);
    store_out(count + particle, found.y);
    store_out(2u * count + particle, found.z);
}

#each params.first.w
