// How many leading elements count. `params.device` says who knows: 0 the host (`params.count`), 1 the device
// (`count[0]`, no more than `params.count`), 2 the device, which lets all of them count or, with `count[0]` = 0, none.

fn counted() -> u32 {
    if params.device == 0u { return params.count; }
    let n = load_count(0u);
    if params.device == 1u { return min(n, params.count); }
    return select(0u, params.count, n > 0u);
}
