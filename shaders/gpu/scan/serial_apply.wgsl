// Reduce-then-scan for software renderers, second half: every part again, with the sum of the parts
// before it.
//
// Layout: as serial_sums.wgsl; `offsets` holds the scanned sums, unless `params.offset` is 0. One
// element more than counted is written where `output` has it: it receives the total.
// Workgroup: GROUP invocations, one part each, serially. No workgroup memory, no barriers.

var<uniform> params: Params;
var<storage, read> input: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read> offsets: array<u32>;
var<storage, read_write> output: array<u32>;

#import gpu::counted

fn each_invocation(part: u32) {
    let last = counted();
    let span = min(last + 1u, params.span);
    let begin = min(part * params.chunk, span);
    let end = begin + min(params.chunk, span - begin);
    var before = 0u;
    if params.offset == 1u { before = load_offsets(part); }
    for (var i = begin; i < end; i++) {
        var own = 0u;
        if i < last { own = load_input(i); }
        store_output(i, before);
        before += own;
    }
}

#each_invocation params.parts
