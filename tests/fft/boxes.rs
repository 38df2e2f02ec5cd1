//! Transforms of fields in any boxes are, to the bit, those of one rank.

use meshloom::comm::{Communicator, run_threads};
use meshloom::exchange::GridComms;
use meshloom::fft::{Boxes, Distribution, FftError, Spec, Transform, TransformOptions, Value};
use meshloom::gpu::{Gpu, Options, Recorder};
use meshloom::grid::{Box3, Grid, LayoutError, bricks, extent, volume};

/// A number in a cell, different in all.
trait Number: Value + PartialEq + Sync {
    fn of(n: u64) -> Self;
    fn dot(a: &[Self], b: &[Self]) -> f64;
}

fn noise(n: u64) -> f32 {
    (n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 16_777_216.0 - 0.5
}

fn sum(products: impl Iterator<Item = (f32, f32)>) -> f64 {
    products.map(|(a, b)| f64::from(a) * f64::from(b)).sum()
}

impl Number for f32 {
    fn of(n: u64) -> Self {
        noise(n)
    }
    fn dot(a: &[Self], b: &[Self]) -> f64 {
        sum(a.iter().copied().zip(b.iter().copied()))
    }
}

impl Number for [f32; 2] {
    fn of(n: u64) -> Self {
        [noise(2 * n), noise(2 * n + 1)]
    }
    fn dot(a: &[Self], b: &[Self]) -> f64 {
        sum(a.iter().flatten().copied().zip(b.iter().flatten().copied()))
    }
}

/// Returns the elements of a box of each of the fields of `shape`.
fn cut<T: Copy>(all: &[T], shape: [u64; 3], part: &Box3) -> Vec<T> {
    let mut values = Vec::new();
    for field in all.chunks(shape.iter().product::<u64>() as usize) {
        for i in part[0].clone() {
            for j in part[1].clone() {
                let row = ((i * shape[1] + j) * shape[2]) as usize;
                values.extend_from_slice(&field[row + part[2].start as usize..row + part[2].end as usize]);
            }
        }
    }
    values
}

/// Returns the spectrum on one rank, and the field that comes back.
fn alone<T: Number>(options: &Options, spec: &Spec, input: &[T]) -> (Vec<T::Mode>, Vec<T>) {
    let gpu = Gpu::open(options, 0).unwrap();
    let grid = Grid::new([1, 1], 1).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let mut comms = GridComms::new(&Communicator::solo(), grid).unwrap();
    let transform = Transform::<T>::with(&gpu, spec, grid, 0, &TransformOptions::default()).unwrap();
    let layout = transform.field_layout();
    let (field, spectrum) = (transform.field(&gpu, &layout).unwrap(), transform.spectrum(&gpu).unwrap());
    recorder.upload(&field, 0, input).unwrap();
    transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum).unwrap();
    let modes = recorder.download(&spectrum, 0, spectrum.len()).unwrap();
    transform.inverse(&mut recorder, &mut comms, &spectrum, &field, &layout).unwrap();
    (modes, recorder.download(&field, 0, field.len()).unwrap())
}

/// The boxes before and after, the process grid of the transform between, and how many
/// redistributions that takes.
struct Case {
    cells: Vec<Box3>,
    modes: Vec<Box3>,
    grid: [usize; 2],
    moves: usize,
}

fn check<T: Number>(spec: &Spec, cases: &[Case])
where
    T::Mode: Number,
{
    let options = meshloom_sanitizer::options().unwrap();
    let cells = spec.cells.iter().product::<u64>() * spec.fields;
    let input: Vec<T> = (0..cells).map(T::of).collect();
    let (modes, back) = alone(&options, spec, &input);
    for case in cases {
        let grid = Grid::new(case.grid, case.cells.len()).unwrap();
        let done = run_threads(grid.ranks(), |comm| {
            let gpu = Gpu::open(&options, comm.rank())?;
            let mut recorder = Recorder::new(&gpu)?;
            // Messages of a few elements, so that exchanges have many.
            let mut comms = GridComms::new(&comm, grid)?.with_chunks(1000, 2);
            let boxes = Boxes { field: case.cells.clone(), spectrum: case.modes.clone() };
            let options = TransformOptions::default().boxes(boxes);
            let transform = Transform::<T>::with(&gpu, spec, grid, comm.rank(), &options)?;
            assert_eq!(transform.redistributions(), case.moves, "{spec:?} on {grid}");
            assert_eq!(transform.field_part(), case.cells[comm.rank()]);
            assert_eq!(transform.spectrum_part(), case.modes[comm.rank()]);

            let layout = transform.field_layout();
            let (field, spectrum) = (transform.field(&gpu, &layout)?, transform.spectrum(&gpu)?);
            let mine = cut(&input, spec.cells, &transform.field_part());
            recorder.upload(&field, 0, &mine)?;
            transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?;
            let got = recorder.download(&spectrum, 0, spectrum.len())?;
            assert!(got == cut(&modes, spec.spectrum(), &transform.spectrum_part()), "{spec:?}, {comm:?}");
            assert!(recorder.download(&field, 0, field.len())? == mine, "the field was not left as it was");

            let returned = transform.field(&gpu, &layout)?;
            transform.inverse(&mut recorder, &mut comms, &spectrum, &returned, &layout)?;
            let theirs = cut(&back, spec.cells, &transform.field_part());
            assert!(recorder.download(&returned, 0, returned.len())? == theirs, "{spec:?}, {comm:?} and back");

            // <forward(x), y> = <x, adjoint(y)>, and the same of the inverse: sums over this rank.
            let other: Vec<T::Mode> = cut(
                &(0..modes.len() as u64).map(T::Mode::of).collect::<Vec<_>>(),
                spec.spectrum(),
                &transform.spectrum_part(),
            );
            let (y, z) = (transform.spectrum(&gpu)?, transform.field(&gpu, &layout)?);
            recorder.upload(&y, 0, &other)?;
            transform.forward_adjoint(&mut recorder, &mut comms, &y, &z, &layout)?;
            let z = recorder.download(&z, 0, z.len())?;
            let there = [T::Mode::dot(&got, &other), T::dot(&mine, &z)];
            let w = transform.field(&gpu, &layout)?;
            transform.inverse(&mut recorder, &mut comms, &y, &w, &layout)?;
            let w = recorder.download(&w, 0, w.len())?;
            let v = transform.spectrum(&gpu)?;
            transform.inverse_adjoint(&mut recorder, &mut comms, &field, &layout, &v)?;
            let v = recorder.download(&v, 0, v.len())?;
            Ok::<_, meshloom::Error>([there, [T::dot(&w, &mine), T::Mode::dot(&other, &v)]])
        });
        let done = done.unwrap_or_else(|error| panic!("{spec:?} on {grid}: {error}"));
        let total = |i: usize| [0, 1].map(|side| done.iter().map(|sums| sums[i][side]).sum::<f64>());
        for [a, b] in [total(0), total(1)] {
            assert!((a - b).abs() < 1e-4 * a.abs().max(1.0), "{spec:?} on {grid}: {a} and {b}");
        }
    }
}

/// Rank `r` has box `(r + by) % n`.
fn turned(mut boxes: Vec<Box3>, by: usize) -> Vec<Box3> {
    boxes.rotate_left(by);
    boxes
}

#[test]
fn owners_may_be_shuffled() {
    let shape = [11, 11, 22];
    let (real, complex) = (Spec::of::<f32>(shape), Spec::of::<[f32; 2]>(shape));
    let case = |spec: &Spec, grid: [usize; 2]| Case {
        cells: turned(bricks(spec.cells, [3, 2, 1]), 1),
        modes: turned(bricks(spec.spectrum(), [1, 2, 3]), 3),
        grid,
        moves: 2,
    };
    check::<f32>(&real, &[case(&real, [3, 2]), case(&real, [6, 1])]);
    check::<[f32; 2]>(&complex, &[case(&complex, [2, 3])]);
}

#[test]
fn bricks_are_transformed() {
    let shape = [9, 10, 11];
    for spec in [Spec::of::<f32>(shape).fields(2), Spec::of::<f32>(shape).natural()] {
        let case = |parts: [usize; 3], grid: [usize; 2]| Case {
            cells: bricks(spec.cells, parts),
            modes: bricks(spec.spectrum(), parts),
            grid,
            moves: 2,
        };
        let natural = spec.distribution == Distribution::Natural;
        // Pencils along the last axis are what the transform itself wants, and of a natural
        // spectrum also what it gives.
        let pencils = Case { moves: if natural { 0 } else { 1 }, ..case([3, 2, 1], [3, 2]) };
        check::<f32>(&spec, &[case([2, 2, 2], [4, 2]), pencils]);
    }
    let spec = Spec::of::<[f32; 2]>(shape).axes([true, false, true]);
    let boxes = |parts: [usize; 3]| bricks(shape, parts);
    check::<[f32; 2]>(&spec, &[Case { cells: boxes([1, 3, 2]), modes: boxes([3, 2, 1]), grid: [2, 3], moves: 2 }]);
}

#[test]
fn slabs_become_pencils() {
    let spec = Spec::of::<f32>([8, 6, 10]).points([16, 6, 12]).modes([5, 4, 8]);
    let (cells, modes) = (bricks(spec.cells, [4, 1, 1]), bricks(spec.spectrum(), [2, 1, 2]));
    check::<f32>(&spec, &[Case { cells, modes, grid: [4, 1], moves: 1 }]);
}

#[test]
fn boxes_may_be_empty() {
    let shape = [5, 4, 6];
    let spec = Spec::of::<[f32; 2]>(shape);
    let whole = [0..5, 0..4, 0..6];
    let none = [0..0, 0..0, 0..0];
    let cells = vec![none.clone(), none.clone(), whole, none.clone()];
    let modes = vec![[0..2, 0..4, 0..6], none, [2..5, 0..4, 0..3], [2..5, 0..4, 3..6]];
    check::<[f32; 2]>(&spec, &[Case { cells, modes, grid: [2, 2], moves: 2 }]);
}

#[test]
fn boxes_that_do_not_tile_are_refused() {
    let gpu = Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap();
    let (grid, spec) = (Grid::new([1, 1], 1).unwrap(), Spec::of::<f32>([4, 4, 4]));
    let of = |cells: &[Box3], modes: &[Box3]| {
        let boxes = Boxes { field: cells.to_vec(), spectrum: modes.to_vec() };
        let options = TransformOptions::default().boxes(boxes);
        Transform::<f32>::with(&gpu, &spec, grid, 0, &options).err()
    };
    let (cells, modes) = (bricks([4; 3], [1; 3]), bricks([4, 4, 3], [1; 3]));
    assert_eq!(of(&cells, &modes), None);
    // The boxes of a spectrum are boxes of modes: three along the half axis.
    let outside = LayoutError::Outside { list: "after", rank: 0, part: cells[0].clone(), shape: [4, 4, 3] };
    assert_eq!(of(&cells, &cells), Some(FftError::Layout(outside)));
    let gap = LayoutError::Uncovered { list: "before", cells: 16, first: [0, 0, 3] };
    assert_eq!(of(&modes, &modes), Some(FftError::Layout(gap)));
    let ranks = LayoutError::Ranks { from: 2, to: 1, rank: 0 };
    assert_eq!(of(&bricks([4; 3], [2, 1, 1]), &modes), Some(FftError::Layout(ranks)));
}

#[test]
fn arrays_of_the_wrong_length_are_refused() {
    let gpu = Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap();
    let mut comms = GridComms::new(&Communicator::solo(), Grid::new([1, 1], 1).unwrap()).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let spec = Spec::of::<f32>([4, 4, 4]);
    let (cells, modes) = (bricks([4; 3], [1; 3]), bricks([4, 4, 3], [1; 3]));
    let options = TransformOptions::default().boxes(Boxes { field: cells.clone(), spectrum: modes.clone() });
    let transform = Transform::<f32>::with(&gpu, &spec, comms.grid(), 0, &options).unwrap();
    assert_eq!((transform.redistributions(), volume(&cells[0]), extent(&modes[0])), (0, 64, [4, 4, 3]));
    let (short, spectrum) = (gpu.array::<f32>("short", 63).unwrap(), transform.spectrum(&gpu).unwrap());
    let layout = transform.field_layout();
    let error = transform.forward(&mut recorder, &mut comms, &short, &layout, &spectrum).unwrap_err().to_string();
    assert!(error.contains("63") && error.contains("64"), "{error}");
}
