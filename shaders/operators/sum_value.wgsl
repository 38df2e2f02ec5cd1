// Sums in 64-bit integers as f32; NaN where a term was NaN or infinite.
//
// Layout: `words` as accumulate.wgsl leaves them; `out` one number per sum, from params.x_start on.
// Workgroup: GROUP invocations, ITEMS sums each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> words: array<u32>;
var<storage, read_write> out: array<f32>;

/// 2^n for -126 <= n <= 127.
fn power(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }

fn each(sum: u32) {
    let most = load_words(params.most);
    var low = load_words(params.start + 2u * sum);
    var high = load_words(params.start + 2u * sum + 1u);
    let negative = (high >> 31u) == 1u;
    if negative {
        high = ~high + select(0u, 1u, low == 0u);
        low = ~low + 1u;
    }
    let magnitude = f32(high) * 4294967296.0 + f32(low);
    let exponent = i32(most >> 23u) - 126 - i32(params.bits);
    let first = clamp(exponent, -126, 127);
    let value = magnitude * power(first) * power(clamp(exponent - first, -126, 127));
    let found = select(value, -value, negative);
    // Bits of a NaN, whatever the greatest magnitude was.
    store_out(params.x_start + sum, select(found, bitcast<f32>(most | 0x7fc00000u), most >= 0x7f800000u));
}

#each params.sums
