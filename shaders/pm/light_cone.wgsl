// Particles that cross the past light cone within a step, in replicas of the periodic box: counted,
// or written as rows.
//
// Layout: `x_before` and `x_after` hold displacements along x, then y, then z, `first.w` numbers
// each, of the sites of this rank's box, C order, `p_before` and `p_after` momenta likewise;
// `images` the replicas in question, seven bits an axis. Counting fills `counts`; `offsets` is its
// exclusive sum, by which rows find their places: those of `piece` are written. A row of `rows` has
// nine words: position from the observer in Mpc/h, peculiar velocity in km/s, scale factor, and a
// key, low word first: the site's number times 2^21 plus the replica.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory. One text counts and
// writes, so that both find the same.
//
// Places are in spacings of the lattice from the observer: a whole number and a rest, whose sum
// rounds once. A particle crosses if it is within the light's distance at the beginning and is not
// at the end. Each test has the same operations and numbers in the step before and in the next,
// without a product that a compiler could join to a sum, so that no particle is lost or found twice
// between steps. Within the step its path is the cubic with the positions and velocities of both
// ends.

var<uniform> params: Params;
var<storage, read> x_before: array<f32>;
var<storage, read> x_after: array<f32>;
var<storage, read> p_before: array<f32>;
var<storage, read> p_after: array<f32>;
var<storage, read> images: array<u32>;
var<storage, read> offsets: array<u32>;
var<storage, read_write> counts: array<u32>;
var<storage, read_write> rows: array<u32>;

fn square(v: vec3<f32>) -> f32 { return fma(v.z, v.z, fma(v.y, v.y, v.x * v.x)); }

fn place(site: vec3<i32>, displacement: vec3<f32>) -> vec3<f32> {
    return vec3<f32>(site) + fma(displacement, vec3<f32>(params.rest.w), params.rest.xyz);
}

/// A path x + s (c1 + s (c2 + s c3)) for 0 <= s <= 1.
struct Path {
    x: vec3<f32>,
    c1: vec3<f32>,
    c2: vec3<f32>,
    c3: vec3<f32>,
}

fn position(path: Path, s: f32) -> vec3<f32> { return path.x + s * (path.c1 + s * (path.c2 + s * path.c3)); }

fn velocity(path: Path, s: f32) -> vec3<f32> { return path.c1 + s * (2.0 * path.c2 + 3.0 * s * path.c3); }

/// Returns the distance from which light of the part s of the step arrives, and its change with s.
fn light(s: f32) -> vec2<f32> {
    let a = params.epoch.x + s * params.epoch.y;
    let root = sqrt(a);
    // The difference of two roots, as that of their squares over their sum.
    let t = s * params.epoch.y * params.epoch.w / (root + params.epoch.z);
    let c = params.distance[1];
    let b = params.distance[0];
    let high = c.x + t * (c.y + t * (c.z + t * c.w));
    let change_high = c.y + t * (2.0 * c.z + 3.0 * t * c.w);
    let cube = t * t * t;
    let value = b.x + t * (b.y + t * (b.z + t * (b.w + t * high)));
    let change = b.y + t * (2.0 * b.z + 3.0 * t * b.w) + cube * (4.0 * high + t * change_high);
    return vec2<f32>(value, change * params.epoch.y * params.epoch.w / (2.0 * root));
}

struct Crossing {
    happens: bool,
    s: f32,
    x: vec3<f32>,
    velocity: vec3<f32>,
}

/// Newton's steps from the chord, kept within the part of the step that is known to hold the
/// crossing.
fn crossing(path: Path) -> Crossing {
    let first = sqrt(square(path.x)) - light(0.0).x;
    let last = sqrt(square(position(path, 1.0))) - light(1.0).x;
    var low = 0.0;
    var high = 1.0;
    var s = clamp(first / min(first - last, -1e-30), 0.0, 1.0);
    for (var n = 0u; n < 6u; n++) {
        let x = position(path, s);
        let r = max(sqrt(square(x)), 1e-20);
        let now = light(s);
        let gap = r - now.x;
        if gap < 0.0 { low = s; } else { high = s; }
        // Light is faster than particles: the slope is positive.
        let slope = max(dot(x, velocity(path, s)) / r - now.y, 1e-30);
        s = clamp(s - gap / slope, low, high);
    }
    let x = position(path, s);
    let r = sqrt(square(x));
    let seen = dot(x, params.opening.xyz) >= params.opening.w * r;
    // Comoving, of the speed of light: dx / d(distance of light).
    let v = velocity(path, s) * (-299792.458 / light(s).y);
    return Crossing(seen && s >= params.cut, s, x, v);
}

fn path_of(i: u32, start: vec3<f32>, d0: vec3<f32>, d1: vec3<f32>) -> Path {
    let count = params.first.w;
    let v0 = params.slopes.x * vec3<f32>(load_p_before(i), load_p_before(count + i), load_p_before(2u * count + i));
    let v1 = params.slopes.y * vec3<f32>(load_p_after(i), load_p_after(count + i), load_p_after(2u * count + i));
    let way = (d1 - d0) * params.rest.w;
    return Path(start, v0, 3.0 * way - 2.0 * v0 - v1, v0 + v1 - 2.0 * way);
}

fn write(at: u32, site: vec3<u32>, image: u32, found: Crossing) {
    let row = 9u * at;
    store_rows(row, bitcast<u32>(found.x.x * params.spacing));
    store_rows(row + 1u, bitcast<u32>(found.x.y * params.spacing));
    store_rows(row + 2u, bitcast<u32>(found.x.z * params.spacing));
    store_rows(row + 3u, bitcast<u32>(found.velocity.x));
    store_rows(row + 4u, bitcast<u32>(found.velocity.y));
    store_rows(row + 5u, bitcast<u32>(found.velocity.z));
    store_rows(row + 6u, bitcast<u32>(params.epoch.x + found.s * params.epoch.y));
    // (line n + k) 2^21 + image in two words; sides are at most 2^14.
    let line = site.x * params.sites + site.y;
    let low = (line & 0x3fffu) * params.sites + site.z;
    let high = (line >> 14u) * params.sites;
    store_rows(row + 7u, (low << 21u) | image);
    store_rows(row + 8u, (high << 3u) + (low >> 11u));
}

fn each(particle: u32) {
    var next = 0u;
    if params.writes == 1u {
        next = load_offsets(particle);
        if next == load_offsets(particle + 1u) { return; }
    }
    let k = params.first.z + particle % params.local.z;
    let j = params.first.y + particle / params.local.z % params.local.y;
    let i = params.first.x + particle / params.local.z / params.local.y;
    let site = vec3<u32>(i, j, k);
    let count = params.first.w;
    let d0 = vec3<f32>(load_x_before(particle), load_x_before(count + particle), load_x_before(2u * count + particle));
    let d1 = vec3<f32>(load_x_after(particle), load_x_after(count + particle), load_x_after(2u * count + particle));
    let last = params.images.y;
    for (var n = params.images.x; n < last; n++) {
        let image = load_images(n);
        let replica = vec3<i32>(vec3<u32>(image >> 14u, image >> 7u, image) & vec3<u32>(127u)) - vec3<i32>(64);
        let from_observer = vec3<i32>(site) - params.observer.xyz + replica * i32(params.sites);
        let start = place(from_observer, d0);
        let within = square(start) < params.squares.x;
        if !within || square(place(from_observer, d1)) < params.squares.y { continue; }
        let found = crossing(path_of(particle, start, d0, d1));
        if !found.happens { continue; }
        if params.writes == 1u && next - params.piece.x < params.piece.y { write(next - params.piece.x, site, image, found); }
        next += 1u;
    }
    if params.writes == 0u { store_counts(particle, next); }
}

#each params.first.w
