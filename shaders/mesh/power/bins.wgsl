// Sums the power of modes in bins of wavenumber, exactly: the sums do not depend on the order of
// modes, nor on which rank has them.
//
// Layout: `modes` are this rank's part of a half spectrum, C order; with `interlaced`, `shifted`
// are those of the same points half a cell away. `squares` holds two words, low first, for each
// index of each axis of the part: the square of its wavenumber in widths of a bin, times 2^32, so
// that the bin of a mode is found in integers. `factors` holds three numbers for each: what the
// power is divided by, as a factor, and cosine and sine of the phase of `shifted`. A bin of `sums`
// takes eight words, cleared before.
//
// A power is an f32: 24 bits at some place in a number of 112 bits, whose lowest is params.shift
// below the exponent's. It is added to three of the seven words of 16 bits that hold such a number,
// each in 32 bits, so that 65,536 additions need no carry and no returned value; only the sums of a
// workgroup are carried, and added to `sums`, whose words hold those of 65,536 workgroups.
// Workgroup: GROUP invocations, params.chunk modes. Memory: 14 KiB.

var<uniform> params: Params;
var<storage, read> modes: array<vec2<f32>>;
#if interlaced
var<storage, read> shifted: array<vec2<f32>>;
#endif
var<storage, read> squares: array<u32>;
var<storage, read> factors: array<f32>;
var<storage, read_write> sums: array<atomic<u32>>;

const WORDS: u32 = 7u;
var<workgroup> partial: array<atomic<u32>, BINS * WORDS>;

/// An unsigned integer of two words.
struct Wide {
    low: u32,
    high: u32,
}

fn square(at: u32) -> Wide { return Wide(load_squares(2u * at), load_squares(2u * at + 1u)); }

fn add_wide(a: Wide, b: Wide) -> Wide {
    let low = a.low + b.low;
    return Wide(low, a.high + b.high + select(0u, 1u, low < a.low));
}

/// Returns `true` if a square is below the lower edge of a bin, (bin - 1/2)^2 = bin^2 - bin + 1/4.
fn below(square: Wide, bin: u32) -> bool {
    let edge = bin * bin - bin;
    return square.high < edge || (square.high == edge && square.low < 0x40000000u);
}

/// Returns the bin of a square: that of its rounded root, or one beside it if the root is inexact.
fn bin_of(square: Wide) -> u32 {
    // Beyond all bins, and beyond what a word holds of its square.
    if square.high >= 0x10000000u { return 0xffffffffu; }
    let near = u32(sqrt(f32(square.high) + f32(square.low) * 2.3283064e-10) + 0.5);
    let low = select(near, near - 1u, near > 0u && below(square, max(near, 1u)));
    return select(low + 1u, low, below(square, low + 1u));
}

fn factor(at: u32) -> f32 { return load_factors(3u * at); }

fn phase(at: u32) -> vec2<f32> { return vec2<f32>(load_factors(3u * at + 1u), load_factors(3u * at + 2u)); }

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

fn add_word(word: u32, value: u32) {
    if value > 0u { atomicAdd(&partial[word], value); }
}

fn add_mode(mode: u32) {
    let k = mode % params.part.z;
    let x = mode / params.part.z / params.part.y;
    let y = params.part.x + mode / params.part.z % params.part.y;
    let z = params.part.x + params.part.y + k;
    let bin = bin_of(add_wide(add_wide(square(x), square(y)), square(z))) - params.first_bin;
    // Also what is before the first.
    if bin >= params.bins { return; }
    var value = load_modes(mode) * params.scale;
#if interlaced
    let rotated = times(times(times(phase(x), phase(y)), phase(z)), load_shifted(mode) * params.scale);
    value = 0.5 * (value + rotated);
#endif
    let bits = bitcast<u32>((value.x * value.x + value.y * value.y) * (factor(x) * factor(y) * factor(z)));
    let exponent = bits >> 23u;
    if exponent == 0u { return; }
    // Modes that stand for their mirror images too count twice.
    let half = params.first_half + k;
    let place = i32(exponent) + select(1, 0, half == 0u || 2u * half == params.last_axis) + params.shift;
    let digits = ((bits & 0x7fffffu) | 0x800000u) >> u32(clamp(-place, 0, 31));
    let at = u32(max(place, 0));
    let word = bin * WORDS + at / 16u;
    let bit = at % 16u;
    add_word(word, (digits << bit) & 0xffffu);
    add_word(word + 1u, (digits >> (16u - bit)) & 0xffffu);
    add_word(word + 2u, (digits >> 16u) >> (16u - bit));
}

fn each_workgroup(number: u32, lane: u32) {
    for (var word = lane; word < BINS * WORDS; word += GROUP) { atomicStore(&partial[word], 0u); }
    workgroupBarrier();
    let end = min(params.count - number * params.chunk, params.chunk);
    for (var mode = lane; mode < end; mode += GROUP) { add_mode(number * params.chunk + mode); }
    workgroupBarrier();
    for (var bin = lane; bin < params.bins; bin += GROUP) {
        var carry = 0u;
        for (var word = 0u; word < WORDS; word++) {
            let sum = atomicLoad(&partial[bin * WORDS + word]) + carry;
            if (sum & 0xffffu) > 0u { add_sums(8u * (params.first_sum + bin) + word, sum & 0xffffu); }
            carry = sum >> 16u;
        }
        if carry > 0u { add_sums(8u * (params.first_sum + bin) + WORDS, carry); }
    }
}

#each_workgroup
