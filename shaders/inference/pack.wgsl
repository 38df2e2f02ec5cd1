// Copies numbers that are arrays of their own to one after the other, or back with `unpack`:
// hyper-parameters, which are leaves of their own.
//
// Layout: array n has the element params.start + n params.stride of `packed`.
// Workgroup: one, of which one invocation copies. No workgroup memory.

var<uniform> params: Params;
#if unpack
var<storage, read> packed: array<f32>;
var<storage, read_write> part$: array<f32>;
#else
var<storage, read> part$: array<f32>;
var<storage, read_write> packed: array<f32>;
#endif

fn each_workgroup(number: u32, lane: u32) {
    if lane > 0u { return; }
#if unpack
    store_part$(0u, load_packed(params.start + $u * params.stride));
#else
    store_packed(params.start + $u * params.stride, load_part$(0u));
#endif
}

#each_workgroup
