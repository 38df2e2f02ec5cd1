//! Primitives against the standard library: sizes around every block, adversarial keys, all forms,
//! many windows.

use std::sync::Arc;

use meshloom::comm::Op;
use meshloom::gpu::primitives::{
    AxisReduce, Count, Elementwise, Form, Keys, MatrixProduct, Number, Operand, Operation, Permute, Reduce, Reduction,
    Scan, Sort, View,
};
use meshloom::gpu::{
    Array, DeviceElement, DeviceError, DispatchObserver, Gpu, ObservedDispatch, ObservedKernel, Options, Profile,
    Recorder, Verdict,
};
use meshloom_sanitizer::Sanitizer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const PROFILES: [Profile; 2] = [Profile::Gpu, Profile::Software];

/// Around the blocks of every kernel, and more than two tiles of every form.
const SIZES: [usize; 19] =
    [0, 1, 2, 31, 32, 33, 127, 128, 129, 511, 512, 513, 2047, 2048, 2049, 4096, 4097, 9001, 70_000];

fn open(window_bytes: Option<u64>) -> Gpu {
    let options = meshloom_sanitizer::options().unwrap();
    let window_bytes = window_bytes.or(options.window_bytes);
    Gpu::open(&Options { window_bytes, ..options }, 0).unwrap()
}

/// Returns the device, or `None` if its windows are too small for arrays of many elements.
fn roomy() -> Option<Gpu> {
    let gpu = open(None);
    (gpu.capabilities().window_bytes >= 1 << 20).then_some(gpu)
}

struct Bench {
    recorder: Recorder,
}

impl Bench {
    fn new(gpu: &Gpu) -> Self {
        Bench { recorder: Recorder::new(gpu).unwrap() }
    }

    fn up<T: DeviceElement>(&mut self, data: &[T]) -> Array<T> {
        let array = self.recorder.gpu().array("data", data.len() as u64).unwrap();
        self.recorder.upload(&array, 0, data).unwrap();
        array
    }

    fn down<T: DeviceElement>(&mut self, array: &Array<T>) -> Vec<T> {
        self.recorder.download(array, 0, array.len()).unwrap()
    }
}

/// Words without pattern.
fn words(seed: u32, count: usize) -> Vec<u32> {
    let mut state = u64::from(seed) << 40;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u32
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn forms(gpu: &Gpu) -> Vec<Form> {
    let mut forms = vec![Form::Software, Form::Portable];
    if gpu.capabilities().subgroups {
        forms.push(Form::Subgroups);
    }
    forms
}

/// Returns the indices of keys in stable order.
fn stable<K: Ord>(keys: &[K]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    order.sort_by_key(|&i| &keys[i as usize]);
    order
}

fn pairs64(keys: &[u64]) -> [Vec<u32>; 2] {
    [keys.iter().map(|k| (k >> 32) as u32).collect(), keys.iter().map(|&k| k as u32).collect()]
}

#[test]
fn scans_are_sums_of_what_came_before() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    for profile in PROFILES {
        let scan = Scan::with(profile);
        for n in SIZES {
            let data = words(n as u32, n);
            let input = bench.up(&data);
            let mut sums: Vec<u32> = data
                .iter()
                .scan(0u32, |s, v| {
                    let old = *s;
                    *s = s.wrapping_add(*v);
                    Some(old)
                })
                .collect();
            sums.push(data.iter().fold(0, |s, v| s.wrapping_add(*v)));
            for more in [0, 1, 3] {
                let output = bench.up(&vec![7; n + more]);
                scan.exclusive(&mut bench.recorder, &input, &output, Count::All).unwrap();
                let mut wanted = sums[..(n + more).min(n + 1)].to_vec();
                wanted.resize(n + more, 7);
                assert_eq!(bench.down(&output), wanted, "{profile:?} {n} + {more}");
            }
        }
        // A count of the host, of the device, and one of the device beyond the array.
        let (data, output) = (bench.up(&vec![1u32; 5000]), bench.up(&vec![7u32; 5001]));
        for (number, counts) in [(3000u32, 3000usize), (0, 0), (u32::MAX, 5000)] {
            let array = bench.up(&[number]);
            let mut wanted: Vec<u32> = (0..=counts as u32).collect();
            wanted.resize(5001, 7);
            bench.recorder.upload(&output, 0, &vec![7; 5001]).unwrap();
            scan.exclusive(&mut bench.recorder, &data, &output, Count::Device(&array)).unwrap();
            assert_eq!(bench.down(&output), wanted, "{profile:?} {number}");
            if number <= 5000 {
                bench.recorder.upload(&output, 0, &vec![7; 5001]).unwrap();
                scan.exclusive(&mut bench.recorder, &data, &output, Count::First(u64::from(number))).unwrap();
                assert_eq!(bench.down(&output), wanted, "{profile:?} {number}");
            }
        }
    }
}

/// Returns the tree of `Reduce`, as it is documented.
fn tree(values: &[f32]) -> f32 {
    let blocks = values.chunks(1024).map(|block| {
        let mut lanes = [0.0f32; 64];
        block.iter().enumerate().for_each(|(k, v)| lanes[k % 64] += v);
        for half in [32, 16, 8, 4, 2, 1] {
            (0..half).for_each(|j| lanes[j] += lanes[j + half]);
        }
        lanes[0]
    });
    let blocks: Vec<f32> = blocks.collect();
    match blocks[..] {
        [] => 0.0,
        [one] => one,
        _ => tree(&blocks),
    }
}

fn reduced<T: Number>(bench: &mut Bench, reduce: &Reduce, data: &Array<T>, count: Count<'_>) -> [T; 3] {
    let output = [(); 3].map(|()| bench.recorder.gpu().array::<T>("output", 1).unwrap());
    reduce.record(&mut bench.recorder, Op::Sum, data, &output[0], count).unwrap();
    reduce.record(&mut bench.recorder, Op::Min, data, &output[1], count).unwrap();
    reduce.record(&mut bench.recorder, Op::Max, data, &output[2], count).unwrap();
    output.map(|output| bench.down(&output)[0])
}

#[test]
fn reductions_follow_the_tree() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    for profile in PROFILES {
        let reduce = Reduce::with(profile);
        for n in [0, 1, 255, 1023, 1024, 1025, 70_000] {
            let data = words(3, n);
            let array = bench.up(&data);
            let sum = data.iter().fold(0u32, |s, v| s.wrapping_add(*v));
            let wanted = [sum, data.iter().copied().min().unwrap_or(u32::MAX), data.iter().copied().max().unwrap_or(0)];
            assert_eq!(reduced(&mut bench, &reduce, &array, Count::All), wanted, "{profile:?} {n}");
            let signed: Vec<i32> = data.iter().map(|&v| v as i32).collect();
            let wanted = [
                sum as i32,
                signed.iter().copied().min().unwrap_or(i32::MAX),
                signed.iter().copied().max().unwrap_or(i32::MIN),
            ];
            let array = bench.up(&signed);
            assert_eq!(reduced(&mut bench, &reduce, &array, Count::All), wanted, "{profile:?} {n}");
            let floats: Vec<f32> = signed.iter().map(|&v| v as f32 * 1e-7).collect();
            let wanted = [
                tree(&floats),
                floats.iter().copied().fold(f32::INFINITY, f32::min),
                floats.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            ];
            let array = bench.up(&floats);
            let got = reduced(&mut bench, &reduce, &array, Count::All);
            assert_eq!(got.map(f32::to_bits), wanted.map(f32::to_bits), "{profile:?} {n}: {got:?} {wanted:?}");
        }
        let (array, number) = (bench.up(&vec![2u32; 3000]), bench.up(&[1500u32]));
        assert_eq!(reduced(&mut bench, &reduce, &array, Count::Device(&number)), [3000, 2, 2]);
        assert_eq!(reduced(&mut bench, &reduce, &array, Count::First(7)), [14, 2, 2]);
    }
}

#[test]
fn rows_are_gathered_and_scattered() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    let permute = Permute::new();
    let n = 1000;
    let order = stable(&words(4, n));
    for width in [1, 3, 17] {
        let data: Vec<[f32; 2]> = (0..n * width).map(|i| [i as f32, -(i as f32)]).collect();
        let (source, index) = (bench.up(&data), bench.up(&order));
        let target = bench.up(&vec![[0.5f32; 2]; n * width]);
        permute.gather(&mut bench.recorder, &source, &index, &target, width as u64, Count::First(900)).unwrap();
        let got = bench.down(&target);
        for (i, row) in got.chunks(width).enumerate() {
            let from = order[i] as usize * width;
            let wanted = if i < 900 { &data[from..from + width] } else { &vec![[0.5; 2]; width][..] };
            assert_eq!(row, wanted, "{width}: {i}");
        }
        let back = bench.up(&vec![[0.5f32; 2]; n * width]);
        permute.scatter(&mut bench.recorder, &target, &index, &back, width as u64, Count::First(900)).unwrap();
        let got = bench.down(&back);
        for (i, &row) in order.iter().enumerate() {
            let at = row as usize * width;
            let wanted = if i < 900 { &data[at..at + width] } else { &vec![[0.5; 2]; width][..] };
            assert_eq!(&got[at..at + width], wanted, "{width}: {i}");
        }
    }
    // Rows out of range are not touched.
    let (source, index, target) = (bench.up(&[1u32, 2]), bench.up(&[1u32, 2, 0]), bench.up(&[7u32; 3]));
    permute.gather(&mut bench.recorder, &source, &index, &target, 1, Count::All).unwrap();
    assert_eq!(bench.down(&target), [2, 7, 1]);
}

#[test]
fn strided_functions_are_those_of_each_element() {
    for window_bytes in [None, Some(1024)] {
        let mut bench = Bench::new(&open(window_bytes));
        let elementwise = Elementwise::default();
        let numbers =
            |seed, n| words(seed, n).into_iter().map(|word| (word % 2001) as f32 - 1000.0).collect::<Vec<_>>();
        let (x, y) = (numbers(1, 600), numbers(2, 40));
        let [a, b, out] = [&x, &y, &vec![0.0; 700]].map(|data| bench.up(data));
        // Backward, repeated, with gaps; then in place.
        let shape = [3, 5, 7, 4];
        let views = [(599, [-150, -28, -4, -1]), (2, [0, 7, 0, 1]), (11, [200, 29, 4, 1])];
        let place = |n: usize, at: [i64; 4]| {
            let (start, strides) = views[n];
            (start as i64 + at.iter().zip(strides).map(|(k, step)| k * step).sum::<i64>()) as usize
        };
        let view = |n: usize, array: &Array<f32>| (array.raw().clone(), views[n].0, views[n].1.to_vec());
        let [va, vb, vo] = [view(0, &a), view(1, &b), view(2, &out)];
        let [va, vb, vo] =
            [&va, &vb, &vo].map(|(array, start, strides)| View { array, start: *start, strides: strides.clone() });
        let (add, divide) = (Operation::named("add").unwrap(), Operation::named("divide").unwrap());
        let operands = [Operand::Array(va), Operand::Array(vb)];
        elementwise.record(&mut bench.recorder, add, &shape, &vo, &operands, None).unwrap();
        let operands = [Operand::Array(vo.clone()), Operand::Scalar([4.0, 0.0])];
        elementwise.record(&mut bench.recorder, divide, &shape, &vo, &operands, None).unwrap();
        let mut want = vec![0.0; 700];
        for n in 0..3 * 5 * 7 * 4 {
            let at = [n / 140, n / 28 % 5, n / 4 % 7, n % 4];
            want[place(2, at)] = (x[place(0, at)] + y[place(1, at)]) / 4.0;
        }
        assert_eq!(bench.down(&out), want);
        // Rows by number, of an operand that is not read beyond its end.
        let (rows, target) = ([2, 0, 2], View::contiguous(out.raw(), &[3, 20]));
        let from = [Operand::Array(View::contiguous(b.raw(), &[2, 20]))];
        let taken =
            elementwise.record(&mut bench.recorder, Operation::COPY, &[3, 20], &target, &from, Some((0, &rows)));
        is_misuse(taken, "in an array of 40 elements");
        let rows = [1, 0, 1];
        elementwise.record(&mut bench.recorder, Operation::COPY, &[3, 20], &target, &from, Some((0, &rows))).unwrap();
        assert_eq!(bench.down(&out)[..60], [&y[20..], &y[..20], &y[20..]].concat());
        let beyond = View { start: 5, ..View::contiguous(out.raw(), &[20, 35]) };
        let one = [Operand::Scalar([1.0, 0.0])];
        is_misuse(
            elementwise.record(&mut bench.recorder, Operation::COPY, &[20, 35], &beyond, &one, None),
            "array of 700",
        );
        is_misuse(elementwise.record(&mut bench.recorder, add, &[3, 20], &target, &one, None), "expected 2 operands");
        let repeated = View { strides: vec![0, 0], ..target.clone() };
        is_misuse(elementwise.record(&mut bench.recorder, Operation::COPY, &[3, 20], &repeated, &one, None), "twice");
        let long = elementwise.record(&mut bench.recorder, Operation::COPY, &[1 << 40, 1 << 40], &repeated, &one, None);
        assert!(matches!(long, Err(DeviceError::TooLong { .. })), "{long:?}");
    }
}

#[test]
fn axes_are_reduced_in_more_than_single_precision() {
    for window_bytes in [None, Some(1 << 16)] {
        let mut bench = Bench::new(&open(window_bytes));
        let shape = [7u64, 33, 5, 70];
        let x: Vec<f32> = words(3, 7 * 33 * 5 * 70).into_iter().map(|word| word as f32 * 1e-3 - 2e6).collect();
        let (input, reduce) = (bench.up(&x), AxisReduce::default());
        for mask in 1..16 {
            let reduced = [0, 1, 2, 3].map(|axis| mask >> axis & 1 == 1);
            let kept: u64 = (0..4).filter(|&axis| !reduced[axis]).map(|axis| shape[axis]).product();
            let mut want = vec![(0.0f64, f32::INFINITY); kept as usize];
            for (n, &value) in x.iter().enumerate() {
                let (mut rest, mut at, mut step) = (n as u64, 0, 1);
                for axis in (0..4).rev() {
                    if !reduced[axis] {
                        at += rest % shape[axis] * step;
                        step *= shape[axis];
                    }
                    rest /= shape[axis];
                }
                let (sum, least) = &mut want[at as usize];
                (*sum, *least) = (*sum + f64::from(value), least.min(value));
            }
            let [sum, least] = [0, 1].map(|_| bench.recorder.gpu().array::<f32>("out", kept).unwrap());
            for (reduction, out) in [(Reduction::Sum, &sum), (Reduction::Min, &least)] {
                reduce.record(&mut bench.recorder, reduction, &shape, &reduced, input.raw(), out.raw()).unwrap();
            }
            assert_eq!(bench.down(&sum), want.iter().map(|&(sum, _)| sum as f32).collect::<Vec<_>>(), "{reduced:?}");
            assert_eq!(bench.down(&least), want.iter().map(|&(_, least)| least).collect::<Vec<_>>());
        }
        let out = bench.recorder.gpu().array::<f32>("out", 1).unwrap();
        let none = bench.recorder.gpu().array::<f32>("none", 0).unwrap();
        let empty = reduce.record(&mut bench.recorder, Reduction::Max, &[0], &[true], none.raw(), out.raw());
        is_misuse(empty, "of no elements");
    }
}

/// Keys that have brought sorts down.
#[test]
fn products_of_matrices_are_those_of_the_host() {
    for window_bytes in [None, Some(1 << 16)] {
        let mut bench = Bench::new(&open(window_bytes));
        let product = MatrixProduct::default();
        // Several segments, one, and a vector; the second matrix is transposed and read backward.
        for [rows, inner, columns] in [[3, 700, 5], [40, 40, 33], [257, 3, 1]] {
            let numbers = |seed, n: usize| words(seed, n).into_iter().map(|word| word as f32 * 1e-9 - 2.0);
            let [x, y]: [Vec<f32>; 2] = [numbers(5, rows * inner).collect(), numbers(6, inner * columns).collect()];
            let (a, b) = (bench.up(&x), bench.up(&y));
            let out = bench.recorder.gpu().array::<f32>("out", (rows * columns) as u64).unwrap();
            let left = View::contiguous(a.raw(), &[rows as u64, inner as u64]);
            let right = View { array: b.raw(), start: y.len() as u64 - 1, strides: vec![-1, -(inner as i64)] };
            let extents = [rows, inner, columns].map(|n| n as u64);
            product.record(&mut bench.recorder, extents, &left, &right, out.raw()).unwrap();
            for (n, found) in bench.down(&out).into_iter().enumerate() {
                let (row, column) = (n / columns, n % columns);
                let terms =
                    (0..inner).map(|k| f64::from(x[row * inner + k]) * f64::from(y[y.len() - 1 - k - column * inner]));
                let (want, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                assert!((f64::from(found) - want).abs() < 4e-6 * size, "{rows} {inner} {columns}: {found}, {want}");
            }
            let short = bench.up(&[0.0f32]);
            let wrong = product.record(&mut bench.recorder, extents, &left, &right, short.raw());
            is_misuse(wrong, "elements of F32 and F32 in an array of");
        }
    }
}

fn distributions(n: usize) -> Vec<(&'static str, Vec<u32>)> {
    let random = words(1, n);
    let mut ascending = random.clone();
    ascending.sort_unstable();
    let mut descending = ascending.clone();
    descending.reverse();
    let poor = (0..5).map(|seed| words(seed + 10, n)).reduce(|a, b| a.iter().zip(b).map(|(a, b)| a & b).collect());
    vec![
        ("equal", vec![5; n]),
        ("ascending", ascending),
        ("descending", descending),
        ("few", random.iter().map(|v| (v % 16) << 12).collect()),
        ("extreme", random.iter().map(|v| if v % 2 == 0 { 0 } else { u32::MAX }).collect()),
        ("poor", poor.unwrap_or_default()),
        ("random", random),
    ]
}

#[test]
fn every_form_sorts_every_size_stably() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    let sorts: Vec<Sort> = forms(&gpu).into_iter().map(Sort::with).collect();
    for n in SIZES {
        let all = distributions(n);
        let some = if n > 10_000 { &all[3..] } else { &all[..] };
        for (name, keys) in some {
            let wanted = stable(keys);
            let array = bench.up(keys);
            for sort in &sorts {
                let order = bench.up(&vec![7u32; n]);
                sort.order(&mut bench.recorder, Keys::U32(&array), &order, Count::All).unwrap();
                assert!(bench.down(&order) == wanted, "{name} {n} {:?}", sort.form());
            }
            assert_eq!(&bench.down(&array), keys, "keys are not changed");
        }
    }
}

#[test]
fn more_keys_than_a_loop_of_a_software_renderer_has_rounds() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    // 32 serial tiles of them had more than 65,535 each.
    let keys: Vec<u32> = words(1, 2_200_000).into_iter().map(|v| v >> 8).collect();
    let (array, order) = (bench.up(&keys), bench.up(&vec![7u32; keys.len()]));
    Sort::new(&gpu).order(&mut bench.recorder, Keys::U32(&array).bits(24), &order, Count::All).unwrap();
    assert!(bench.down(&order) == stable(&keys));
}

#[test]
fn pairs_are_sorted_in_place() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    for form in forms(&gpu) {
        let sort = Sort::with(form);
        let (keys, values) = (bench.up(&[5, 5, 5, 1, u32::MAX, 0]), bench.up(&[0u32, 1, 2, 3, 4, 5]));
        sort.pairs(&mut bench.recorder, Keys::U32(&keys), &values, Count::All).unwrap();
        assert_eq!(bench.down(&values), [5, 3, 0, 1, 2, 4], "{form:?}");
        assert_eq!(bench.down(&keys), [0, 1, 5, 5, 5, u32::MAX], "{form:?}");
        // More than one tile, an even and an odd number of passes, and what does not count stays.
        let (n, counts) = (5001usize, 4800usize);
        for bits in [3, 12, 24, 32] {
            let data: Vec<u32> = words(bits, n).into_iter().map(|v| v >> (32 - bits)).collect();
            let number = bench.up(&[counts as u32]);
            let (keys, values) = (bench.up(&data), bench.up(&words(2, n)));
            sort.pairs(&mut bench.recorder, Keys::U32(&keys).bits(bits), &values, Count::Device(&number)).unwrap();
            let order = stable(&data[..counts]);
            let permuted = |data: &[u32]| {
                let sorted = order.iter().map(|&i| data[i as usize]);
                sorted.chain(data[counts..].iter().copied()).collect::<Vec<_>>()
            };
            assert!(bench.down(&keys) == permuted(&data), "{form:?} {bits}");
            assert!(bench.down(&values) == permuted(&words(2, n)), "{form:?} {bits}");
        }
        let wide: Vec<u64> =
            words(1, n).into_iter().zip(words(2, n)).map(|(a, b)| u64::from(a) << 30 ^ u64::from(b)).collect();
        let [high, low] = pairs64(&wide).map(|words| bench.up(&words));
        let values = bench.up(&(0..n as u32).collect::<Vec<_>>());
        sort.pairs(&mut bench.recorder, Keys::U64 { high: &high, low: &low }, &values, Count::All).unwrap();
        let order = stable(&wide);
        let sorted: Vec<u64> = order.iter().map(|&i| wide[i as usize]).collect();
        let [high_sorted, low_sorted] = pairs64(&sorted);
        assert!(bench.down(&values) == order && bench.down(&high) == high_sorted, "{form:?}");
        assert!(bench.down(&low) == low_sorted, "{form:?}");
    }
}

#[test]
fn signed_numbers_and_floats_are_in_their_order() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    let mut floats = vec![0.0f32, -0.0, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, f32::MAX, f32::MIN, 1e-40, -1e-40];
    floats.extend(words(6, 3000).iter().map(|&v| v as i32 as f32 * 1e-9));
    floats.extend([f32::NAN, -f32::NAN]);
    let bits: Vec<u32> = floats.iter().map(|f| f.to_bits()).collect();
    let signed: Vec<i32> = words(7, 3000).iter().map(|&v| v as i32).chain([0, -1, i32::MIN, i32::MAX]).collect();
    for form in forms(&gpu) {
        let sort = Sort::with(form);
        // The same kernels as for floats.
        let (keys, values) = (bench.up(&signed), bench.up(&(0..signed.len() as u32).collect::<Vec<_>>()));
        sort.pairs(&mut bench.recorder, Keys::I32(&keys), &values, Count::All).unwrap();
        assert!(bench.down(&values) == stable(&signed), "{form:?}");
        if form == Form::Software {
            let (keys, order) = (bench.up(&signed), bench.up(&vec![0u32; signed.len()]));
            sort.order(&mut bench.recorder, Keys::I32(&keys), &order, Count::All).unwrap();
            assert!(bench.down(&order) == stable(&signed), "{form:?}");
        }
        let mut wanted: Vec<u32> = (0..bits.len() as u32).collect();
        wanted.sort_by(|&a, &b| floats[a as usize].total_cmp(&floats[b as usize]));
        let values: Array<u32> = bench.up(&(0..bits.len() as u32).collect::<Vec<_>>());
        let keys: Array<f32> = bench.up(&bits).cast().unwrap();
        sort.pairs(&mut bench.recorder, Keys::F32(&keys), &values, Count::All).unwrap();
        assert!(bench.down(&values) == wanted, "{form:?}");
    }
}

/// 64-bit keys: with few and many equal high words, with runs just below and beyond what insertion
/// sorts.
fn wide_keys(n: usize) -> Vec<(&'static str, u32, Vec<u64>)> {
    let random: Vec<u64> =
        words(1, n).into_iter().zip(words(2, n)).map(|(h, l)| u64::from(h) << 32 | u64::from(l)).collect();
    let runs =
        |run: usize| (0..n).map(|i| ((i * 7 % n / run) as u64 * 0x1_0000_0000) | random[i] & 0xffff_ffff).collect();
    let mut one_long: Vec<u64> = random.clone();
    one_long.iter_mut().step_by(n.div_ceil(40).max(1)).for_each(|key| *key = *key & 0xffff_ffff | 77 << 32);
    vec![
        ("random", 64, random.clone()),
        ("63 bits", 63, random.iter().map(|k| k >> 1).collect()),
        ("40 bits", 40, random.iter().map(|k| k >> 24).collect()),
        ("some ties", 64, random.iter().map(|k| k & 0x0000_0fff_ffff_ffff).collect()),
        ("runs of 32", 64, runs(32)),
        ("runs of 33", 64, runs(33)),
        ("one long run", 64, one_long),
        ("equal", 64, vec![3 << 40; n]),
        ("low word only", 20, random.iter().map(|k| k & 0xf_ffff).collect()),
        ("equal pairs", 64, random.iter().map(|k| k & 0x0fff_0000_0000_0001).collect()),
        ("at both ends", 63, random.iter().map(|k| if k & 1 == 0 { k >> 44 } else { (!0 >> 1) - (k >> 44) }).collect()),
        // Some of all distances from a point, from 1 to 2^63: dense there.
        ("cusp", 64, random.iter().map(|k| (k >> 1 >> (k % 62)) + 0x0123_4567_89ab_cdef).collect()),
        ("few places", 63, random.iter().map(|k| if k & 3 == 0 { k >> 1 } else { (k & 12) << 50 | 9 << 20 }).collect()),
        ("clumps", 63, random.iter().map(|k| if k & 3 == 0 { k >> 1 } else { (k & 0x700) << 48 | k >> 40 }).collect()),
    ]
}

/// Number of 2^17 keys of each kind further passes may sort at most: what lies far beyond the
/// ends of the sample, and small clumps that are not in it.
#[test]
fn passes_over_codes_leave_few_keys_tied() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    // Other forms take samples of other sizes.
    let (sort, n) = (Sort::with(Form::Software), 1 << 17);
    for (name, bits, keys) in wide_keys(n).into_iter().filter(|(_, bits, _)| *bits > 32) {
        let most = match name {
            // One of 128 stretches between keys of the sample at either end of each clump.
            "at both ends" | "cusp" | "clumps" => 16 * (n / 128),
            "one long run" => 40,
            // 16 of either key, which are as near to one another as keys can be, at each of 4096
            // places far apart.
            "equal pairs" => n,
            _ => 0,
        };
        let [high, low] = pairs64(&keys).map(|words| bench.up(&words));
        let order = bench.up(&vec![7u32; n]);
        let keys_of = Keys::U64 { high: &high, low: &low }.bits(bits);
        let tied = sort.order_and_ties(&mut bench.recorder, keys_of, &order, Count::All).unwrap().unwrap();
        let tied = bench.down(&tied)[0];
        assert!(bench.down(&order) == stable(&keys), "{name}");
        assert!(tied as usize <= most, "{name}: {tied} of {n} keys were tied");
    }
}

#[test]
fn wide_keys_are_sorted_by_both_words() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    let sorts: Vec<Sort> = forms(&gpu).into_iter().map(Sort::with).collect();
    for n in [1, 2, 33, 513, 4097, 30_000] {
        for (name, bits, keys) in wide_keys(n) {
            let wanted = stable(&keys);
            let [high, low] = pairs64(&keys).map(|words| bench.up(&words));
            for sort in &sorts {
                let order = bench.up(&vec![7u32; n]);
                let keys = Keys::U64 { high: &high, low: &low }.bits(bits);
                sort.order(&mut bench.recorder, keys, &order, Count::All).unwrap();
                assert!(bench.down(&order) == wanted, "{name} {n} {:?}", sort.form());
            }
        }
    }
    // A count of the device, with and without long runs.
    let number = bench.up(&[2500u32]);
    for (name, _, keys) in wide_keys(3000).into_iter().filter(|(_, bits, _)| *bits == 64) {
        let [high, low] = pairs64(&keys).map(|words| bench.up(&words));
        let order = bench.up(&vec![7u32; 3000]);
        let keys_of = Keys::U64 { high: &high, low: &low };
        sorts[0].order(&mut bench.recorder, keys_of, &order, Count::Device(&number)).unwrap();
        let mut wanted = stable(&keys[..2500]);
        wanted.resize(3000, 7);
        assert!(bench.down(&order) == wanted, "{name}");
    }
}

#[test]
fn many_windows_change_nothing() {
    let gpu = open(Some(4096));
    // A few arrays of a few windows each.
    if gpu.capabilities().bindings < 20 {
        return;
    }
    let mut bench = Bench::new(&gpu);
    let n = 3000;
    let keys: Vec<u64> =
        words(1, n).into_iter().zip(words(2, n)).map(|(h, l)| u64::from(h & 0xfff) << 32 | u64::from(l)).collect();
    let [high, low] = pairs64(&keys).map(|words| bench.up(&words));
    let order = bench.up(&vec![7u32; n]);
    let both = Keys::U64 { high: &high, low: &low };
    Sort::with(Form::Software).order(&mut bench.recorder, both.bits(44), &order, Count::All).unwrap();
    assert!(bench.down(&order) == stable(&keys));
    // One pass, for which the others compile one kernel.
    for form in forms(&gpu) {
        Sort::with(form).order(&mut bench.recorder, Keys::U32(&high).bits(8), &order, Count::All).unwrap();
        assert!(bench.down(&order) == stable(&keys.iter().map(|k| (k >> 32) as u8).collect::<Vec<_>>()), "{form:?}");
    }
    let output = bench.up(&vec![0u32; n + 1]);
    Scan::new().exclusive(&mut bench.recorder, &bench_ones(&gpu, &mut None, n), &output, Count::All).unwrap();
    assert_eq!(bench.down(&output), (0..=n as u32).collect::<Vec<_>>());
}

/// Returns an array of ones.
fn bench_ones(gpu: &Gpu, keep: &mut Option<Bench>, n: usize) -> Array<u32> {
    keep.insert(Bench::new(gpu)).up(&vec![1u32; n])
}

#[test]
fn a_sort_neither_submits_nor_allocates_once_warmed() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    let sort = Sort::new(&gpu);
    let [high, low] = [bench.up(&words(1, 9000)), bench.up(&words(2, 9000))];
    let order = bench.up(&vec![0u32; 9000]);
    let submits = bench.recorder.counts().submits;
    sort.order(&mut bench.recorder, Keys::U64 { high: &high, low: &low }, &order, Count::All).unwrap();
    assert_eq!(bench.recorder.counts().submits, submits);
    assert!(sort.traffic(true, 64, 9000) > sort.traffic(false, 24, 9000));
    bench.recorder.wait().unwrap();
}

/// Runs nothing: a GPU of whatever lanes, to count dispatches.
#[derive(Debug)]
struct Idle;

impl DispatchObserver for Idle {
    fn subgroup(&self) -> Option<u32> {
        Some(32)
    }

    fn kernel(&self, _: &str) -> Result<Box<dyn ObservedKernel>, String> {
        Ok(Box::new(Idle))
    }
}

impl ObservedKernel for Idle {
    fn dispatch<'a>(&'a self, dispatch: ObservedDispatch<'_>) -> Result<Verdict<'a>, String> {
        Ok(Verdict::Replace(dispatch.buffers.iter().skip(1).map(|_| None).collect()))
    }
}

/// Dispatches of the forms for GPUs: all that are recorded, clears by kernels among them. Other
/// clears are of few bytes.
#[test]
fn a_sort_takes_few_dispatches() {
    let options = Options { profile: Some(Profile::Gpu), observer: Some(Arc::new(Idle)), ..Options::default() };
    let gpu = Gpu::open(&options, 0).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let mut sorts = vec![Sort::with(Form::Portable)];
    if gpu.capabilities().subgroups {
        sorts.extend([Sort::new(&gpu), Sort::with(Form::Subgroups)]);
    }
    for sort in &sorts {
        let form = sort.form();
        for (n, bits, dispatches) in
            [(700, 63, 1), (700, 32, 1), (100_000, 63, 9), (1_000_000, 63, 9), (1_000_000, 32, 6), (1_000_000, 24, 5)]
        {
            let [high, low, order] = [0; 3].map(|_| gpu.array::<u32>("words", n).unwrap());
            let keys = if bits > 32 { Keys::U64 { high: &high, low: &low } } else { Keys::U32(&low) };
            recorder.submit().unwrap();
            let before = recorder.counts();
            sort.order(&mut recorder, keys.bits(bits), &order, Count::All).unwrap();
            recorder.submit().unwrap();
            let counts = recorder.counts();
            let taken = counts.dispatches - before.dispatches;
            assert_eq!(taken, dispatches, "{form:?}: {n} keys of {bits} bits");
            let moved = counts.moved_by_commands - before.moved_by_commands;
            assert!(moved < 1 << 14, "{form:?}: {moved} bytes of commands for {n} keys of {bits} bits");
        }
    }
}

/// A workgroup that runs before those that it waits for counts their keys itself.
#[test]
fn a_sort_needs_no_progress_of_other_workgroups() {
    let observer = Arc::new(Sanitizer::RunBackwards { subgroup: 32 });
    let options =
        Options { profile: Some(Profile::Gpu), observer: Some(observer), ..meshloom_sanitizer::options().unwrap() };
    let gpu = Gpu::open(&options, 0).unwrap();
    if gpu.capabilities().window_bytes < 1 << 20 {
        return;
    }
    let mut bench = Bench::new(&gpu);
    let keys: Vec<u32> = words(1, 10_000).into_iter().map(|v| v & 0xff_03ff).collect();
    let array = bench.up(&keys);
    let order = bench.up(&vec![7u32; keys.len()]);
    for sort in [Sort::new(&gpu), Sort::with(Form::Portable)] {
        sort.order(&mut bench.recorder, Keys::U32(&array).bits(12), &order, Count::All).unwrap();
        assert!(bench.down(&order) == stable(&keys.iter().map(|key| key & 0xfff).collect::<Vec<_>>()));
    }
}

fn is_misuse(result: Result<(), DeviceError>, why: &str) {
    match result {
        Err(error @ DeviceError::Misuse { .. }) => assert!(error.to_string().contains(why), "{error}"),
        other => panic!("{why}: {other:?}"),
    }
}

#[test]
fn wrong_calls_are_errors() {
    let gpu = open(None);
    let mut bench = Bench::new(&gpu);
    let (two, three) = (bench.up(&[1u32, 2]), bench.up(&[3u32, 4, 5]));
    let empty = bench.up::<u32>(&[]);
    let (scan, sort, recorder) = (Scan::new(), Sort::new(&gpu), &mut bench.recorder);
    is_misuse(scan.exclusive(recorder, &three, &two, Count::All), "`output` has 2 elements of the 3");
    is_misuse(scan.exclusive(recorder, &two, &two, Count::All), "given twice");
    is_misuse(scan.exclusive(recorder, &two, &three, Count::First(3)), "first 3 of 2");
    is_misuse(scan.exclusive(recorder, &two, &three, Count::Device(&empty)), "empty");
    is_misuse(sort.order(recorder, Keys::U32(&two), &two, Count::All), "given twice");
    is_misuse(sort.order(recorder, Keys::U64 { high: &two, low: &three }, &three, Count::All), "low words");
    is_misuse(sort.pairs(recorder, Keys::U32(&three), &two, Count::All), "`values`");
    is_misuse(Reduce::new().record(recorder, Op::Sum, &two, &empty, Count::All), "`output`");
    is_misuse(Permute::new().gather(recorder, &two, &three, &empty, 1, Count::All), "`target`");
    is_misuse(
        Permute::new().gather(recorder, &two, &three, &bench_ones(&gpu, &mut None, 3), 0, Count::All),
        "rows of 0",
    );
}

#[test]
fn any_input_is_scanned_and_sorted() {
    let Some(gpu) = roomy() else { return };
    let mut bench = Bench::new(&gpu);
    let (scan, sort) = (Scan::new(), Sort::new(&gpu));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(48) });
    let input = (prop::collection::vec(0u32..6, 0..900), any::<u32>());
    let bench = std::cell::RefCell::new(&mut bench);
    let outcome = runner.run(&input, |(data, seed)| {
        let mut bench = bench.borrow_mut();
        let n = data.len();
        let counts = if n == 0 { 0 } else { seed as usize % (n + 1) };
        let (array, number) = (bench.up(&data), bench.up(&[counts as u32]));
        let output = bench.up(&vec![0u32; n + 1]);
        scan.exclusive(&mut bench.recorder, &array, &output, Count::Device(&number)).unwrap();
        prop_assert_eq!(bench.down(&output)[counts], data[..counts].iter().sum::<u32>());
        sort.order(&mut bench.recorder, Keys::U32(&array).bits(3), &output, Count::All).unwrap();
        prop_assert_eq!(&bench.down(&output)[..n], &stable(&data)[..]);
        Ok(())
    });
    outcome.unwrap();
}
