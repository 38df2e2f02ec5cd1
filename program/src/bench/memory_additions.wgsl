// Adds to random sectors of an array by atomics: 32 consecutive invocations add to SECTORS
// different ones, each of 32 bytes.
//
// Workgroup: the device's tuned size.

const ADDITIONS: u32 = 8u;

var<uniform> params: Params;
#if wide
var<storage, read_write> x: array<atomic<u64>>;
const SECTOR: u32 = 4u;
alias Value = u64;
#else
var<storage, read_write> x: array<atomic<u32>>;
const SECTOR: u32 = 8u;
alias Value = u32;
#endif

fn hash(n: u32) -> u32 {
    let a = (n ^ (n >> 16u)) * 0x7feb352du;
    let b = (a ^ (a >> 15u)) * 0x846ca68bu;
    return b ^ (b >> 16u);
}

fn each(i: u32) {
    let lane = i % 32u;
    let place = lane / params.sectors % SECTOR;
    for (var k = 0u; k < ADDITIONS; k += 1u) {
        let group = (i + k * params.count) / 32u;
        let sector = hash(group * 32u + lane % params.sectors) & params.mask;
        add_x(sector * SECTOR + place, Value(1u));
    }
}

#each params.count
