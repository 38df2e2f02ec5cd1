//! Two axes that pass layer by layer through the cache give the bits of one axis after the other.

use super::fft::{filtered, same_as_alone};
use super::fourier::*;
use meshloom::comm::{Communicator, run_threads};
use meshloom::exchange::GridComms;
use meshloom::fft::{Filter, FilterOptions, Operator, Spec, Spectral, Transform, TransformOptions, TransformTuning};
use meshloom::gpu::{Callback, Gpu, Options, Profile, Recorder};
use meshloom::grid::Grid;

/// Returns the tuning of a device with this many bytes of cache for layers.
fn through(gpu: &Gpu, cache_bytes: u64) -> TransformTuning {
    TransformTuning { cache_bytes, ..TransformTuning::of(gpu) }
}

/// Setups of slabs, which have two axes between exchanges, and of pencils; with one and several
/// pieces of an exchange.
fn setups(cache_bytes: u64) -> Vec<Setup> {
    let tuning = through(&Setup::default().gpu(), cache_bytes);
    let grids = [([1, 1], 1), ([3, 1], 1), ([3, 1], 4), ([1, 3], 2)];
    let with = |(parts, pieces)| Setup { tuning: Some(TransformTuning { pieces, ..tuning }), ..Setup::on(parts) };
    let mut setups: Vec<Setup> = grids.into_iter().map(with).collect();
    setups.extend([[1, 1], [3, 1]].map(|parts| Setup { halo: [[1, 2], [3, 0], [0, 3]], ..with((parts, 3)) }));
    setups.push(Setup { shares: vec![5.0, 1.0, 2.0], ..with(([3, 1], 2)) });
    setups
}

/// Odd, prime and tiny extents, one plane, and layers of one and of several planes that do not
/// divide them: a plane takes 48 to 960 bytes.
#[test]
fn layers_change_no_bit() {
    for cache_bytes in [200, 1500, 8000] {
        for cells in [[9, 10, 12], [13, 5, 7], [7, 3, 2], [2, 2, 3], [1, 6, 5], [11, 1, 6]] {
            same_as_alone::<f32>(&Spec::of::<f32>(cells), &setups(cache_bytes), "real");
            same_as_alone::<[f32; 2]>(&Spec::of::<[f32; 2]>(cells), &setups(cache_bytes), "complex");
        }
    }
}

#[test]
fn layers_of_batches_and_of_parts_of_axes_change_no_bit() {
    let real = |cells| Spec::of::<f32>(cells);
    let complex = |cells| Spec::of::<[f32; 2]>(cells);
    let setups = setups(1500);
    same_as_alone::<f32>(&real([7, 6, 10]).fields(3), &setups, "fields");
    same_as_alone::<[f32; 2]>(&complex([7, 6, 5]).fields(2).natural(), &setups, "natural");
    same_as_alone::<f32>(&real([6, 5, 7]).points([12, 10, 14]), &setups, "padded");
    same_as_alone::<f32>(&real([12, 9, 12]).modes([8, 6, 8]), &setups, "truncated");
    same_as_alone::<[f32; 2]>(&complex([9, 6, 8]).axes([false, true, true]), &setups, "two axes");
    same_as_alone::<[f32; 2]>(&complex([9, 6, 8]).axes([true, true, false]), &setups, "a copied axis");
    // Two passes along y, which stay as they are.
    same_as_alone::<[f32; 2]>(&complex([3, 8192, 2]), &setups[..2], "a long axis");
}

#[test]
fn layers_in_windows_and_with_the_kernels_of_gpus_change_no_bit() {
    let options = meshloom_sanitizer::options().unwrap();
    let windows = Options { window_bytes: Some(4096), ..options };
    let tuning = through(&Setup::default().gpu(), 8000);
    let with = |parts| Setup { options: windows.clone(), tuning: Some(tuning), ..Setup::on(parts) };
    same_as_alone::<f32>(&Spec::of::<f32>([9, 10, 12]), &[with([1, 1]), with([2, 1])], "windows");
    same_as_alone::<[f32; 2]>(&Spec::of::<[f32; 2]>([9, 10, 12]), &[with([1, 1]), with([2, 1])], "windows");
}

/// Returns dispatches and levels of a forward and of an inverse transform on one rank, and the bits
/// of both results, out of place and in place.
fn counted<T: Cell>(gpu: &Gpu, cells: [u64; 3], tuning: TransformTuning) -> ([[u64; 2]; 2], Vec<[u64; 2]>) {
    let grid = Grid::new([1, 1], 1).unwrap();
    let mut comms = GridComms::new(&Communicator::solo(), grid).unwrap();
    let mut recorder = Recorder::new(gpu).unwrap();
    let options = TransformOptions::default().tuning(tuning);
    let transform = Transform::<T>::with(gpu, &of::<T>(&Spec::of::<f32>(cells)), grid, 0, &options).unwrap();
    let layout = transform.field_layout();
    let (field, spectrum) = (transform.field(gpu, &layout).unwrap(), transform.spectrum(gpu).unwrap());
    recorder.upload(&field, 0, &random::<T>(field.len(), 1)).unwrap();
    let mut counts = [[0; 2]; 2];
    for (inverse, counted) in [false, true].into_iter().zip(&mut counts) {
        let before = recorder.counts();
        if inverse {
            transform.inverse(&mut recorder, &mut comms, &spectrum, &field, &layout).unwrap();
        } else {
            transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum).unwrap();
        }
        recorder.wait().unwrap();
        let after = recorder.counts();
        *counted = [after.dispatches - before.dispatches, after.levels - before.levels];
    }
    let mut bits: Vec<[u64; 2]> = Vec::new();
    bits.extend(recorder.download(&spectrum, 0, spectrum.len()).unwrap().into_iter().map(Number::bits));
    bits.extend(recorder.download(&field, 0, field.len()).unwrap().into_iter().map(Number::bits));
    let array = transform.in_place(gpu).unwrap();
    recorder.upload(&array, 0, &random::<T::Mode>(array.len(), 3)).unwrap();
    transform.forward_in_place(&mut recorder, &mut comms, &array).unwrap();
    let modes = recorder.download(&array, 0, spectrum.len()).unwrap();
    bits.extend(modes.into_iter().map(Number::bits));
    transform.inverse_in_place(&mut recorder, &mut comms, &array).unwrap();
    // Rows end with room for modes, whose contents are not defined.
    let layout = transform.in_place_layout();
    let rows = recorder.download(&array.cast::<T>().unwrap(), 0, layout.len()).unwrap();
    bits.extend(cut(&rows, layout.shape(), &layout.own).into_iter().map(Number::bits));
    (counts, bits)
}

/// Layers of real inverse transforms overlap: all levels but three have two dispatches. Others work
/// in place, one dispatch on each level.
#[test]
fn layers_take_two_dispatches_and_overlap() {
    let gpu = Setup::default().gpu();
    for profile in [Profile::Gpu, Profile::Software] {
        // Larger than what one workgroup transforms in one dispatch.
        let (cells, plane) = ([24u64, 16, 40], 16 * 40 * 8);
        let half = 16 * 21 * 8;
        let plain = TransformTuning::profile(profile);
        let layers = |planes: u64| TransformTuning { cache_bytes: planes, ..plain };
        let (counts, bits) = counted::<[f32; 2]>(&gpu, cells, plain);
        assert_eq!(counts, [[3; 2]; 2]);
        // Layers of four planes.
        let (layered, found) = counted::<[f32; 2]>(&gpu, cells, layers(4 * plane));
        assert!(found == bits, "{profile:?}");
        assert_eq!(layered, [[2 * 6 + 1; 2]; 2]);
        let (_, bits) = counted::<f32>(&gpu, cells, plain);
        let (layered, found) = counted::<f32>(&gpu, cells, layers(5 * half));
        assert!(found == bits, "{profile:?}");
        // Layers of five planes in place, and two of two planes.
        assert_eq!(layered, [[2 * 5 + 1; 2], [2 * 12 + 1, 12 + 2]]);
        // A cache that holds all planes, or not one.
        for bytes in [24 * plane, plane - 1] {
            assert_eq!(counted::<[f32; 2]>(&gpu, cells, layers(bytes)).0, [[3; 2]; 2]);
        }
    }
}

const FACTOR: &str = "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    return multiply(value, Complex(1.0f + 0.25f * Real(at.x + at.w), 0.5f * Real(at.y + 2u * result) - 1.0f));
}";

/// Returns what a filter of three results makes of a field, on all ranks.
fn filtered_parts(spec: &Spec, parts: [usize; 2], cache_bytes: u64) -> Vec<Vec<f32>> {
    let gpu = Setup::default().gpu();
    let input = random::<f32>(cells(spec), 1);
    run_threads(parts[0] * parts[1], |comm| {
        let mut comms = GridComms::new(&comm, Grid::new(parts, comm.size())?)?;
        let mut recorder = Recorder::new(&gpu)?;
        let options = FilterOptions::default().results(3).tuning(through(&gpu, cache_bytes));
        let filter = Filter::<f32>::new(&gpu, spec, &comms, &Callback::new(FACTOR), &options)?;
        let own = cut(&input, spec.cells, &filter.field_part());
        let halo = [[1, 2], [0, 1], [2, 1]];
        Ok::<_, meshloom::Error>(filtered(&filter, &mut recorder, &mut comms, &own, [spec.fields, 3], halo))
    })
    .unwrap()
}

#[test]
fn filters_in_layers_give_the_same_bits() {
    let real = Spec::of::<f32>([7, 6, 10]);
    for spec in
        [real.clone(), real.clone().fields(2), real.clone().axes([false, true, true]), Spec::of::<f32>([5, 1, 12])]
    {
        let expected = filtered_parts(&spec, [1, 1], 0);
        for parts in [[1, 1], [3, 1], [1, 3]] {
            let plain = filtered_parts(&spec, parts, 0);
            for cache_bytes in [700, 2500] {
                let layered = filtered_parts(&spec, parts, cache_bytes);
                assert!(layered == plain, "{spec:?} on {parts:?} through {cache_bytes} bytes");
                assert!(parts != [1, 1] || layered == expected);
            }
        }
    }
}

#[test]
fn operators_in_layers_give_the_same_bits() {
    let (gpu, shape) = (Setup::default().gpu(), [9, 6, 10]);
    let grid = Grid::new([1, 1], 1).unwrap();
    let mut comms = GridComms::new(&Communicator::solo(), grid).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let operator = Operator { constant: [0.0, 1.0], factor: &|axis, wave| wave.k + axis as f64, laplacian: None };
    let mut results = [0, 1000].map(|cache_bytes| {
        let options = TransformOptions::default().tuning(through(&gpu, cache_bytes));
        let transform = Transform::<f32>::with(&gpu, &Spec::of::<f32>(shape), grid, 0, &options).unwrap();
        let (layout, part) = (transform.field_layout(), transform.spectrum_part());
        let (field, spectrum) = (transform.field(&gpu, &layout).unwrap(), transform.spectrum(&gpu).unwrap());
        recorder.upload(&spectrum, 0, &random::<[f32; 2]>(spectrum.len(), 1)).unwrap();
        let tables = operator.tables(shape, [1.0; 3], &part);
        let operator = Spectral::new(&mut recorder, &[tables], &part).unwrap();
        transform.inverse_multiplied(&mut recorder, &mut comms, &spectrum, &operator, &field, &layout).unwrap();
        let multiplied = recorder.download(&field, 0, field.len()).unwrap();
        transform.forward_adjoint(&mut recorder, &mut comms, &spectrum, &field, &layout).unwrap();
        [multiplied, recorder.download(&field, 0, field.len()).unwrap()].concat()
    });
    let [plain, layered] = results.each_mut().map(std::mem::take);
    same(&layered, &plain, "operators");
}
