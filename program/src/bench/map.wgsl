// A damped oscillator for each item, in a number of steps: what a scan of parameters computes.
//
// Layout: `stiffness` one number for each item, `energies` what is left of its energy at the end.
// Workgroup: GROUP invocations, an item each: some drivers end all loops of an invocation after
// 65,535 rounds. No workgroup memory.

var<uniform> params: Params;
var<storage, read> stiffness: array<f32>;
var<storage, read_write> energies: array<f32>;

fn each_invocation(item: u32) {
    let k = load_stiffness(item);
    var x = 1.0;
    var v = 0.0;
    for (var step = 0u; step < params.steps; step++) {
        v = v - 0.01 * (k * x + 0.1 * v);
        x = x + 0.01 * v;
    }
    store_energies(item, 0.5 * (v * v + k * x * x));
}

#each_invocation params.count
