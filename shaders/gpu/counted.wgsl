// How many leading elements count. `params.device` says where the number is: 0 on the host
// (`params.count`), 1 on the device (`count[0]`, no more than `params.count`).

fn counted() -> u32 {
    if params.device == 0u { return params.count; }
    return min(load_count(0u), params.count);
}
