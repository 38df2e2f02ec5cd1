
// The sum over operators of each times the mode of its own field: that of the last one is `value`,
// the spectra of those before are in `others`, one after the other, for the modes that the tables
// are for.
fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    let starts = params.table_starts;
    let shape = vec3<u32>(starts.x, starts.y - starts.x, starts.z - starts.y);
    let local = at.xyz - params.table_first.xyz;
    let mode = (local.x * shape.y + local.y) * shape.z + local.z;
    let count = shape.x * shape.y * shape.z;
    let last = params.table_first.w - 1u;
    var sum = operated(value, at, last);
    for (var field = 0u; field < last; field++) {
        sum += operated(load_others(field * count + mode), at, field);
    }
    return sum;
}
