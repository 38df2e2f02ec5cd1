
// Elements of any type are copied.
fn move_cell(source: u32, destination: u32) {
    store_to(destination, load_from(source));
}
