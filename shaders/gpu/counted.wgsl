// How many leading elements count. `params.device` says where the number is: 0 on the host (`params.count`), 1 on the device
// (`count[0]`, no more than `params.count`), 2 on the device as a switch: all of them count or, with `count[0]` = 0, none.

fn counted() -> u32 {
    if params.device == 0u { return params.count; }
    let n = load_count(0u);
    if params.device == 1u { return min(n, params.count); }
    return select(0u, params.count, n > 0u);
}
