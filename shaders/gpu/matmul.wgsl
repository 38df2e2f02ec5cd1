// The product of two matrices: a sum of products for each element and each segment of the inner
// axis.
//
// Layout: `a` and `b` have a start and a step along each of their axes, two's complements. `out`
// has the matrices of all segments, one after the other, each row by row. Products are added in
// parts of 256, then the parts: rounding grows with the number of parts.
// Workgroup: GROUP invocations, one element of a segment each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> a: array<Value>;
var<storage, read> b: array<Value>;
var<storage, read_write> out: array<Value>;

#import gpu::values

fn each_invocation(i: u32) {
    let column = i % params.columns;
    let above = i / params.columns;
    let row = above % params.rows;
    let begin = above / params.rows * params.segment;
    var at_a = params.start_a + row * params.row_a + begin * params.inner_a;
    var at_b = params.start_b + begin * params.inner_b + column * params.column_b;
    var sum: Value;
    var left = min(params.segment, params.inner - begin);
    for (; left > 0u; left -= min(left, 256u)) {
        var part: Value;
        for (var some = min(left, 256u); some > 0u; some--) {
            part += product(load_a(at_a), load_b(at_b));
            at_a += params.inner_a;
            at_b += params.inner_b;
        }
        sum += part;
    }
    store_out(i, sum);
}

#each_invocation params.count
