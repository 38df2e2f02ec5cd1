// The bins of a `Value` of modes, a number or with `quads` four, and their amplitudes: an array of
// all bins, a table that stays in the cache; with `tangent` pairs of an amplitude and its tangent.
// A mode in no bin has 0.

#if quads
alias Bins = vec4<u32>;

/// Returns the bins of four modes.
fn bins_of(i: u32) -> Bins { return Bins(load_index(2u * i), load_index(2u * i + 1u)); }

#if tangent
/// Returns amplitudes times `dx` and their tangents times `x`.
fn varied(bins: Bins, x: Value, dx: Value) -> Value {
    let a = load_pairs(bins.x);
    let b = load_pairs(bins.y);
    let c = load_pairs(bins.z);
    let d = load_pairs(bins.w);
    return Value(a.x, b.x, c.x, d.x) * dx + Value(a.y, b.y, c.y, d.y) * x;
}
#else
fn amplitude_of(bins: Bins) -> Value {
    return Value(load_amplitude(bins.x), load_amplitude(bins.y), load_amplitude(bins.z), load_amplitude(bins.w));
}
#endif
#else
alias Bins = u32;

fn bins_of(i: u32) -> Bins { return load_index(i); }

#if tangent
fn varied(bins: Bins, x: Value, dx: Value) -> Value {
    let pair = load_pairs(bins);
    return pair.x * dx + pair.y * x;
}
#else
fn amplitude_of(bins: Bins) -> Value { return load_amplitude(bins); }
#endif
#endif

/// Returns the bins that exist: places of amplitudes for modes in no bin, too.
fn existing(bins: Bins) -> Bins { return min(bins, Bins(params.bins - 1u)); }

/// Returns 0 for modes in no bin.
fn known(value: Value, bins: Bins) -> Value { return select(Value(), value, bins < Bins(params.bins)); }
