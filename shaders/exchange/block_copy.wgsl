// Copies a block of elements with four axes from one array to another, or adds it to what is there.
//
// Layout: in each array the block has a first element (`starts`: in `from`, in `to`) and strides.
// Elements of any type (Cell) are copied; with `add` they are added; with `add_wide` pairs of words
// are as 64-bit integers, low word first, where extent, starts and strides count pairs. With `pack`
// and `unpack` an element is a vector in one array and its first three numbers, as words, in the
// other; the fourth becomes 0.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
#if unpack
var<storage, read> from: array<u32>;
#else
var<storage, read> from: array<Cell>;
#endif
#if pack
var<storage, read_write> to: array<u32>;
#else
var<storage, read_write> to: array<Cell>;
#endif

#if pack
fn transfer(source: u32, destination: u32) {
    let words = bitcast<vec4<u32>>(load_from(source));
    store_to(3u * destination, words.x);
    store_to(3u * destination + 1u, words.y);
    store_to(3u * destination + 2u, words.z);
}
#else
#if unpack
fn transfer(source: u32, destination: u32) {
    let words = vec3<u32>(load_from(3u * source), load_from(3u * source + 1u), load_from(3u * source + 2u));
    store_to(destination, vec4<f32>(bitcast<vec3<f32>>(words), 0.0));
}
#else
#if add_wide
fn transfer(source: u32, destination: u32) {
    let low = load_from(2u * source);
    let sum = load_to(2u * destination) + low;
    let carry = select(0u, 1u, sum < low);
    store_to(2u * destination, sum);
    store_to(2u * destination + 1u, load_to(2u * destination + 1u) + load_from(2u * source + 1u) + carry);
}
#else
#if add
fn transfer(source: u32, destination: u32) {
    store_to(destination, load_to(destination) + load_from(source));
}
#else
fn transfer(source: u32, destination: u32) {
    store_to(destination, load_from(source));
}
#endif
#endif
#endif
#endif

fn each(cell: u32) {
    // Three divisions; remainders follow from them.
    let line = cell / params.extent.w;
    let plane = line / params.extent.z;
    let slab = plane / params.extent.y;
    let at = vec4<u32>(
        slab,
        plane - slab * params.extent.y,
        line - plane * params.extent.z,
        cell - line * params.extent.w,
    );
    transfer(params.starts.x + dot(params.from_strides, at), params.starts.y + dot(params.to_strides, at));
}

#each params.extent.x * params.extent.y * params.extent.z * params.extent.w
