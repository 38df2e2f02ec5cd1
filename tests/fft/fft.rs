//! Distributed transforms on devices against rustfft in f64, and against themselves on other
//! process grids.
//!
//! Lengths of all kinds are in `fft_lengths`; here are shapes, distributions, and all that happens
//! on the way. `MESHLOOM_LONG_TESTS=1` adds cases whose kernels take long to compile.

use std::f64::consts::PI;

use super::fourier::*;
use meshloom::Error;
use meshloom::comm::{Communicator, run_threads};
use meshloom::exchange::{ExchangeError, GridComms};
use meshloom::fft::{
    FftError, Filter, FilterOptions, Norm, Operator, Plan, Spec, Spectral, Transform, TransformCallbacks,
    TransformOptions, TransformTuning, Tuner, Value, Values,
};
use meshloom::gpu::{Array, Callback, DeviceError, Gpu, Options, Profile, Recorder};
use meshloom::grid::{FieldLayout, Grid, LayoutError};
use proptest::prelude::*;

fn complex(cells: [u64; 3]) -> Spec {
    Spec::of::<[f32; 2]>(cells)
}

fn real(cells: [u64; 3]) -> Spec {
    Spec::of::<f32>(cells)
}

fn alone(gpu: &Gpu) -> (Recorder, GridComms, Grid) {
    let grid = Grid::new([1, 1], 1).unwrap();
    (Recorder::new(gpu).unwrap(), GridComms::new(&Communicator::solo(), grid).unwrap(), grid)
}

/// Returns all grids of `ranks` ranks.
fn grids(ranks: usize) -> Vec<[usize; 2]> {
    (1..=ranks).filter(|p| ranks.is_multiple_of(*p)).map(|p| [p, ranks / p]).collect()
}

/// Random fields and spectra give the same bits in another setup as in the plain one.
pub fn same_as_alone<T: Cell>(spec: &Spec, setups: &[Setup], what: &str) {
    let spec = of::<T>(spec);
    let (field, spectrum) = (random::<T>(cells(&spec), 1), random::<T::Mode>(modes(&spec), 2));
    let (there, back) = check::<T>(&Setup::default(), &spec, what);
    for setup in setups {
        let what = format!("{what} on {:?}, {spec:?}", setup.parts);
        same(&forward(setup, &spec, &field), &there, &format!("{what}: spectrum"));
        same(&inverse::<T>(setup, &spec, &spectrum), &back, &format!("{what}: field"));
    }
}

// -------------------------------------------------------------------- shapes

#[test]
fn shapes_of_every_kind_agree_with_rustfft() {
    let shapes = [
        [8, 8, 8],
        [16, 12, 6],
        [15, 11, 5],
        [9, 10, 11],
        [7, 8, 9],
        [17, 13, 11],
        [31, 31, 30],
        [32, 16, 8],
        [96, 80, 60],
        [1, 24, 10],
        [1, 1, 36],
        [1, 1, 1],
        [2, 1, 3],
    ];
    for shape in shapes {
        check::<[f32; 2]>(&Setup::default(), &complex(shape), "complex");
        check::<f32>(&Setup::default(), &real(shape), "real");
    }
}

#[test]
fn the_floor_suffices() {
    let floor =
        Setup { options: Options { floor: true, ..meshloom_sanitizer::options().unwrap() }, ..Setup::on([2, 1]) };
    check::<f32>(&floor, &real([4, 18, 16]), "the floor");
    check::<[f32; 2]>(&floor, &complex([16, 18, 4]), "the floor");
}

#[test]
fn double_precision_keeps_its_law_where_there_is_any() {
    let setup = Setup::default();
    if !setup.gpu().capabilities().f64 {
        println!("skipped: {} has no f64", setup.gpu().info().name);
        return;
    }
    for shape in [[6, 10, 12], [9, 4, 37]] {
        check::<[f64; 2]>(&setup, &complex(shape), "double");
        check::<f64>(&setup, &real(shape), "double");
    }
    let spec = real([6, 10, 12]).norm(Norm::Ortho).fields(2);
    let others = [Setup { halo: [[1, 0], [0, 1], [2, 1]], ..Setup::on([2, 2]) }];
    same_as_alone::<f64>(&spec, &others, "double");
}

#[test]
fn a_device_without_double_precision_says_so() {
    let gpu = Gpu::open(&Options { floor: true, ..meshloom_sanitizer::options().unwrap() }, 0).unwrap();
    let grid = Grid::new([1, 1], 1).unwrap();
    assert!(matches!(Transform::<f64>::new(&gpu, [4, 4, 4], grid, 0), Err(FftError::NoDouble { .. })));
    let (_, comms, _) = alone(&gpu);
    let callback = Callback::new("fn on_mode(v: Complex, at: vec4<u32>, r: u32) -> Complex { return v; }");
    let spec = Spec::of::<[f64; 2]>([4, 4, 4]);
    let filter = Filter::<[f64; 2]>::new(&gpu, &spec, &comms, &callback, &FilterOptions::default());
    assert!(matches!(filter, Err(FftError::NoDouble { .. })));
}

// -------------------------------------------------------------------- distributions

#[test]
fn every_grid_gives_the_same_bits() {
    // The last has fewer planes than ranks.
    for shape in [[9, 10, 12], [8, 6, 5], [3, 2, 4]] {
        let setups: Vec<_> = [2, 3, 4, 6, 7, 8].into_iter().flat_map(grids).map(Setup::on).collect();
        let ghosts = Setup { halo: [[1, 2], [3, 0], [0, 3]], ..Setup::on([3, 2]) };
        let setups: Vec<_> = setups.into_iter().chain([ghosts.clone()]).collect();
        same_as_alone::<f32>(&real(shape), &setups, "real");
        same_as_alone::<[f32; 2]>(&complex(shape), &setups[..8], "complex");
        same_as_alone::<[f32; 2]>(&complex(shape), &[ghosts], "complex with ghosts");
    }
}

/// Blocks of transposes have other lengths than two neighboring ones, some ranks no planes, and
/// both sides of a pass are in blocks or one is.
#[test]
fn unequal_shares_change_no_bit() {
    let setups = |ghosts| {
        [
            Setup { halo: ghosts, ..Setup::with_shares([3, 1], &[5.0, 1.0, 2.0]) },
            Setup { halo: ghosts, ..Setup::with_shares([1, 3], &[1.0, 100.0, 30.0]) },
            Setup { halo: ghosts, ..Setup::with_shares([2, 2], &[4.0, 2.0, 2.0, 1.0]) },
            Setup { halo: ghosts, ..Setup::with_shares([3, 2], &[4.0, 4.0, 1.0, 1.0, 1.0, 1.0]) },
        ]
    };
    let [plain, ghosts] = [setups(NO_HALO), setups([[1, 2], [3, 0], [0, 3]])];
    for shape in [[9, 10, 12], [2, 3, 4]] {
        same_as_alone::<f32>(&real(shape), &plain, "real");
    }
    same_as_alone::<[f32; 2]>(&complex([9, 10, 12]), &ghosts[..3], "complex with ghosts");
    same_as_alone::<f32>(&real([9, 10, 12]).fields(2).modes([8, 9, 6]).natural(), &plain[2..3], "a natural batch");
    same_as_alone::<[f32; 2]>(&complex([5, 6, 7]).points([8, 12, 11]), &plain[3..], "padded");
    same_as_alone::<[f32; 2]>(&complex([9, 8, 7]).axes([true, false, true]), &plain[3..], "two axes");
    // Lines of two passes, each with one side in blocks.
    same_as_alone::<[f32; 2]>(&complex([2, 8192, 3]), &plain[1..2], "a long line");
}

/// On two slabs, between which as much is exchanged whatever they do.
#[test]
fn ranks_that_transform_in_another_direction_or_order_are_told() {
    let spec = complex([8; 3]);
    let said = |specs: [&Spec; 2], inverse: [bool; 2]| {
        let error = run_threads(2, |comm| {
            let (rank, gpu) = (comm.rank(), Gpu::open(&meshloom_sanitizer::options()?, 0)?);
            let mut comms = GridComms::new(&comm, Grid::new([2, 1], 2)?)?;
            let options = TransformOptions::default();
            let transform = Transform::<[f32; 2]>::with(&gpu, specs[rank], comms.grid(), rank, &options)?;
            let (mut recorder, layout) = (Recorder::new(&gpu)?, transform.field_layout());
            let (field, spectrum) = (transform.field(&gpu, &layout)?, transform.spectrum(&gpu)?);
            match inverse[rank] {
                true => transform.inverse(&mut recorder, &mut comms, &spectrum, &field, &layout)?,
                false => transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?,
            }
            Ok::<_, Error>(())
        });
        error.expect_err("ranks do other things").to_string()
    };
    let text = said([&spec; 2], [false, true]);
    for direction in ["called Transform::forward of 8x8x8 Complex", "called Transform::inverse of 8x8x8 Complex"] {
        assert!(text.contains(direction), "{text}");
    }
    let text = said([&spec, &spec.clone().norm(Norm::Ortho)], [true, true]);
    assert_eq!(text.matches("Transform::inverse of 8x8x8 Complex Single with settings").count(), 2, "{text}");
}

#[test]
fn meshes_of_one_and_two_axes_may_be_cut() {
    for cells in [[1, 12, 10], [1, 1, 24]] {
        let setups: Vec<_> = [2, 3, 4].into_iter().flat_map(grids).map(Setup::on).collect();
        same_as_alone::<f32>(&real(cells), &setups, "real");
        same_as_alone::<[f32; 2]>(&complex(cells), &setups, "complex");
    }
}

#[test]
fn pieces_and_chunks_change_no_bit() {
    let tuning = TransformTuning::of(&Setup::default().gpu());
    let mut setups = Vec::new();
    for parts in [[2, 1], [1, 3], [2, 2]] {
        for pieces in [1, 3, 64] {
            setups.push(Setup { tuning: Some(TransformTuning { pieces, ..tuning }), ..Setup::on(parts) });
        }
    }
    setups.push(Setup { chunk: Some(4), ..Setup::on([2, 2]) });
    setups.push(Setup {
        chunk: Some(1000),
        tuning: Some(TransformTuning { pieces: 3, ..tuning }),
        ..Setup::on([3, 2])
    });
    same_as_alone::<f32>(&real([9, 10, 12]), &setups, "pieces");
    same_as_alone::<[f32; 2]>(&complex([8, 6, 5]).fields(2).natural(), &setups, "pieces");
    // Several passes along an axis while pieces arrive and leave.
    let long = [Setup { tuning: Some(TransformTuning { pieces: 3, ..tuning }), ..Setup::on([2, 1]) }];
    same_as_alone::<[f32; 2]>(&complex([8192, 3, 3]), &long, "a long axis");
}

#[test]
fn windows_and_checks_change_no_bit() {
    let options = meshloom_sanitizer::options().unwrap();
    let windows = Options { window_bytes: Some(4096), ..options.clone() };
    let checked = Options { checked: true, poison: true, ..options };
    let with = |options: &Options, parts| Setup { options: options.clone(), ..Setup::on(parts) };
    let setups = [with(&windows, [1, 1]), with(&windows, [2, 2]), with(&checked, [1, 1]), with(&checked, [2, 1])];
    same_as_alone::<f32>(&real([9, 10, 12]), &setups, "real");
    same_as_alone::<[f32; 2]>(&complex([8, 6, 37]), &setups, "complex");
}

#[test]
fn lines_inside_planes_bind_one_window_of_each_array() {
    // 5 and more windows an array, of which the floor binds 8 in all.
    let options = Options { window_bytes: Some(1024), floor: true, ..meshloom_sanitizer::options().unwrap() };
    let with = |parts, halo| Setup { options: options.clone(), halo, ..Setup::on(parts) };
    let setups = [with([1, 1], NO_HALO), with([1, 1], [[1, 2], [0, 1], [0, 0]])];
    let axes = [false, true, true];
    same_as_alone::<[f32; 2]>(&complex([24, 4, 16]).axes(axes), &setups, "complex");
    same_as_alone::<f32>(&real([24, 4, 14]).axes(axes).fields(2), &setups, "real");
    // Planes of 528 and 576 bytes, which begin anywhere in a window.
    same_as_alone::<f32>(&real([9, 6, 22]).axes(axes), &setups[..1], "real");
    // A batch of fields that are less than a window each along the first axis, too.
    same_as_alone::<[f32; 2]>(&complex([5, 3, 6]).fields(9), &setups[..1], "fields");
    in_place_with::<f32>(&setups[0], &real([24, 4, 14]).axes(axes));
    in_place_with::<[f32; 2]>(&setups[0], &complex([24, 4, 16]).axes(axes));
    // Lines along the first axis cross all windows.
    let gpu = setups[0].gpu();
    let (mut recorder, mut comms, grid) = alone(&gpu);
    let transform = Transform::<[f32; 2]>::new(&gpu, [24, 4, 16], grid, 0).unwrap();
    let layout = transform.field_layout();
    let (field, spectrum) = (transform.field(&gpu, &layout).unwrap(), transform.spectrum(&gpu).unwrap());
    let error = transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum).unwrap_err();
    assert!(matches!(error, ExchangeError::Device(DeviceError::TooManyWindows { .. })), "{error}");
}

/// Several passes work in place: the first reads all into scratch that stages share, and the last
/// writes over what the first has read.
#[test]
fn stages_of_several_passes_work_in_place() {
    // Tiles of full sectors need two passes along x and y; long lines do on any device.
    let tiles = Setup { tuning: Some(TransformTuning::profile(Profile::Gpu)), ..Setup::default() };
    let alone = Setup::default();
    for (setup, cells) in [(&tiles, [1100, 1100, 1]), (&alone, [2, 10_000, 2])] {
        check::<[f32; 2]>(setup, &complex(cells), "several passes");
    }
    // Two real cells are as many as their modes, and half as long.
    check::<f32>(&alone, &real([2, 10_000, 2]), "several passes");
    in_place::<f32>([1, 1], &real([2, 10_000, 2]));
    in_place::<[f32; 2]>([1, 1], &complex([2, 10_000, 2]));
}

/// Copies restore the natural order, over more points than a driver lets one loop take (65,535
/// rounds of 8 invocations).
#[test]
fn copies_of_long_axes_are_whole() {
    let spec = complex([1, 600_000, 2]).natural();
    let input = random::<[f32; 2]>(cells(&spec), 1);
    let there = forward::<[f32; 2]>(&Setup::on([1, 2]), &spec, &input);
    same(&there, &forward::<[f32; 2]>(&Setup::default(), &spec, &input), "natural, long");
}

#[test]
fn any_axes_may_be_transformed() {
    for mask in 1..8u8 {
        let axes = [0, 1, 2].map(|a| mask >> a & 1 == 1);
        let setups = [[2, 1], [1, 2], [2, 2]].map(Setup::on);
        let ghosts = Setup { halo: [[0, 1], [1, 1], [2, 0]], ..Setup::on([2, 2]) };
        let setups: Vec<_> = setups.into_iter().chain([ghosts]).collect();
        same_as_alone::<[f32; 2]>(&complex([8, 6, 5]).axes(axes), &setups, "some axes");
        same_as_alone::<[f32; 2]>(&complex([8, 6, 5]).axes(axes).natural(), &setups, "some axes");
        if axes[2] {
            same_as_alone::<f32>(&real([9, 10, 12]).axes(axes), &setups, "some axes");
            same_as_alone::<f32>(&real([9, 10, 12]).axes(axes).natural(), &setups[2..], "some axes");
        }
    }
    // No axis at all is a copy.
    let none = complex([8, 6, 5]).axes([false; 3]);
    same_as_alone::<[f32; 2]>(&none, &[Setup::on([2, 2])], "no axis");
}

#[test]
fn a_natural_spectrum_is_cut_as_the_field() {
    for parts in [[1, 1], [3, 1], [1, 3], [2, 2], [4, 2]] {
        let setup = Setup::on(parts);
        for spec in [real([9, 10, 12]), real([9, 10, 12]).fields(2).modes([8, 9, 6])] {
            let input = random::<f32>(cells(&spec), 1);
            let transposed = forward::<f32>(&setup, &spec, &input);
            let natural = forward::<f32>(&setup, &spec.clone().natural(), &input);
            same(&natural, &transposed, "natural");
            let parts = on_ranks::<f32, _>(&setup, &spec.clone().natural(), |rank| {
                let grid = rank.comms.grid();
                (rank.transform.spectrum_part(), grid.part(spec.spectrum(), rank.comms.rank()))
            });
            assert!(parts.iter().all(|(have, want)| have == want), "{parts:?}");
        }
    }
}

#[test]
fn fields_of_a_batch_are_transformed_as_one() {
    for parts in [[1, 1], [2, 2]] {
        let setup = Setup { halo: [[1, 0], [0, 2], [1, 1]], ..Setup::on(parts) };
        let (one, three) = (real([9, 10, 12]), real([9, 10, 12]).fields(3));
        let (field, spectrum) = (random::<f32>(cells(&three), 1), random::<[f32; 2]>(modes(&three), 2));
        let single: Vec<_> = field.chunks(1080).flat_map(|f| forward(&setup, &one, f)).collect();
        same(&forward(&setup, &three, &field), &single, "three fields");
        let single: Vec<_> = spectrum.chunks(90 * 7).flat_map(|s| inverse::<f32>(&setup, &one, s)).collect();
        same(&inverse::<f32>(&setup, &three, &spectrum), &single, "three spectra");
    }
}

// -------------------------------------------------------------------- norms, padding, truncation

#[test]
fn norms_put_the_factor_where_they_say() {
    for norm in [Norm::Backward, Norm::Ortho, Norm::Forward] {
        check::<f32>(&Setup::on([2, 1]), &real([9, 10, 12]).norm(norm), "norm");
        check::<[f32; 2]>(&Setup::default(), &complex([8, 6, 5]).axes([true, false, true]).norm(norm), "norm");
    }
}

#[test]
fn fields_are_padded_and_spectra_cut() {
    // Every order of every pass is different text.
    let grids = [[2, 2], [3, 2], [2, 1]].map(Setup::on);
    let grids = if long_tests() { &grids[..] } else { &grids[..2] };
    let specs = |new: fn([u64; 3]) -> Spec| {
        [
            // Zeros after the field; the 3/2 rule both ways; odd and even; both at once; a batch; a
            // single mode.
            new([6, 5, 7]).points([12, 10, 14]),
            new([12, 9, 12]).modes([8, 6, 8]),
            new([12, 9, 9]).modes([7, 5, 8]),
            new([5, 6, 7]).points([8, 12, 11]).modes([4, 5, 6]).fields(2).norm(Norm::Ortho),
            new([6, 5, 7]).points([6, 5, 9]).modes([1, 1, 1]),
            new([6, 5, 8]).modes([2, 2, 2]),
        ]
    };
    for spec in specs(complex) {
        same_as_alone::<[f32; 2]>(&spec, grids, "padded or cut");
    }
    for spec in specs(real) {
        same_as_alone::<f32>(&spec, grids, "padded or cut");
    }
    same_as_alone::<f32>(&real([12, 9, 12]).modes([8, 6, 8]).natural(), grids, "cut, natural");
    same_as_alone::<[f32; 2]>(&complex([37, 2, 3]).modes([20, 2, 3]), grids, "a convolution");
    same_as_alone::<f32>(&real([2, 2, 30]).points([2, 2, 37]), grids, "a convolution");
    // Lines of two passes.
    same_as_alone::<f32>(&real([1, 2, 5000]).points([1, 2, 8192]).modes([1, 2, 3000]), &[], "a long line");
    if long_tests() {
        same_as_alone::<[f32; 2]>(
            &complex([1, 2, 5000]).points([1, 2, 8192]).modes([1, 2, 3000]),
            grids,
            "a long line",
        );
    }
}

#[test]
fn the_unpaired_mode_of_a_cut_spectrum_is_zero_both_ways() {
    let spec = complex([1, 1, 12]).modes([1, 1, 8]);
    let modes = forward::<[f32; 2]>(&Setup::default(), &spec, &random(12, 1));
    assert_eq!(modes[4], [0.0; 2]);
    assert!(modes.iter().enumerate().all(|(i, &v)| i == 4 || v != [0.0; 2]));
    let mut only = vec![[0.0f32; 2]; 8];
    only[4] = [1.0, 2.0];
    let field = inverse::<[f32; 2]>(&Setup::default(), &spec, &only);
    assert!(field.iter().all(|v| *v == [0.0; 2]));
}

#[test]
fn a_padded_product_is_a_linear_convolution() {
    // Along all axes, with half as many zeros as cells or more.
    let spec = complex([4, 5, 6]).points([8, 9, 12]);
    let gpu = Setup::default().gpu();
    let (a, b) = (random::<[f32; 2]>(120, 1), random::<[f32; 2]>(120, 2));
    // The spectrum of one is the array of a callback for the other.
    let spectrum = forward::<[f32; 2]>(&Setup::default(), &spec, &b);
    let (mut recorder, mut comms, _) = alone(&gpu);
    let kernel = gpu.array::<[f32; 2]>("kernel", spectrum.len() as u64).unwrap();
    recorder.upload(&kernel, 0, &spectrum).unwrap();
    let text = "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
        return multiply(value, load_other((at.x * 9u + at.y) * 12u + at.z));
    }";
    let callback = Callback::new(text).read("other", &kernel);
    let filter = Filter::<[f32; 2]>::new(&gpu, &spec, &comms, &callback, &FilterOptions::default()).unwrap();
    let got = filtered(&filter, &mut recorder, &mut comms, &a, [1, 1], NO_HALO);
    let at = |v: &[[f32; 2]], i: [usize; 3]| v[(i[0] * 5 + i[1]) * 6 + i[2]].value();
    let mut want = Vec::new();
    for x in 0..4 {
        for y in 0..5 {
            for z in 0..6 {
                let mut sum = C::default();
                for i in 0..=x {
                    for j in 0..=y {
                        sum += (0..=z).map(|k| at(&a, [i, j, k]) * at(&b, [x - i, y - j, z - k])).sum::<C>();
                    }
                }
                want.push(sum);
            }
        }
    }
    close(&got, &want, 4.0 * tolerance(&spec), "a linear convolution");
}

// -------------------------------------------------------------------- in place

/// In place and out of place, forward and inverse.
fn in_place<T: Cell>(parts: [usize; 2], spec: &Spec) {
    in_place_with::<T>(&Setup::on(parts), spec);
}

fn in_place_with<T: Cell>(setup: &Setup, spec: &Spec) {
    let spec = of::<T>(spec);
    let what = format!("in place on {:?}: {spec:?}", setup.parts);
    let (field, spectrum) = (random::<T>(cells(&spec), 1), random::<T::Mode>(modes(&spec), 2));
    let ranks = on_ranks::<T, _>(setup, &spec, |rank| {
        rank.layout = rank.transform.in_place_layout();
        let array = rank.transform.in_place(rank.gpu).unwrap();
        let seen: Array<T> = array.cast().unwrap();
        let upload = rank.field(&field);
        let len = upload.len();
        rank.recorder.copy(&upload, 0, &seen, 0, len).unwrap();
        rank.transform.forward_in_place(&mut rank.recorder, &mut rank.comms, &array).unwrap();
        let mut there = rank.download(&array);
        let part = cut(&spectrum, spec.spectrum(), &rank.transform.spectrum_part());
        there.truncate(part.len());
        rank.recorder.upload(&array, 0, &part).unwrap();
        rank.transform.inverse_in_place(&mut rank.recorder, &mut rank.comms, &array).unwrap();
        // What lies between rows is not the field's.
        let all = rank.download(&seen);
        let layout = rank.layout.clone();
        let own = [0, 1, 2].map(|a| 0..layout.own[a].end - layout.own[a].start);
        let back = cut(&all[..len as usize], layout.shape(), &own);
        (rank.transform.spectrum_part(), there, layout.own, back)
    });
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for (part, modes, own, cells) in ranks {
        there.push((part, modes));
        back.push((own, cells));
    }
    let there = gathered(spec.spectrum(), spec.fields, there);
    same(&there, &forward(&Setup::default(), &spec, &field), &what);
    let back = gathered(spec.cells, spec.fields, back);
    same(&back, &inverse::<T>(&Setup::default(), &spec, &spectrum), &what);
}

#[test]
fn transforms_in_place_give_the_same_bits() {
    for parts in [[1, 1], [4, 1], [2, 2], [1, 4]] {
        in_place::<f32>(parts, &real([9, 10, 12]));
        in_place::<f32>(parts, &real([8, 6, 5]).fields(2));
        in_place::<[f32; 2]>(parts, &complex([8, 6, 5]));
        in_place::<f32>(parts, &real([9, 10, 12]).natural());
    }
    in_place::<f32>([1, 1], &real([9, 10, 12]).axes([false, false, true]));
    in_place::<f32>([2, 2], &real([9, 10, 12]).axes([false, false, true]));
    in_place::<f32>([1, 1], &real([2, 1, 8192]));
    in_place::<[f32; 2]>([1, 1], &complex([8, 6, 5]).axes([false; 3]));
    in_place::<[f32; 2]>([2, 2], &complex([8, 6, 5]).axes([true, false, false]).natural());
    if Setup::default().gpu().capabilities().f64 {
        in_place::<f64>([1, 1], &real([6, 10, 12]));
    }
}

// -------------------------------------------------------------------- callbacks

/// A weight for a place, the same in WGSL and here.
const WEIGHT: &str = "fn NAME_weight(at: vec4<u32>) -> Real {
    return 1.0f + 0.5f * Real(at.x) - 0.25f * Real(at.y) + 0.125f * Real(at.z) + 2.0f * Real(at.w);
}";

fn weight(at: [u64; 4]) -> f64 {
    let [x, y, z, w] = at.map(|n| n as f64);
    1.0 + 0.5 * x - 0.25 * y + 0.125 * z + 2.0 * w
}

/// `value` at each place times its weight and a constant.
fn weighted(data: &[C], shape: [u64; 3], factor: C) -> Vec<C> {
    let at = |i: u64| [i / shape[2] / shape[1] % shape[0], i / shape[2] % shape[1], i % shape[2]];
    let volume = shape.iter().product::<u64>();
    let value = |(i, v): (usize, &C)| {
        let (i, [x, y, z]) = (i as u64, at(i as u64));
        v * factor * weight([x, y, z, i / volume])
    };
    data.iter().enumerate().map(value).collect()
}

meshloom::kernel_params! { struct A { a_by: f32 } }
meshloom::kernel_params! { struct B { b_by: f32 } }
meshloom::kernel_params! { struct C_ { c_by: f32 } }
meshloom::kernel_params! { struct D { d_by: f32 } }
meshloom::kernel_params! { struct User { user_by: f32 } }
meshloom::kernel_params! { struct Shifted { user_to: f32, user_by: [f32; 4] } }
meshloom::kernel_params! { struct Large { user_by: [[f32; 4]; 7] } }

fn callback(name: &str, kind: &str, function: &str) -> Callback {
    let text = format!(
        "{}\nfn {function}(value: {kind}, at: vec4<u32>{}) -> {kind} {{ return {}; }}",
        WEIGHT.replace("NAME", name),
        if function == "on_mode" { ", result: u32" } else { "" },
        if function == "on_mode" {
            format!("multiply(value, Complex({name}_weight(at), 0.0f)) * params.{name}_by")
        } else {
            format!("value * {name}_weight(at) * params.{name}_by")
        }
    );
    let callback = Callback::new(text);
    match name {
        "a" => callback.params(&A { a_by: 0.5 }),
        "b" => callback.params(&B { b_by: 0.5 }),
        "c" => callback.params(&C_ { c_by: 0.5 }),
        _ => callback.params(&D { d_by: 0.5 }),
    }
}

fn callbacks_see_global_places<T: Cell>(spec: &Spec) {
    let spec = of::<T>(spec);
    let kind = if T::VALUES == Values::Real { "Real" } else { "Complex" };
    let (load, store) = (callback("a", kind, "on_load"), callback("b", kind, "on_store"));
    let (there, back) = (callback("c", "Complex", "on_mode"), callback("d", "Complex", "on_mode"));
    let callbacks =
        TransformCallbacks { load: Some(load), store: Some(store), forward: Some(there), inverse: Some(back) };
    let half = C::new(0.5, 0.0);
    let (field, spectrum) = (random::<T>(cells(&spec), 1), random::<T::Mode>(modes(&spec), 2));
    let truth = forward_truth(&spec, &weighted(&values(&field), spec.cells, half));
    let forward_truth = weighted(&truth, spec.spectrum(), half);
    let truth = inverse_truth(&spec, &weighted(&values(&spectrum), spec.spectrum(), half));
    let inverse_truth = weighted(&truth, spec.cells, half);
    let mut first = None;
    for parts in [[1, 1], [2, 2], [1, 3]] {
        let halo = if parts == [2, 2] { [[1, 2], [0, 1], [2, 1]] } else { NO_HALO };
        let tuning = TransformTuning { pieces: 3, ..TransformTuning::of(&Setup::default().gpu()) };
        let setup = Setup { callbacks: callbacks.clone(), halo, tuning: Some(tuning), ..Setup::on(parts) };
        let got = (forward(&setup, &spec, &field), inverse::<T>(&setup, &spec, &spectrum));
        close(&got.0, &forward_truth, 4.0 * tolerance(&spec), &format!("callbacks on {parts:?}, forward {spec:?}"));
        close(&got.1, &inverse_truth, 4.0 * tolerance(&spec), &format!("callbacks on {parts:?}, inverse {spec:?}"));
        let first = first.get_or_insert_with(|| got.clone());
        same(&got.0, &first.0, "callbacks on several ranks");
        same(&got.1, &first.1, "callbacks on several ranks");
    }
}

#[test]
fn callbacks_run_on_the_way_at_global_places() {
    callbacks_see_global_places::<f32>(&real([9, 10, 12]).fields(2));
    callbacks_see_global_places::<f32>(&real([8, 6, 5]));
    callbacks_see_global_places::<[f32; 2]>(&complex([8, 6, 5]).fields(2));
    callbacks_see_global_places::<[f32; 2]>(&complex([8, 6, 5]).axes([true, false, false]));
    callbacks_see_global_places::<f32>(&real([12, 9, 12]).modes([8, 6, 8]).natural());
    callbacks_see_global_places::<[f32; 2]>(&complex([2, 3, 37]).axes([false, false, true]));
    if long_tests() {
        callbacks_see_global_places::<[f32; 2]>(&complex([8192, 2, 2]).axes([true, false, true]));
    }
}

#[test]
fn a_derivative_on_load_is_exact_for_a_wave() {
    let gpu = Setup::default().gpu();
    let shape = [8u64, 6, 10];
    let size = [2.0 * PI; 3];
    let (mut recorder, mut comms, grid) = alone(&gpu);
    let transform = Transform::<f32>::new(&gpu, shape, grid, 0).unwrap();
    let layout = transform.field_layout();
    let wave = |f: &dyn Fn(f64, f64) -> f64| -> Vec<f32> {
        let at = |i: usize| [i / 60, i / 10 % 6, i % 10];
        (0..480).map(|i| f(at(i)[0] as f64 * size[0] / 8.0, at(i)[2] as f64 * size[2] / 10.0) as f32).collect()
    };
    let real = gpu.array::<f32>("real", 480).unwrap();
    recorder.upload(&real, 0, &wave(&|x, z| (2.0 * x).sin() + (3.0 * z).cos())).unwrap();
    let spectrum = transform.spectrum(&gpu).unwrap();
    transform.forward(&mut recorder, &mut comms, &real, &layout, &spectrum).unwrap();
    let operator = Operator {
        constant: [0.0, 1.0],
        factor: &|axis, wave| if axis == 2 { if wave.nyquist { 0.0 } else { wave.k } } else { 1.0 },
        laplacian: None,
    };
    let tables = operator.tables(shape, size, &transform.spectrum_part());
    let derivative = Spectral::new(&mut recorder, &[tables], &transform.spectrum_part()).unwrap();
    // Twice: the kernels are made by the first.
    for _ in 0..2 {
        transform.inverse_multiplied(&mut recorder, &mut comms, &spectrum, &derivative, &real, &layout).unwrap();
        let got = recorder.download(&real, 0, 480).unwrap();
        for (got, want) in got.iter().zip(wave(&|_, z| -3.0 * (3.0 * z).sin())) {
            assert!((got - want).abs() < 1e-5, "{got} {want}");
        }
    }
    assert_eq!(comms.cost().sent_bytes, 0, "one rank sends nothing");
}

#[test]
fn operators_and_callbacks_go_together_or_are_refused() {
    let gpu = Setup::default().gpu();
    let (mut recorder, mut comms, grid) = alone(&gpu);
    let (spec, shape) = (real([4, 3, 5]), [4, 3, 5]);
    let double = Callback::new("fn on_store(value: Real, at: vec4<u32>) -> Real { return value * params.user_by; }");
    let callbacks =
        TransformCallbacks { store: Some(double.params(&User { user_by: 2.0 })), ..TransformCallbacks::default() };
    let with = |callbacks: &TransformCallbacks| {
        let options = TransformOptions::default().callbacks(callbacks.clone());
        Transform::<f32>::with(&gpu, &spec, grid, 0, &options).unwrap()
    };
    let transform = with(&callbacks);
    let (layout, part) = (transform.field_layout(), transform.spectrum_part());
    let data: Vec<f32> = (0..60).map(|i| (i * i % 7) as f32).collect();
    let field = gpu.array::<f32>("field", 60).unwrap();
    recorder.upload(&field, 0, &data).unwrap();
    let spectrum = transform.spectrum(&gpu).unwrap();
    transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum).unwrap();
    // The operator is a factor of 3, the callback one of 2.
    let three = Operator { constant: [3.0, 0.0], factor: &|_, _| 1.0, laplacian: None };
    let three = |part: &_| three.tables(shape, [1.0; 3], part);
    let operator = Spectral::new(&mut recorder, &[three(&part)], &part).unwrap();
    transform.inverse_multiplied(&mut recorder, &mut comms, &spectrum, &operator, &field, &layout).unwrap();
    for (got, x) in recorder.download(&field, 0, 60).unwrap().iter().zip(&data) {
        assert!((got - 6.0 * x).abs() < 1e-4, "{got} {x}");
    }
    let mode = Callback::new("fn on_mode(v: Complex, at: vec4<u32>, r: u32) -> Complex { return v; }");
    let both = with(&TransformCallbacks { inverse: Some(mode), ..callbacks });
    misused(
        both.inverse_multiplied(&mut recorder, &mut comms, &spectrum, &operator, &field, &layout),
        "callback already",
    );
    // Tables of other modes would be read beyond their ends.
    let other = [0..2, part[1].clone(), part[2].clone()];
    let operator = Spectral::new(&mut recorder, &[three(&other)], &other).unwrap();
    misused(
        transform.inverse_multiplied(&mut recorder, &mut comms, &spectrum, &operator, &field, &layout),
        "spectrum_part",
    );
    assert!(matches!(Spectral::new(&mut recorder, &[three(&other)], &part), Err(DeviceError::Misuse { .. })));
    // Callbacks are not linear functions, let alone known ones.
    for refused in [
        transform.forward_adjoint(&mut recorder, &mut comms, &spectrum, &field, &layout),
        transform.inverse_adjoint(&mut recorder, &mut comms, &field, &layout, &spectrum),
    ] {
        misused(refused, "make another without callbacks");
    }
}

#[test]
fn parameters_and_bindings_of_callbacks_are_looked_at() {
    let gpu = Setup::default().gpu();
    let (mut recorder, mut comms, grid) = alone(&gpu);
    let text = "fn on_store(value: Real, at: vec4<u32>) -> Real { return value; }";
    let with = |store: Callback| {
        let callbacks = TransformCallbacks { store: Some(store), ..TransformCallbacks::default() };
        Transform::<f32>::with(&gpu, &real([1, 1, 4]), grid, 0, &TransformOptions::default().callbacks(callbacks))
    };
    let mut inverse = |store: Callback| {
        let transform = with(store).unwrap();
        let layout = transform.field_layout();
        let (field, spectrum) = (transform.field(&gpu, &layout).unwrap(), transform.spectrum(&gpu).unwrap());
        transform.inverse(&mut recorder, &mut comms, &spectrum, &field, &layout)
    };
    misused(inverse(Callback::new(text).params(&Large { user_by: [[1.0; 4]; 7] })), "256 are allowed");
    let (shifted, data) = (Shifted { user_to: 1.0, user_by: [1.0; 4] }, gpu.array::<f32>("data", 4).unwrap());
    for (callback, about) in [
        (Callback::new(text).params(&shifted), "`user_by: vec4<f32>` is at byte 4 in Rust and at byte 16 in WGSL"),
        (Callback::new(text).write("user_data", &data), "`user_data` is given for writing"),
        (Callback::new("fn on_load(value: Real, at: vec4<u32>) -> Real { return value; }"), "no `fn on_store`"),
    ] {
        let Err(FftError::Device(DeviceError::Misuse { why, .. })) = with(callback) else { panic!("{about}") };
        assert!(why.contains(about), "{why}");
    }
    let stolen = "@group(0) @binding(7) var<storage, read_write> user_stolen: array<u32>;";
    let refused = inverse(Callback::new(format!("{stolen}\n{text}")));
    assert!(matches!(refused, Err(ExchangeError::Device(DeviceError::Shader { .. }))), "{refused:?}");
    inverse(Callback::new(text)).unwrap();
}

// -------------------------------------------------------------------- filters

/// Returns the result of a filter for this rank's part of `input`; its ghosts must be left alone.
pub fn filtered<T: Cell>(
    filter: &Filter<T>,
    recorder: &mut Recorder,
    comms: &mut GridComms,
    input: &[T],
    [fields, results]: [u64; 2],
    halo: Halo,
) -> Vec<T> {
    let layout = FieldLayout::new(filter.field_part(), halo);
    let inside = [0, 1, 2].map(|a| halo[a][0]..halo[a][0] + layout.own[a].end - layout.own[a].start);
    let ghost = T::of(C::new(777.0, 777.0));
    let padded = |values: &[T], count: u64| {
        let mut all = vec![ghost; (layout.len() * count) as usize];
        paste(&mut all, layout.shape(), &inside, values);
        all
    };
    let gpu = recorder.gpu().clone();
    let (field, output) = (padded(input, fields), padded(&[], fields * results));
    let from = gpu.array::<T>("field", field.len() as u64).unwrap();
    let to = gpu.array::<T>("output", output.len() as u64).unwrap();
    recorder.upload(&from, 0, &field).unwrap();
    recorder.upload(&to, 0, &output).unwrap();
    filter.apply(recorder, comms, &from, &layout, &to, &layout).unwrap();
    let got = recorder.download(&to, 0, to.len()).unwrap();
    same(&recorder.download(&from, 0, from.len()).unwrap(), &field, "the input of a filter");
    let values = cut(&got, layout.shape(), &inside);
    same(&got, &padded(&values, fields * results), "ghosts of a filter");
    values
}

/// The callback of the filters here, which reads an array over the modes of the first axis and
/// parameters.
const FILTER: &str = "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    let w = load_weights(at.x - params.first) + params.scale * Real(at.y) + 0.125f * Real(at.z);
    return multiply(value, Complex(w + Real(at.w), 0.5f * Real(result) - 1.0f));
}";

meshloom::kernel_params! {
    struct FilterParams { first: u32, scale: f32 }
}

fn axis_weight(x: u64) -> f32 {
    1.0 + (x * x % 7) as f32 * 0.25
}

/// Returns what the filter is in f64: all results of all fields.
fn filter_truth(spec: &Spec, data: &[C], results: u64) -> Vec<C> {
    let shape = spec.spectrum();
    let mut modes = forward_truth(spec, data);
    let volume = shape.iter().product::<u64>();
    let mut all = Vec::new();
    for (f, modes) in modes.chunks_mut(volume as usize).enumerate() {
        for result in 0..results {
            let turned: Vec<C> = (0..volume)
                .map(|i| {
                    let at = [i / shape[2] / shape[1], i / shape[2] % shape[1], i % shape[2]];
                    let w = f64::from(axis_weight(at[0])) - 0.5 * at[1] as f64 + 0.125 * at[2] as f64 + f as f64;
                    modes[i as usize] * C::new(w, 0.5 * result as f64 - 1.0)
                })
                .collect();
            all.extend(inverse_truth(&spec.clone().fields(1), &turned));
        }
    }
    all
}

fn filter_agrees<T: Cell>(spec: &Spec, results: u64, grids: &[[usize; 2]], tuning: Option<TransformTuning>) {
    let mut spec = of::<T>(spec);
    spec.modes = spec.points;
    let input = random::<T>(cells(&spec), 1);
    let want = filter_truth(&spec, &values(&input), results);
    let mut first = None;
    for &parts in grids {
        let halo = if parts == [1, 1] { NO_HALO } else { [[1, 2], [0, 1], [2, 1]] };
        let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
        let options = meshloom_sanitizer::options().unwrap();
        let ranks = meshloom::comm::run_threads(grid.ranks(), |comm| {
            let gpu = Gpu::open(&options, comm.rank())?;
            let mut recorder = Recorder::new(&gpu)?;
            let mut comms = GridComms::new(&comm, grid)?;
            let mut options = FilterOptions::default().results(results as u32);
            options.tuning = tuning;
            let part = Filter::<T>::part_of(&gpu, &spec, &comms, &options)?;
            let weights: Vec<f32> = part[0].clone().map(axis_weight).collect();
            let table = gpu.array::<f32>("weights", weights.len() as u64)?;
            recorder.upload(&table, 0, &weights)?;
            let params = FilterParams { first: part[0].start as u32, scale: -0.5 };
            let callback = Callback::new(FILTER).read("weights", &table).params(&params);
            let filter = Filter::<T>::new(&gpu, &spec, &comms, &callback, &options)?;
            assert_eq!(filter.spectrum_part(), part);
            let own = cut(&input, spec.cells, &filter.field_part());
            let mut run = |filter: &Filter<T>, recorder: &mut Recorder| {
                let before = recorder.counts().dispatches;
                let values = filtered(filter, recorder, &mut comms, &own, [spec.fields, results], halo);
                (values, recorder.counts().dispatches - before)
            };
            let (values, dispatches) = run(&filter, &mut recorder);
            if results > 1 {
                // A dispatch for each result of the fused pass, unless an exchange follows.
                let apart = Filter::<T>::new(&gpu, &spec, &GridComms::new(&comm, grid)?, &callback, &options.reach(0))?;
                let (others, more) = run(&apart, &mut recorder);
                same(&others, &values, "results that are computed apart");
                if parts == [1, 1] {
                    assert_eq!(more, if apart.routes().len() == 1 { dispatches + results - 1 } else { dispatches });
                }
            }
            Ok::<_, meshloom::Error>((filter.field_part(), values))
        });
        let got = gathered(spec.cells, spec.fields * results, ranks.unwrap());
        let what = format!("a filter with {results} results on {parts:?}: {spec:?}");
        close(&got, &want, 4.0 * tolerance(&spec), &what);
        same(&got, first.get_or_insert_with(|| got.clone()), &what);
    }
}

#[test]
fn filters_in_one_pass_agree_with_two_transforms() {
    let grids = [[1, 1], [2, 1], [2, 2], [1, 3]];
    filter_agrees::<f32>(&real([9, 10, 12]), 1, &grids, None);
    filter_agrees::<f32>(&real([5, 6, 4]).points([10, 12, 8]), 3, &grids, None);
    filter_agrees::<[f32; 2]>(&complex([8, 6, 5]).fields(2), 3, &grids, None);
    // Convolutions inside the pass, and stages.
    filter_agrees::<[f32; 2]>(&complex([37, 3, 2]), 1, &grids[..2], None);
    filter_agrees::<[f32; 2]>(&complex([96, 3, 2]).norm(Norm::Ortho), 3, &grids[..1], None);
    filter_agrees::<[f32; 2]>(&complex([1, 1, 24]).norm(Norm::Forward), 3, &grids[..1], None);
    filter_agrees::<[f32; 2]>(&complex([8, 6, 5]).axes([true, false, false]), 3, &grids, None);
    filter_agrees::<[f32; 2]>(&complex([8, 6, 5]).axes([false, true, true]), 1, &grids, None);
    if long_tests() {
        filter_agrees::<f32>(&real([9, 10, 12]), 3, &grids, None);
        filter_agrees::<f32>(&real([74, 2, 3]), 3, &grids[..2], None);
    }
}

#[test]
fn filters_of_lines_that_invocations_share() {
    let tuning = Some(TransformTuning::profile(meshloom::gpu::Profile::Gpu));
    filter_agrees::<[f32; 2]>(&complex([37, 3, 2]), 1, &[[1, 1]], tuning);
    filter_agrees::<[f32; 2]>(&complex([20, 3, 2]), 3, &[[2, 1]], tuning);
    if long_tests() {
        filter_agrees::<[f32; 2]>(&complex([37, 3, 2]), 3, &[[1, 1], [2, 1]], tuning);
        filter_agrees::<[f32; 2]>(&complex([96, 3, 2]), 3, &[[1, 1], [2, 1]], tuning);
        filter_agrees::<f32>(&real([74, 2, 3]), 1, &[[1, 1]], tuning);
    }
}

#[test]
fn filters_that_need_two_transforms_agree() {
    let grids = [[1, 1], [2, 1]];
    for results in [1, 3] {
        filter_agrees::<f32>(&real([1, 1, 24]).axes([false, false, true]).fields(2), results, &grids, None);
        filter_agrees::<f32>(&real([3, 4, 12]).axes([false, false, true]).fields(2), results, &grids, None);
    }
    if long_tests() {
        filter_agrees::<[f32; 2]>(&complex([8192, 2, 2]), 3, &grids, None);
    }
}

// -------------------------------------------------------------------- adjoints and identities

/// Returns the sum of products of real and imaginary parts.
fn dot<A: Number, B: Number>(a: &[A], b: &[B]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a.value() * b.value().conj()).re).sum()
}

/// `<forward(x), y> = <x, adjoint(y)>`, and the same for the inverse.
fn adjoint<T: Cell>(parts: [usize; 2], spec: &Spec) {
    let spec = of::<T>(spec);
    let setup = Setup { halo: [[0, 1], [1, 0], [1, 2]], ..Setup::on(parts) };
    let (x, y) = (random::<T>(cells(&spec), 1), random::<T::Mode>(modes(&spec), 2));
    let ranks = on_ranks::<T, _>(&setup, &spec, |rank| {
        let (field, spectrum) = (rank.field(&x), rank.spectrum(&y));
        rank.transform.forward_adjoint(&mut rank.recorder, &mut rank.comms, &spectrum, &field, &rank.layout).unwrap();
        let of_forward = rank.read(&field);
        let (field, spectrum) = (rank.field(&x), rank.spectrum(&y));
        rank.transform.inverse_adjoint(&mut rank.recorder, &mut rank.comms, &field, &rank.layout, &spectrum).unwrap();
        let of_inverse = rank.download(&spectrum);
        ((rank.layout.own.clone(), of_forward), (rank.transform.spectrum_part(), of_inverse))
    });
    let (of_forward, of_inverse) = ranks.into_iter().unzip();
    let of_forward = gathered(spec.cells, spec.fields, of_forward);
    let of_inverse = gathered(spec.spectrum(), spec.fields, of_inverse);
    let agree = |a: f64, b: f64, scale: f64, what: &str| {
        let error = (a - b).abs() / scale;
        assert!(error < tolerance(&spec), "{what} on {parts:?}: {a} {b} ({error:e}) {spec:?}");
    };
    let (forth, back) = (forward(&setup, &spec, &x), inverse::<T>(&setup, &spec, &y));
    let size = |a: f64, b: f64| (a * b).sqrt().max(1e-30);
    agree(dot(&forth, &y), dot(&x, &of_forward), size(dot(&forth, &forth), dot(&y, &y)), "forward");
    agree(dot(&back, &x), dot(&y, &of_inverse), size(dot(&back, &back), dot(&x, &x)), "inverse");
}

#[test]
fn adjoints_are_adjoint() {
    for norm in [Norm::Backward, Norm::Ortho, Norm::Forward] {
        for shape in [[9, 10, 12], [8, 6, 5]] {
            adjoint::<f32>([1, 1], &real(shape).norm(norm));
            adjoint::<[f32; 2]>([1, 1], &complex(shape).norm(norm));
        }
    }
    for parts in [[2, 1], [2, 2]] {
        adjoint::<f32>(parts, &real([9, 10, 12]).fields(2));
        adjoint::<f32>(parts, &real([12, 9, 12]).modes([8, 6, 8]));
        adjoint::<[f32; 2]>(parts, &complex([12, 9, 12]).modes([8, 6, 8]));
        adjoint::<f32>(parts, &real([5, 6, 7]).points([8, 12, 11]).modes([4, 5, 6]));
    }
    let lengths = if long_tests() { &[1, 2, 3, 37, 74, 8192, 4097][..] } else { &[1, 2, 3, 37] };
    for &n in lengths {
        adjoint::<f32>([1, 1], &real([1, 2, n]));
    }
    if Setup::default().gpu().capabilities().f64 {
        adjoint::<f64>([1, 1], &real([6, 10, 12]));
    }
}

#[test]
fn transforms_have_the_properties_of_transforms() {
    let (shape, setup) = ([8, 6, 5], Setup::default());
    let spec = complex(shape);
    let law = tolerance(&spec);
    let x = random::<[f32; 2]>(240, 1);
    let modes = forward(&setup, &spec, &x);
    // Parseval.
    let (there, here) = (dot(&modes, &modes), 240.0 * dot(&x, &x));
    assert!((there - here).abs() < 10.0 * law * here, "{there} {here}");
    // A shift turns modes.
    let at = |i: u64| [i / 30, i / 5 % 6, i % 5];
    let shifted: Vec<_> = (0..240)
        .map(|i| {
            let [a, b, c] = at(i);
            x[(((a + 3) % 8 * 6 + (b + 1) % 6) * 5 + (c + 2) % 5) as usize]
        })
        .collect();
    let turn = |i: u64| {
        let [a, b, c] = at(i).map(|n| n as f64);
        C::from_polar(1.0, 2.0 * PI * (3.0 * a / 8.0 + b / 6.0 + 2.0 * c / 5.0))
    };
    let want: Vec<C> = (0..240).map(|i| modes[i as usize].value() * turn(i)).collect();
    close(&forward(&setup, &spec, &shifted), &want, 2.0 * law, "a shift");
    // A delta has a flat spectrum, a single mode is a wave.
    let mut delta = vec![[0.0f32; 2]; 240];
    delta[0] = [1.0, -2.0];
    let flat = forward(&setup, &spec, &delta);
    assert!(flat.iter().all(|v| *v == [1.0, -2.0]), "a delta");
    let mut mode = vec![[0.0f32; 2]; 240];
    mode[(3 * 6 + 1) * 5 + 2] = [240.0, 0.0];
    let wave: Vec<C> = (0..240).map(turn).collect();
    close(&inverse::<[f32; 2]>(&setup, &spec, &mode), &wave, law, "a mode");
    // A real field has a Hermitian spectrum, half of which is that of a real transform.
    let field = random::<f32>(240, 3);
    let whole = forward(&setup, &spec, &field.iter().map(|&v| [v, 0.0]).collect::<Vec<_>>());
    let mirrored: Vec<C> = (0..240)
        .map(|i| {
            let [a, b, c] = at(i);
            whole[((8 - a) % 8 * 30 + (6 - b) % 6 * 5 + (5 - c) % 5) as usize].value().conj()
        })
        .collect();
    close(&whole, &mirrored, law, "Hermitian symmetry");
    let half: Vec<C> = (0..240).filter(|i| i % 5 < 3).map(|i| whole[i as usize].value()).collect();
    close(&forward(&setup, &real(shape), &field), &half, law, "half a spectrum");
}

// -------------------------------------------------------------------- errors

fn new<T: Value>(spec: &Spec) -> Result<Transform<T>, FftError> {
    let gpu = Setup::default().gpu();
    Transform::with(&gpu, spec, Grid::new([1, 1], 1).unwrap(), 0, &TransformOptions::default())
}

#[test]
fn what_cannot_be_transformed_is_said() {
    for spec in [complex([4, 0, 4]), complex([4; 3]).fields(0), complex([4; 3]).modes([4, 0, 4])] {
        assert!(matches!(new::<[f32; 2]>(&spec), Err(FftError::Empty)), "{spec:?}");
    }
    let large = new::<[f32; 2]>(&complex([2048, 2048, 2048]));
    assert!(matches!(large, Err(FftError::TooLarge { elements }) if elements == 1 << 33));
    assert!(matches!(new::<[f32; 2]>(&complex([2048, 2048, 512]).fields(4)), Err(FftError::TooLarge { .. })));
    assert!(matches!(new::<f32>(&real([4; 3]).axes([true, true, false])), Err(FftError::RealAxis)));
    for spec in [
        complex([4; 3]).points([4, 3, 4]),
        complex([4; 3]).modes([4, 4, 5]),
        complex([4; 3]).points([8; 3]).axes([true, false, true]),
        complex([4; 3]).modes([2; 3]).axes([true, false, true]),
    ] {
        assert!(matches!(new::<[f32; 2]>(&spec), Err(FftError::Order { axis: 1 | 2, .. })), "{spec:?}");
    }
    // Those of a filter, too.
    let gpu = Setup::default().gpu();
    let (_, comms, _) = alone(&gpu);
    let callback = Callback::new("fn on_mode(v: Complex, at: vec4<u32>, r: u32) -> Complex { return v; }");
    let filter = Filter::<f32>::new(&gpu, &real([4, 0, 4]), &comms, &callback, &FilterOptions::default());
    assert!(matches!(filter, Err(FftError::Empty)));
}

/// A specification of complex values is not silently taken as one of real values, nor one precision
/// as the other.
#[test]
fn specifications_of_other_elements_are_refused() {
    let gpu = Setup::default().gpu();
    let (_, comms, _) = alone(&gpu);
    let grid = comms.grid();
    let callback = Callback::new("fn on_mode(v: Complex, at: vec4<u32>, r: u32) -> Complex { return v; }");
    for (spec, found) in [(complex([4; 3]), "[f32; 2]"), (Spec::of::<f64>([4; 3]), "f64")] {
        let expected = FftError::Elements { expected: "f32", found };
        let filter = Filter::<f32>::new(&gpu, &spec, &comms, &callback, &FilterOptions::default());
        assert_eq!(filter.err(), Some(expected.clone()));
        let transform = Transform::<f32>::with(&gpu, &spec, grid, 0, &TransformOptions::default());
        assert_eq!(transform.err(), Some(expected.clone()));
        let tuned = Tuner::new(&gpu, &Communicator::solo(), &spec).tune::<f32>();
        assert!(tuned.is_err_and(|error| error.to_string() == expected.to_string()));
    }
}

#[test]
fn grids_and_ranks_that_do_not_fit_are_refused() {
    assert!(matches!(Grid::new([2, 2], 3), Err(LayoutError::Grid { .. })));
    let gpu = Setup::default().gpu();
    let grid = Grid::new([2, 1], 2).unwrap();
    let beyond = Transform::<f32>::new(&gpu, [4; 3], grid, 2);
    assert!(matches!(beyond, Err(FftError::Layout(LayoutError::Rank { rank: 2, parts: [2, 1] }))), "rank 2 of 2");
    // A transform planned for another grid than that of the communicators.
    let transform = Transform::<f32>::new(&gpu, [4; 3], grid, 0).unwrap();
    let (mut recorder, mut comms, _) = alone(&gpu);
    let layout = transform.field_layout();
    let (field, spectrum) = (transform.field(&gpu, &layout).unwrap(), transform.spectrum(&gpu).unwrap());
    misused(transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum), "grid");
    misused(transform.forward_in_place(&mut recorder, &mut comms, &transform.in_place(&gpu).unwrap()), "grid");
}

#[track_caller]
fn misused(result: Result<(), ExchangeError>, about: &str) {
    let Err(ExchangeError::Device(DeviceError::Misuse { why, .. })) = result else { panic!("{result:?}") };
    assert!(why.contains(about), "{why}");
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    let gpu = Setup::default().gpu();
    let (mut recorder, mut comms, grid) = alone(&gpu);
    let transform = Transform::<f32>::new(&gpu, [4, 6, 8], grid, 0).unwrap();
    let layout = transform.field_layout();
    let (field, spectrum) = (transform.field(&gpu, &layout).unwrap(), transform.spectrum(&gpu).unwrap());
    let short = gpu.array::<f32>("short", 191).unwrap();
    let few = gpu.array::<[f32; 2]>("short", 119).unwrap();
    let other = FieldLayout::new([0..4, 0..6, 0..7], [[0; 2]; 3]);
    let ghosts = FieldLayout::new([0..4, 0..6, 0..8], [[1, 1]; 3]);
    misused(transform.forward(&mut recorder, &mut comms, &field, &other, &spectrum), "layout");
    misused(transform.forward(&mut recorder, &mut comms, &field, &ghosts, &spectrum), "480 are needed");
    misused(transform.forward(&mut recorder, &mut comms, &short, &layout, &spectrum), "191 elements of a field");
    misused(transform.inverse(&mut recorder, &mut comms, &few, &field, &layout), "119 elements of a spectrum");
    misused(transform.forward_adjoint(&mut recorder, &mut comms, &few, &field, &layout), "119 elements of a spectrum");
    misused(
        transform.inverse_adjoint(&mut recorder, &mut comms, &short, &layout, &spectrum),
        "191 elements of a field",
    );
    let seen = spectrum.cast::<f32>().unwrap();
    misused(transform.forward(&mut recorder, &mut comms, &seen, &layout, &spectrum), "one array");
    misused(transform.forward_in_place(&mut recorder, &mut comms, &few), "119");
    let padded = new::<f32>(&real([4, 6, 8]).points([8, 6, 8])).unwrap();
    let array = padded.in_place(&gpu).unwrap();
    misused(padded.forward_in_place(&mut recorder, &mut comms, &array), "differ");
    let callback = Callback::new("fn on_mode(v: Complex, at: vec4<u32>, r: u32) -> Complex { return v; }");
    let filter =
        Filter::<f32>::new(&gpu, &real([4, 6, 8]), &comms, &callback, &FilterOptions::default().results(3)).unwrap();
    let output = gpu.array::<f32>("output", 191 * 3).unwrap();
    misused(filter.apply(&mut recorder, &mut comms, &field, &layout, &output, &layout), "576 are needed");
    misused(filter.apply(&mut recorder, &mut comms, &field, &layout, &field, &layout), "576 are needed");
}

// -------------------------------------------------------------------- plans

proptest! {
    /// On the host only: every exchange of every plan is sent as it is received, and the inverse
    /// costs what the forward transform does.
    #[test]
    fn what_is_sent_is_received(
        cells in prop::array::uniform3(1u64..9),
        more in prop::array::uniform3(0u64..4),
        kept in prop::array::uniform3(1u64..12),
        mask in 1u8..8,
        parts in prop::array::uniform2(1usize..5),
        fields in 1u64..3,
        pieces in 1u64..4,
        natural: bool,
        halved: bool,
    ) {
        let axes = [0, 1, 2].map(|a| mask >> a & 1 == 1 || (a == 2 && halved));
        let points = [0, 1, 2].map(|a| if axes[a] { cells[a] + more[a] } else { cells[a] });
        let modes = [0, 1, 2].map(|a| if axes[a] { kept[a].min(points[a]) } else { cells[a] });
        let values = if halved { Values::Real } else { Values::Complex };
        let mut spec = Spec { values, ..Spec::of::<f32>(cells) }.axes(axes).points(points).modes(modes).fields(fields);
        if natural {
            spec = spec.natural();
        }
        let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
        let limits = meshloom::fft::Limits {
            workgroup_bytes: 16384, invocations: 256, points: 16, alone: 16, shared: true, columns: 16,
            cache_bytes: 0,
        };
        let plans: Vec<Plan> =
            (0..grid.ranks()).map(|rank| Plan::new(&spec, grid, rank, limits, pieces).unwrap()).collect();
        let volume = |part: &meshloom::grid::Box3| meshloom::grid::volume(part);
        prop_assert_eq!(plans.iter().map(|p| volume(&p.field)).sum::<u64>(), cells.iter().product::<u64>());
        prop_assert_eq!(plans.iter().map(|p| volume(&p.spectrum)).sum::<u64>(), spec.spectrum().iter().product::<u64>());
        for (rank, plan) in plans.iter().enumerate() {
            for way in [|plan: &Plan| plan.forward.clone(), |plan: &Plan| plan.inverse.clone()] {
                for (i, exchange) in way(plan).exchanges().enumerate() {
                    let line = grid.neighbors(rank, exchange.grid_axis);
                    let me = line.iter().position(|&r| r == rank).unwrap();
                    for piece in 0..exchange.pieces.len() {
                        for part in exchange.transfers(piece).send {
                            let theirs = way(&plans[line[part.peer]]);
                            let theirs = theirs.exchanges().nth(i).unwrap().transfers(piece);
                            let received = theirs.receive.iter().find(|received| received.peer == me).unwrap();
                            prop_assert_eq!(received.len, part.len);
                        }
                    }
                }
            }
        }
        let cost = |way: fn(&Plan) -> &meshloom::fft::Route| {
            let mut total = [0u64; 2];
            for plan in &plans {
                for exchange in way(plan).exchanges() {
                    let cost = exchange.cost(8, 64);
                    total = [total[0] + cost.sent_bytes, total[1] + cost.received_bytes];
                }
            }
            total
        };
        let (there, back) = (cost(|plan| &plan.forward), cost(|plan| &plan.inverse));
        prop_assert_eq!(there[0], there[1]);
        prop_assert_eq!(there, back);
    }
}

#[test]
fn modes_are_scaled_by_the_square_of_their_number() {
    for n in [8u64, 9] {
        let spec = real([n; 3]);
        let [a, b, c] = spec.spectrum();
        let input: Vec<[f32; 2]> = random(modes(&spec), 5);
        let half = n / 2;
        let amplitudes: Vec<f32> = (0..=3 * half * half).map(|square| 1.0 / (1.0 + square as f32)).collect();
        let number = |i: u64| i.min(n - i);
        let at = |mode: usize| [mode as u64 / (b * c), mode as u64 / c % b, mode as u64 % c];
        let square = |mode: usize| at(mode).iter().map(|&i| number(i) * number(i)).sum::<u64>() as usize;
        // One product of two floats each, so the bits are known.
        let factor = |mode: usize| amplitudes[square(mode)];
        let want: Vec<[f32; 2]> = (0..input.len()).map(|mode| input[mode].map(|part| part * factor(mode))).collect();
        assert_eq!(want.len() as u64, a * b * c);
        for parts in [[1, 1], [3, 1], [2, 2]] {
            let ranks = on_ranks::<f32, _>(&Setup::on(parts), &spec, |rank| {
                let spectrum = rank.spectrum(&input);
                let [table, short] = [amplitudes.len(), 1].map(|len| {
                    let table = rank.recorder.gpu().array("amplitudes", len as u64).unwrap();
                    rank.recorder.upload(&table, 0, &amplitudes[..len]).unwrap();
                    table
                });
                rank.transform.scale_radially(&mut rank.recorder, &spectrum, &table).unwrap();
                let short = rank.transform.scale_radially(&mut rank.recorder, &spectrum, &short);
                assert!(short.is_err() || n == 1, "a table that is too short");
                (rank.transform.spectrum_part(), rank.download(&spectrum))
            });
            same(&gathered(spec.spectrum(), 1, ranks), &want, "radial amplitudes");
        }
    }
}
