//! Distributed transforms on devices against rustfft in f64, and against themselves on other process grids.

use meshloom::comm::run_threads;
use meshloom::device::{Gpu, Options, Recorder};
use meshloom::exchange::Lines;
use meshloom::fft::{FftError, Operator, Spectral, Transform};
use meshloom::layout::{Box3, FieldLayout, Grid, extent};
use rustfft::{FftPlanner, num_complex::Complex};

type Modes = Vec<Complex<f64>>;

/// The spectrum in f64.
fn transformed(mut data: Modes, shape: [usize; 3]) -> Modes {
    let [_, n1, n2] = shape;
    let mut planner = FftPlanner::new();
    for (axis, n) in shape.into_iter().enumerate() {
        let stride = [n1 * n2, n2, 1][axis];
        let fft = planner.plan_fft_forward(n);
        for start in (0..data.len()).filter(|i| i / stride % n == 0) {
            let mut line: Modes = (0..n).map(|j| data[start + j * stride]).collect();
            fft.process(&mut line);
            line.into_iter().enumerate().for_each(|(j, v)| data[start + j * stride] = v);
        }
    }
    data
}

/// The half spectrum of a real field in f64.
fn truth(field: &[f32], shape: [usize; 3]) -> Modes {
    let [n0, n1, n2] = shape;
    let data = transformed(field.iter().map(|&v| Complex::new(f64::from(v), 0.0)).collect(), shape);
    let half = n2 / 2 + 1;
    (0..n0 * n1).flat_map(|row| (0..half).map(move |k| row * n2 + k)).map(|i| data[i]).collect()
}

fn field(shape: [usize; 3]) -> Vec<f32> {
    let n = shape.iter().product::<usize>();
    (0..n as u64).map(|i| ((i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 16_777_216.0) - 0.5).collect()
}

/// Values of a box of an array of `shape`.
fn cut<T: Copy>(all: &[T], shape: [u64; 3], part: &Box3) -> Vec<T> {
    let mut values = Vec::new();
    for i in part[0].clone() {
        for j in part[1].clone() {
            let row = ((i * shape[1] + j) * shape[2]) as usize;
            values.extend_from_slice(&all[row + part[2].start as usize..row + part[2].end as usize]);
        }
    }
    values
}

fn paste<T: Copy>(all: &mut [T], shape: [u64; 3], part: &Box3, values: &[T]) {
    let width = (part[2].end - part[2].start) as usize;
    let mut rows = values.chunks(width.max(1));
    for i in part[0].clone() {
        for j in part[1].clone() {
            let row = ((i * shape[1] + j) * shape[2] + part[2].start) as usize;
            if let Some(values) = rows.next() {
                all[row..row + width].copy_from_slice(values);
            }
        }
    }
}

/// Transforms forth and back over a grid; the whole spectrum and the whole field.
fn run(options: &Options, shape: [usize; 3], parts: [usize; 2], halo: [[u64; 2]; 3]) -> (Vec<[f32; 2]>, Vec<f32>) {
    let whole = shape.map(|n| n as u64);
    let input = field(shape);
    let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
    let ranks = run_threads(grid.ranks(), |comm| {
        let gpu = Gpu::open(options, comm.rank())?;
        let mut recorder = Recorder::new(&gpu)?;
        let mut lines = Lines::new(&comm, grid)?.with_chunks(1000, 2);
        let transform = Transform::<f32>::new(&gpu, whole, grid, comm.rank())?;
        // A layout with ghosts, which must be left alone.
        let layout = FieldLayout::new(transform.field_part(), halo);
        let mut padded = vec![777.0f32; layout.len() as usize];
        let inside = [0, 1, 2].map(|a| halo[a][0]..halo[a][0] + extent(&layout.own)[a]);
        paste(&mut padded, layout.shape(), &inside, &cut(&input, whole, &layout.own));
        let real = gpu.array::<f32>("real", layout.len())?;
        recorder.upload(&real, 0, &padded)?;
        let spectrum = transform.spectrum(&gpu)?;
        transform.forward(&mut recorder, &mut lines, &real, &layout, &spectrum)?;
        let modes = recorder.download(&spectrum, 0, spectrum.len())?;
        transform.inverse(&mut recorder, &mut lines, &spectrum, None, &real, &layout)?;
        let back = recorder.download(&real, 0, real.len())?;
        let own = cut(&back, layout.shape(), &inside);
        let mut ghosts = back.clone();
        paste(&mut ghosts, layout.shape(), &inside, &vec![777.0; own.len()]);
        assert!(ghosts.iter().all(|&v| v == 777.0), "ghosts were written");
        Ok::<_, meshloom::Error>((transform.spectrum_part(), modes, layout.own, own))
    });
    let half = [whole[0], whole[1], whole[2] / 2 + 1];
    let mut modes = vec![[f32::NAN; 2]; half.iter().product::<u64>() as usize];
    let mut back = vec![f32::NAN; input.len()];
    for (spectrum, part, real, own) in ranks.unwrap() {
        paste(&mut modes, half, &spectrum, &part);
        paste(&mut back, whole, &real, &own);
    }
    (modes, back)
}

const NO_HALO: [[u64; 2]; 3] = [[0; 2]; 3];

fn check(options: &Options, shape: [usize; 3]) {
    let (modes, back) = run(options, shape, [1, 1], NO_HALO);
    let truth = truth(&field(shape), shape);
    let points = shape.iter().product::<usize>() as f64;
    // The accuracy law of the design: relative error in the maximum norm.
    let tolerance = 2e-6 + 5e-7 * points.log10();
    let largest = truth.iter().map(|v| v.norm()).fold(0.0, f64::max);
    let error = modes
        .iter()
        .zip(&truth)
        .map(|(a, b)| (Complex::new(f64::from(a[0]), f64::from(a[1])) - b).norm())
        .fold(0.0, f64::max);
    assert!(error <= tolerance * largest, "{shape:?}: {} of {tolerance}", error / largest);
    let error = back.iter().zip(field(shape)).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
    assert!(error <= tolerance, "{shape:?} and back: {error}");
}

#[test]
fn sizes_of_every_kind_agree_with_rustfft() {
    let options = Options::from_env().unwrap();
    // Each length stands along a contiguous axis (real) and along strided ones (complex).
    for shape in [
        [1, 1, 1],
        [2, 3, 2],
        [3, 2, 1],
        [4, 5, 3],
        [5, 4, 7],
        [7, 6, 5],
        [6, 7, 4],
        [8, 9, 10],
        [10, 8, 9],
        [12, 14, 15],
        [15, 16, 18],
        [32, 30, 35],
        [20, 49, 64],
        [64, 27, 20],
        [2, 128, 96],
        [96, 1, 125],
        [125, 3, 128],
        [2, 243, 256],
        [256, 1, 210],
        [1, 512, 6],
        [1, 2, 1000],
        [1, 1024, 1],
        [2, 1, 2048],
        [4096, 1, 2],
        [1, 1, 4096],
    ] {
        check(&options, shape);
    }
}

#[test]
fn complex_fields_are_transformed_over_any_grid() {
    let options = Options::from_env().unwrap();
    let run = |shape: [usize; 3], parts: [usize; 2]| {
        let whole = shape.map(|n| n as u64);
        let parts_of_field = field([shape[0], shape[1], 2 * shape[2]]);
        let input: Vec<[f32; 2]> = parts_of_field.chunks(2).map(|v| [v[0], v[1]]).collect();
        let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
        let ranks = run_threads(grid.ranks(), |comm| {
            let gpu = Gpu::open(&options, comm.rank())?;
            let mut recorder = Recorder::new(&gpu)?;
            let mut lines = Lines::new(&comm, grid)?;
            let transform = Transform::<[f32; 2]>::new(&gpu, whole, grid, comm.rank())?;
            let layout = transform.field_layout();
            let array = gpu.array::<[f32; 2]>("field", layout.len())?;
            recorder.upload(&array, 0, &cut(&input, whole, &layout.own))?;
            let spectrum = transform.spectrum(&gpu)?;
            transform.forward(&mut recorder, &mut lines, &array, &layout, &spectrum)?;
            let modes = recorder.download(&spectrum, 0, spectrum.len())?;
            transform.inverse(&mut recorder, &mut lines, &spectrum, None, &array, &layout)?;
            Ok::<_, meshloom::Error>((
                transform.spectrum_part(),
                modes,
                layout.own,
                recorder.download(&array, 0, array.len())?,
            ))
        });
        let (mut modes, mut back) = (vec![[f32::NAN; 2]; input.len()], vec![[f32::NAN; 2]; input.len()]);
        for (spectrum, part, own, field) in ranks.unwrap() {
            paste(&mut modes, whole, &spectrum, &part);
            paste(&mut back, whole, &own, &field);
        }
        (input, modes, back)
    };
    for (shape, grids) in [([6, 10, 12], [[2, 1], [2, 2]]), ([7, 4, 9], [[5, 1], [1, 3]])] {
        let (input, modes, back) = run(shape, [1, 1]);
        let data = input.iter().map(|v| Complex::new(f64::from(v[0]), f64::from(v[1]))).collect();
        let truth = transformed(data, shape);
        let tolerance = 2e-6 + 5e-7 * (input.len() as f64).log10();
        let largest = truth.iter().map(|v| v.norm()).fold(0.0, f64::max);
        for (a, b) in modes.iter().zip(&truth) {
            assert!((Complex::new(f64::from(a[0]), f64::from(a[1])) - b).norm() <= tolerance * largest, "{shape:?}");
        }
        for (a, b) in back.iter().zip(&input) {
            assert!((a[0] - b[0]).abs() < 1e-6 && (a[1] - b[1]).abs() < 1e-6, "{shape:?} and back");
        }
        for parts in grids {
            let (_, others, returned) = run(shape, parts);
            assert!(others == modes && returned == back, "{shape:?} on {parts:?}");
        }
    }
}

#[test]
fn the_floor_suffices() {
    let options = Options { floor: true, ..Options::from_env().unwrap() };
    for shape in [[4, 18, 15], [64, 2, 128], [1, 1024, 1], [2, 1, 4096], [4096, 1, 1]] {
        check(&options, shape);
    }
}

#[test]
fn every_grid_gives_the_same_bits() {
    let options = Options::from_env().unwrap();
    for (shape, grids) in [
        ([9, 10, 12], vec![[2, 1], [3, 1], [1, 3], [2, 2], [3, 2]]),
        ([8, 8, 8], vec![[2, 1], [2, 2], [5, 1], [1, 4], [4, 2]]),
        ([3, 5, 7], vec![[5, 1], [1, 6], [4, 2]]),
        ([1, 1, 1], vec![[2, 1], [1, 2]]),
    ] {
        let alone = run(&options, shape, [1, 1], NO_HALO);
        for parts in grids {
            let halo = [[1, 2], [parts[1] as u64, 0], [0, 3]];
            assert!(run(&options, shape, parts, halo) == alone, "{shape:?} on {parts:?}");
        }
    }
}

#[test]
fn many_windows_give_the_same_bits() {
    let options = Options::from_env().unwrap();
    let windows = Options { window_bytes: Some(4096), ..options.clone() };
    for (shape, parts) in [([12, 9, 16], [1, 1]), ([16, 8, 15], [2, 1])] {
        assert!(run(&windows, shape, parts, NO_HALO) == run(&options, shape, [1, 1], NO_HALO), "{shape:?}");
    }
}

#[test]
fn checked_kernels_give_the_same_bits() {
    let options = Options::from_env().unwrap();
    let checked = Options { checked: true, ..options.clone() };
    assert!(run(&checked, [15, 8, 20], [2, 1], NO_HALO) == run(&options, [15, 8, 20], [1, 1], NO_HALO));
}

#[test]
fn a_derivative_on_load_is_exact_for_a_wave() {
    let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
    let (shape, grid) = ([8u64, 6, 10], Grid::new([1, 1], 1).unwrap());
    let size = [2.0 * std::f64::consts::PI; 3];
    let mut recorder = Recorder::new(&gpu).unwrap();
    let mut lines = Lines::new(&meshloom::comm::Communicator::solo(), grid).unwrap();
    let transform = Transform::<f32>::new(&gpu, shape, grid, 0).unwrap();
    let layout = transform.field_layout();
    let wave = |f: &dyn Fn(f64, f64) -> f64| -> Vec<f32> {
        let at = |i: usize| [i / 60, i / 10 % 6, i % 10];
        (0..480).map(|i| f(at(i)[0] as f64 * size[0] / 8.0, at(i)[2] as f64 * size[2] / 10.0) as f32).collect()
    };
    let real = gpu.array::<f32>("real", 480).unwrap();
    recorder.upload(&real, 0, &wave(&|x, z| (2.0 * x).sin() + (3.0 * z).cos())).unwrap();
    let spectrum = transform.spectrum(&gpu).unwrap();
    transform.forward(&mut recorder, &mut lines, &real, &layout, &spectrum).unwrap();
    let operator = Operator {
        constant: [0.0, 1.0],
        factor: &|axis, wave| if axis == 2 { if wave.nyquist { 0.0 } else { wave.k } } else { 1.0 },
        laplacian: None,
    };
    let derivative = Spectral::new(
        &mut recorder,
        &[operator.tables(shape, size, &transform.spectrum_part())],
        &transform.spectrum_part(),
    )
    .unwrap();
    transform.inverse(&mut recorder, &mut lines, &spectrum, Some(&derivative), &real, &layout).unwrap();
    let got = recorder.download(&real, 0, 480).unwrap();
    for (got, want) in got.iter().zip(wave(&|_, z| -3.0 * (3.0 * z).sin())) {
        assert!((got - want).abs() < 1e-5, "{got} {want}");
    }
    assert_eq!(lines.cost().sent, 0, "one rank sends nothing");
}
