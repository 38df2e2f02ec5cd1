// Copies small vectors to one after the other, or back with `unpack`: latent values of hyper-parameters, which are leaves of their own.
//
// Layout: vector n has the elements of `packed` from params.start + ends[n - 1] to params.start + ends[n], the ends being those in params.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
#if unpack
var<storage, read> packed: array<f32>;
var<storage, read_write> part0: array<f32>;
#if two
var<storage, read_write> part1: array<f32>;
#endif
#if three
var<storage, read_write> part2: array<f32>;
#endif
#if four
var<storage, read_write> part3: array<f32>;
#endif
#if five
var<storage, read_write> part4: array<f32>;
#endif
#if six
var<storage, read_write> part5: array<f32>;
#endif
#else
var<storage, read> part0: array<f32>;
#if two
var<storage, read> part1: array<f32>;
#endif
#if three
var<storage, read> part2: array<f32>;
#endif
#if four
var<storage, read> part3: array<f32>;
#endif
#if five
var<storage, read> part4: array<f32>;
#endif
#if six
var<storage, read> part5: array<f32>;
#endif
var<storage, read_write> packed: array<f32>;
#endif

fn each(i: u32) {
#if unpack
    let value = load_packed(params.start + i);
    if i < params.ends.x { store_part0(i, value); return; }
#if two
    if i < params.ends.y { store_part1(i - params.ends.x, value); return; }
#endif
#if three
    if i < params.ends.z { store_part2(i - params.ends.y, value); return; }
#endif
#if four
    if i < params.ends.w { store_part3(i - params.ends.z, value); return; }
#endif
#if five
    if i < params.fifth { store_part4(i - params.ends.w, value); return; }
#endif
#if six
    store_part5(i - params.fifth, value);
#endif
#else
    var value = 0.0;
    if i < params.ends.x { value = load_part0(i); }
#if two
    if i >= params.ends.x && i < params.ends.y { value = load_part1(i - params.ends.x); }
#endif
#if three
    if i >= params.ends.y && i < params.ends.z { value = load_part2(i - params.ends.y); }
#endif
#if four
    if i >= params.ends.z && i < params.ends.w { value = load_part3(i - params.ends.z); }
#endif
#if five
    if i >= params.ends.w && i < params.fifth { value = load_part4(i - params.ends.w); }
#endif
#if six
    if i >= params.fifth { value = load_part5(i - params.fifth); }
#endif
    store_packed(params.start + i, value);
#endif
}

#each params.count
