// The greatest magnitudes of the terms of several sums in one pass, as bits: those of NaN and infinity are the greatest.
//
// Terms are products x0[i] y0[i], x1[i] y1[i] and so on; with `norm` those of one more sum are z[i]. Arrays may be one: what several sums read comes
// from memory once.
//
// Layout: the words from params.most on take the bits, one for each sum, and must be 0 before.
// Workgroup: GROUP invocations, params.per elements each, neighbours next to each other. Workgroup memory: a word for each sum.

var<uniform> params: Params;
var<storage, read> x$: array<f32>;
var<storage, read> y$: array<f32>;
#if norm
var<storage, read> z: array<f32>;
#endif
var<storage, read_write> words: array<atomic<u32>>;

#import exchange::element

var<workgroup> here: array<atomic<u32>, SUMS>;

fn bits_of(term: f32) -> u32 { return bitcast<u32>(term) & 0x7fffffffu; }

fn each_workgroup(number: u32, lane: u32) {
    if lane < SUMS { atomicStore(&here[lane], 0u); }
    workgroupBarrier();
    var most$ = 0u;
#if norm
    var norm = 0u;
#endif
    for (var item = 0u; item < params.per; item++) {
        let i = element(number * params.per + item, lane);
        if i < params.count {
            most$ = max(most$, bits_of(load_x$(i) * load_y$(i)));
#if norm
            norm = max(norm, bits_of(load_z(i)));
#endif
        }
    }
    atomicMax(&here[$], most$);
#if norm
    atomicMax(&here[SUMS - 1u], norm);
#endif
    workgroupBarrier();
    if lane < SUMS { max_words(params.most + lane, atomicLoad(&here[lane])); }
}

#each_workgroup
