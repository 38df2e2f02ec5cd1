// Velocities after the lateral friction of the step that made the state, which is stored as it is
// before. No friction passes a wall, and v is zero on walls.

fn u_before(x: i32, y: i32) -> Real { return load_now(params.field + cell(x, y)); }

fn v_before(x: i32, y: i32) -> Real { return load_now(2u * params.field + cell(x, y)); }

fn u_after(x: i32, y: i32) -> Real {
    let here = u_before(x, y);
    let along_x = (u_before(x + 1, y) - here) - (here - u_before(x - 1, y));
    let along_y = (u_before(x, y + 1) - here) - (here - u_before(x, y - 1));
    return here + (load_coefficients(FRICTION_X) * along_x + load_coefficients(FRICTION_Y) * along_y);
}

#if compatible
// With a mistake that is repeated to compare with programs that have it: the fluxes of v are
// differences to u at their cell. The wall's v is not set to zero again either.
fn v_after(x: i32, y: i32) -> Real {
    let here = v_before(x, y);
    let center = u_after(x, y);
    let along_x = (v_before(x + 1, y) - center) - (here - u_after(x - 1, y));
    let north = select(v_before(x, y + 1) - center, ZERO, y >= params.walls.y);
    let south = select(here - u_after(x, y - 1), ZERO, y <= params.walls.x);
    let after = here + (load_coefficients(FRICTION_X) * along_x + load_coefficients(FRICTION_Y) * (north - south));
    return select(after, ZERO, y < params.walls.x);
}
#else
fn v_after(x: i32, y: i32) -> Real {
    let here = v_before(x, y);
    let along_x = (v_before(x + 1, y) - here) - (here - v_before(x - 1, y));
    let along_y = (v_before(x, y + 1) - here) - (here - v_before(x, y - 1));
    let after = here + (load_coefficients(FRICTION_X) * along_x + load_coefficients(FRICTION_Y) * along_y);
    return select(after, ZERO, y < params.walls.x || y >= params.walls.y);
}
#endif
