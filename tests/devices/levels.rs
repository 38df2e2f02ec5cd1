//! Independent dispatches share compute passes, and every command sees what those recorded before
//! it have written.

use meshloom::gpu::*;

const STEP: &str = r"
var<uniform> params: Params;
var<storage, read> x: array<u32>;
var<storage, read_write> y: array<u32>;
fn each(i: u32) { store_y(i, 5u * load_y(i) + 3u * load_x(i) + params.number); }
#each params.count";

meshloom::kernel_params! {
    struct Params {
        count: u32,
        number: u32,
    }
}

fn step() -> Kernel {
    Kernel::new(KernelSource::new("test::step", STEP).params::<Params>())
}

/// Returns a recorder of a device that takes independent dispatches into one pass, as GPUs do.
fn recorder() -> Recorder {
    let options = Options { profile: Some(Profile::Gpu), ..meshloom_sanitizer::options().unwrap() };
    Recorder::new(&Gpu::open(&options, 0).unwrap()).unwrap()
}

/// Returns submissions, dispatches, passes and levels of `work`, which nothing may submit before
/// its end.
fn counted(recorder: &mut Recorder, work: impl FnOnce(&mut Recorder)) -> [u64; 4] {
    recorder.submit().unwrap();
    let before = recorder.counts();
    work(recorder);
    recorder.submit().unwrap();
    let after = recorder.counts();
    [
        after.submits - before.submits,
        after.dispatches - before.dispatches,
        after.passes - before.passes,
        after.levels - before.levels,
    ]
}

/// Returns `true` if the sanitizer submits every dispatch by itself.
fn is_observed() -> bool {
    meshloom_sanitizer::options().unwrap().observer.is_some()
}

const LEN: u64 = 64;

#[test]
fn eight_chains_of_fourteen_dispatches_take_fourteen_passes() {
    let (mut recorder, kernel) = (recorder(), step());
    let array = |recorder: &Recorder| recorder.gpu().array::<u32>("chain", LEN).unwrap();
    let start = array(&recorder);
    recorder.upload(&start, 0, &[1; LEN as usize]).unwrap();
    let mut ends = Vec::new();
    let counts = counted(&mut recorder, |recorder| {
        for chain in 0..8 {
            let mut from = start.clone();
            for number in 0..14 {
                let to = array(recorder);
                recorder.clear(&to);
                let params = Params { count: LEN as u32, number: chain * number };
                recorder.each(&kernel, &[from.raw(), to.raw()], &params, LEN).unwrap();
                from = to;
            }
            ends.push(from);
        }
    });
    if !is_observed() {
        assert_eq!(counts, [1, 112, 14, 14]);
    }
    for (chain, end) in (0u32..).zip(&ends) {
        let expected = (0..14).fold(1u32, |value, number| value.wrapping_mul(3).wrapping_add(chain * number));
        assert_eq!(recorder.download(end, 0, LEN).unwrap(), [expected; LEN as usize]);
    }
}

#[test]
fn a_chain_takes_one_pass_and_so_does_its_beginning_beside_others() {
    let (mut recorder, kernel) = (recorder(), step());
    let arrays: Vec<Array<u32>> = (0..10).map(|_| recorder.gpu().array("chain", LEN).unwrap()).collect();
    let record = |recorder: &mut Recorder, from: usize, to: usize| {
        let arrays = [arrays[from].raw(), arrays[to].raw()];
        recorder.each(&kernel, &arrays, &Params { count: LEN as u32, number: 0 }, LEN).unwrap();
    };
    let chain = counted(&mut recorder, |recorder| (0..20).for_each(|n| record(recorder, n % 2, (n + 1) % 2)));
    // A chain of twelve, beside whose first four links are four other chains.
    let beside = counted(&mut recorder, |recorder| {
        (0..12).for_each(|n| record(recorder, n % 2, (n + 1) % 2));
        for other in [2, 4, 6, 8] {
            (0..4).for_each(|n| record(recorder, other + n % 2, other + (n + 1) % 2));
        }
    });
    if !is_observed() {
        assert_eq!((chain, beside), ([1, 20, 1, 20], [1, 28, 4, 12]));
    }
}

#[test]
fn arrays_over_one_buffer_are_one_array() {
    let (mut recorder, kernel) = (recorder(), step());
    let gpu = recorder.gpu().clone();
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: 4 * LEN, usage, mapped_at_creation: false };
    let buffer = gpu.device().create_buffer(&descriptor);
    let same: Vec<Array<u32>> = (0..6).map(|_| Array::from_buffer(&gpu, buffer.clone()).unwrap()).collect();
    let ones = gpu.array::<u32>("ones", LEN).unwrap();
    recorder.upload(&ones, 0, &[1; LEN as usize]).unwrap();
    recorder.clear(&same[0]);
    let counts = counted(&mut recorder, |recorder| {
        for (number, array) in (0..).zip(&same) {
            recorder.each(&kernel, &[ones.raw(), array.raw()], &Params { count: LEN as u32, number }, LEN).unwrap();
        }
    });
    if !is_observed() {
        assert_eq!(counts, [1, 6, 1, 6]);
    }
    let expected = (0..6).fold(0u32, |value, number| 5 * value + 3 + number);
    assert_eq!(recorder.download(&same[0], 0, LEN).unwrap(), [expected; LEN as usize]);
}

/// Numbers of SplitMix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) % end
    }
}

/// Programs of dispatches, copies and clears with dependencies of all kinds, beside the same
/// programs on the host.
#[test]
fn random_programs_give_what_their_order_says() {
    let (mut recorder, kernel) = (recorder(), step());
    let (mut draws, mut dispatches, mut levels) = (Draws(43), 0, 0);
    for program in 0..16u32 {
        let count = 3 + draws.below(12) as usize;
        let mut host: Vec<Vec<u32>> =
            (0..count as u32).map(|n| (0..LEN as u32).map(|i| 1000 * n + i + program).collect()).collect();
        let arrays: Vec<Array<u32>> = (0..count).map(|_| recorder.gpu().array("test::array", LEN).unwrap()).collect();
        for (array, values) in arrays.iter().zip(&host) {
            recorder.upload(array, 0, values).unwrap();
        }
        let counts = counted(&mut recorder, |recorder| {
            for number in 0..80 {
                let from = draws.below(count as u64) as usize;
                let to = (from + 1 + draws.below(count as u64 - 1) as usize) % count;
                match draws.below(8) {
                    0 => {
                        recorder.clear(&arrays[to]);
                        host[to].fill(0);
                    }
                    1 => {
                        let [begin, end] = [draws.below(LEN / 2), draws.below(LEN / 2)];
                        recorder.copy(&arrays[from], begin, &arrays[to], end, LEN / 2).unwrap();
                        let copied = host[from][begin as usize..][..LEN as usize / 2].to_vec();
                        host[to][end as usize..][..LEN as usize / 2].copy_from_slice(&copied);
                    }
                    _ => {
                        let params = Params { count: LEN as u32, number };
                        recorder.each(&kernel, &[arrays[from].raw(), arrays[to].raw()], &params, LEN).unwrap();
                        let read = host[from].clone();
                        for (y, x) in host[to].iter_mut().zip(read) {
                            *y = y.wrapping_mul(5).wrapping_add(x.wrapping_mul(3)).wrapping_add(number);
                        }
                    }
                }
            }
        });
        (dispatches, levels) = (dispatches + counts[1], levels + counts[3]);
        for (array, values) in arrays.iter().zip(&host) {
            assert_eq!(&recorder.download(array, 0, LEN).unwrap(), values, "program {program}");
        }
    }
    // The programs have dispatches that others do not wait for.
    if !is_observed() {
        assert!(3 * levels < 2 * dispatches, "{levels} levels of {dispatches} dispatches");
    }
}
