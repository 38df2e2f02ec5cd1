// Momenta as rows of velocities: three columns times a factor that one float does not hold.
//
// Layout: `x`, `y`, `z` hold a number for each particle; `rows` receives the products of `count`
// particles from `first` on, three words each. `factor` is the factor in two floats. Products are
// rounded once, except one in some millions.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

#import gpu::two_floats

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read> y: array<f32>;
var<storage, read> z: array<f32>;
var<storage, read_write> rows: array<f32>;

fn scaled(value: f32) -> f32 {
    let product = two_product(value, params.factor.x);
    return product.x + (product.y + value * params.factor.y);
}

fn each(i: u32) {
    let particle = params.first + i;
    store_rows(3u * i, scaled(load_x(particle)));
    store_rows(3u * i + 1u, scaled(load_y(particle)));
    store_rows(3u * i + 2u, scaled(load_z(particle)));
}

#each params.count
