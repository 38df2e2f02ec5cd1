
// Words are added as f32.
fn move_cell(source: u32, destination: u32) {
    store_to(destination, bitcast<u32>(bitcast<f32>(load_to(destination)) + bitcast<f32>(load_from(source))));
}
