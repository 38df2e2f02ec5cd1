
// Pairs of words are added as 64-bit integers, low word first; extent, starts and strides count pairs.
fn move_cell(source: u32, destination: u32) {
    let low = load_from(2u * source);
    let sum = load_to(2u * destination) + low;
    let carry = select(0u, 1u, sum < low);
    store_to(2u * destination, sum);
    store_to(2u * destination + 1u, load_to(2u * destination + 1u) + load_from(2u * source + 1u) + carry);
}
