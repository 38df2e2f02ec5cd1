// Moves particles by a vector field that is read at their positions: kicks p = keep p + factor
// field(x), then drifts x = x + factor p.
//
// Layout: particles as in particle.wgsl, p0, p1, p2 their momenta; the field's components as in
// interpolate.wgsl. Each particle is read and written once, whatever the number of kicks and
// drifts; without drifts positions are not written. Kicks and drifts are loops, so that several at
// once are the operations of as many dispatches with one each.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
#if listed
var<storage, read> site: array<vec2<u32>>;
#endif
var<storage, read_write> d0: array<f32>;
var<storage, read_write> d1: array<f32>;
var<storage, read_write> d2: array<f32>;
var<storage, read_write> p0: array<f32>;
var<storage, read_write> p1: array<f32>;
var<storage, read_write> p2: array<f32>;
var<storage, read> mesh: array<vec4<f32>>;

#import mesh::particle
#import mesh::each_particle
#import mesh::interpolate

fn each_particle(particle: u32) {
    // Another invocation may be moving the particle of those that have none of their own.
    var at = Located(false, Nodes(0, 0.0), Nodes(0, 0.0), Nodes(0, 0.0));
    if is_there { at = locate(particle); }
    let force = interpolate(at);
    if !is_there { return; }
    var p = vec3<f32>(load_p0(particle), load_p1(particle), load_p2(particle));
    for (var n = 0u; n < params.kicks; n++) {
        // Which of the two products is rounded is said: another kernel does the same by two
        // dispatches where arrays have many windows.
        p = fma(vec3<f32>(params.kick[n]), force, params.keep[n] * p);
    }
    store_p0(particle, p.x);
    store_p1(particle, p.y);
    store_p2(particle, p.z);
    if params.drifts == 0u { return; }
    var x = vec3<f32>(load_d0(particle), load_d1(particle), load_d2(particle));
    for (var n = 0u; n < params.drifts; n++) {
        x = fma(vec3<f32>(params.drift[n]), p, x);
    }
    store_d0(particle, x.x);
    store_d1(particle, x.y);
    store_d2(particle, x.z);
}

#if pairs
#each_subgroup
#else
#each params.first.w
#endif
