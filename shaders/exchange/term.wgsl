// The terms of a sum.

fn term(i: u32) -> f32 {
#if product
    return load_x(params.x_start + i) * load_y(params.y_start + i);
#else
    return load_x(params.x_start + i);
#endif
}
