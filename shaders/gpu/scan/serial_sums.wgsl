// Reduce-then-scan for software renderers, first half: the sum of every part of the input.
//
// Layout: parts are `params.chunk` consecutive elements; `sums` receives one word per part.
// Workgroup: GROUP invocations, one part each, serially. No workgroup memory, no barriers.

var<uniform> params: Params;
var<storage, read> input: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> sums: array<u32>;

#import gpu::counted

fn each_invocation(part: u32) {
    let last = counted();
    let begin = min(part * params.chunk, last);
    let end = begin + min(params.chunk, last - begin);
    var sum = 0u;
    for (var i = begin; i < end; i++) { sum += load_input(i); }
    store_sums(part, sum);
}

#each_invocation params.parts
