//! Forecasts against what real runs count, and the search for the fastest way.

use meshloom::Rank;
use meshloom::cluster::Machine;
use meshloom::comm::{CommError, Communicator, run_threads};
use meshloom::exchange::{ExchangeError, GridComms};
use meshloom::fft::{
    Forecast, Spec, Transform, TransformChoice, TransformError, TransformOptions, TransformTuning, Tuner, Value,
};
use meshloom::gpu::{Gpu, Options, Profile, Recorder};
use meshloom::grid::{Cost, Grid, Shares};

const CHUNK: u64 = 777;

/// Bytes and messages of one transform there and back, as forecast and as counted, must be the same
/// on every rank.
fn counted<T: Value>(spec: &Spec, parts: [usize; 2], pieces: u64) {
    let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
    let options = meshloom_sanitizer::options().unwrap();
    let results = run_threads(grid.ranks(), |comm| {
        let gpu = Gpu::open(&options, comm.rank())?;
        let mut recorder = Recorder::new(&gpu)?;
        let mut comms = GridComms::new(&comm, grid)?.with_chunks(CHUNK, 3);
        let tuning = TransformTuning { pieces, ..TransformTuning::of(&gpu) };
        let options = TransformOptions::default().tuning(tuning);
        let transform = Transform::<T>::with(&gpu, spec, grid, comm.rank(), &options)?;
        let layout = transform.field_layout();
        let (field, spectrum) = (transform.field(&gpu, &layout)?, transform.spectrum(&gpu)?);
        recorder.clear(&field);
        transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?;
        let there = comms.cost();
        transform.inverse(&mut recorder, &mut comms, &spectrum, &field, &layout)?;
        let both = comms.cost();
        let forecast = Forecast::new(spec, grid, comm.rank(), &tuning, CHUNK)?;
        assert_eq!(forecast.memory.field, field.len() * T::ELEMENT.bytes());
        assert_eq!(forecast.memory.spectrum, spectrum.len() * 8);
        assert_eq!(forecast.plan.forward.traffic(), transform.plan().forward.traffic());
        Ok::<_, meshloom::Error>((there, both, forecast))
    });
    for (rank, (there, both, forecast)) in results.unwrap().into_iter().enumerate() {
        // The communicators count messages, not kernels.
        let messages = |cost: Cost| Cost { device_bytes: 0, dispatches: 0, ..cost };
        let [forward, inverse] = [forecast.forward.cost(), forecast.inverse.cost()].map(messages);
        assert_eq!(forward, there, "{parts:?}, rank {rank}");
        assert_eq!(forward + inverse, both, "{parts:?}, rank {rank}");
    }
}

#[test]
fn forecasts_are_what_runs_count() {
    let real = Spec::of::<f32>([9, 10, 12]);
    for parts in [[1, 1], [2, 1], [1, 3], [2, 2], [5, 1], [3, 2], [7, 1], [4, 2], [3, 4], [4, 4]] {
        counted::<f32>(&real, parts, 1);
    }
    counted::<f32>(&real, [4, 4], 3);
    let complex = Spec::of::<[f32; 2]>([9, 10, 12]).fields(2);
    counted::<[f32; 2]>(&complex, [3, 2], 2);
    counted::<[f32; 2]>(&complex.clone().natural(), [3, 2], 1);
    counted::<[f32; 2]>(&complex.axes([true, false, true]), [2, 4], 1);
}

/// Every message of the model has a receiver, whatever the parts: few planes are cut into fewer
/// pieces, and ranks without cells have other passes.
#[test]
fn parts_of_any_size_have_a_forecast() {
    let tuning = TransformTuning::profile(Profile::Gpu);
    let machine = Machine::default();
    for (cells, parts) in [
        ([3, 10, 12], [2, 2]),
        ([9, 10, 12], [3, 4]),
        ([1, 5, 12], [4, 4]),
        ([12, 10, 9], [1, 1]),
        ([7, 40, 24], [5, 20]),
        ([7, 40, 24], [16, 8]),
    ] {
        let ranks = parts[0] * parts[1];
        let unequal: Vec<f64> = (0..ranks).map(|rank| (1 + 5 * rank % 7) as f64).collect();
        for shares in [Shares::from(ranks), Shares::new(&unequal).unwrap()] {
            let grid = Grid::new(parts, shares).unwrap();
            for axes in [[true; 3], [false, true, true]] {
                let spec = Spec::of::<[f32; 2]>(cells).axes(axes);
                let seconds = |rank: usize| {
                    let forecast = Forecast::new(&spec, grid, rank, &tuning, CHUNK).unwrap();
                    let phases = forecast.phase_seconds(&machine).unwrap();
                    assert!(phases.iter().flatten().all(|seconds| seconds.is_finite()), "{spec:?} on {grid:?}");
                    forecast.seconds(&machine).unwrap()
                };
                let [first, largest, last] = [0, grid.largest(cells), ranks - 1].map(seconds);
                assert!(first.iter().all(|seconds| (0.0..1.0).contains(seconds)), "{first:?} {spec:?} on {grid:?}");
                assert!(first == largest && last == largest);
            }
        }
    }
}

/// Passes take nearly all of the time on slow devices, and all ranks wait for the largest one.
#[test]
fn unequal_shares_take_the_time_of_the_largest_rank() {
    let (spec, tuning) = (Spec::of::<[f32; 2]>([64, 512, 512]), TransformTuning::profile(Profile::Gpu));
    let machine = Machine { memory_rate: 1e9, device_copy_rate: 1e9, copy_queues: 2, ..Machine::default() };
    let forecast = |shares: &[f64]| {
        let grid = Grid::new([4, 1], Shares::new(shares).unwrap()).unwrap();
        let forecast = Forecast::new(&spec, grid, grid.largest(spec.cells), &tuning, 2 << 20).unwrap();
        (forecast.forward.cost().device_bytes as f64, forecast.seconds(&machine).unwrap()[0])
    };
    let (bytes, seconds) = forecast(&[1.0; 4]);
    for shares in [[4.0, 4.0, 1.0, 1.0], [1.0, 1.0, 4.0, 4.0]] {
        let (more_bytes, more_seconds) = forecast(&shares);
        let (expected, found) = (more_bytes / bytes, more_seconds / seconds);
        assert!(expected > 1.6 && (found / expected - 1.0).abs() < 0.05, "{shares:?}: {found}, expected {expected}");
    }
}

#[test]
fn large_runs_are_forecast_without_a_device() {
    let spec = Spec::of::<f32>([4096; 3]);
    let tuning = TransformTuning::profile(meshloom::gpu::Profile::Gpu);
    let forecast =
        |parts: [usize; 2]| Forecast::new(&spec, Grid::new(parts, 512).unwrap(), 0, &tuning, 2 << 20).unwrap();
    let slabs = forecast([512, 1]);
    // 8 planes of 4096 x 2049 modes a rank, of which 511 parts of 512 go away.
    assert_eq!(slabs.forward.cost().sent_bytes, 8 * 4096 * 2049 * 8 / 512 * 511);
    // A part of 8 x 8 x 2049 modes in four pieces is below a chunk each.
    assert_eq!(slabs.forward.cost().messages, 511 * 4);
    let pencils = forecast([32, 16]);
    assert_eq!(pencils.forward.phases.len(), 5);
    // 15 peers: four pieces of 32 x 256 x 128 modes, 4 chunks each. 31 peers: pieces of 128 x 128 x
    // 33 modes (3 chunks) and three of 32 (2 chunks).
    assert_eq!(pencils.forward.cost().messages, 15 * 4 * 4 + 31 * (3 + 3 * 2));
    // A slower interface takes longer, as much as it must: 508 of the ranks are on other nodes.
    let usual = Machine::default();
    let slow = Machine { nic_rate: 1e9, ..usual.clone() };
    let [at_once, delayed] = [&usual, &slow].map(|machine| slabs.seconds(machine).unwrap()[0]);
    let least = slabs.forward.cost().sent_bytes as f64 / 511.0 * 508.0 / slow.nic_rate;
    assert!(delayed > at_once && delayed > least && delayed < 1.2 * least, "{at_once} {delayed}, at least {least}");
    // Copies wait for passes in one queue; with a queue each way they overlap.
    let queues = Machine { copy_queues: 2, ..usual.clone() };
    let alone: f64 = slabs.phase_seconds(&queues).unwrap()[0].iter().sum();
    let overlapped = slabs.seconds(&queues).unwrap()[0];
    assert!(overlapped < at_once && overlapped < 1.1 * alone, "{overlapped} {at_once} {alone}");
    assert!(slabs.memory.total() > slabs.memory.field + slabs.memory.spectrum);
}

#[test]
fn the_fastest_way_is_remembered() {
    let directory = std::env::temp_dir().join(format!("meshloom-tuning-{}", meshloom::io::token()));
    let file = directory.join("wisdom.txt");
    let options = meshloom_sanitizer::options().unwrap();
    let tune = |ranks: usize, size: u64| {
        let spec = Spec::of::<[f32; 2]>([size; 3]);
        let results = run_threads(ranks, |comm: Communicator| {
            let gpu = Gpu::open(&options, comm.rank())?;
            let tuned = Tuner::new(&gpu, &comm, &spec).remembering(&file).runs(1).tune::<[f32; 2]>()?;
            // What was chosen works.
            let mut comms = tuned.choice.comms(&comm)?;
            let transform = tuned.choice.transform::<[f32; 2]>(&gpu, &spec, &comms)?;
            let (mut recorder, layout) = (Recorder::new(&gpu)?, transform.field_layout());
            let (field, spectrum) = (transform.field(&gpu, &layout)?, transform.spectrum(&gpu)?);
            recorder.upload(&field, 0, &vec![[1.0, 0.0]; field.len() as usize])?;
            transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?;
            if comm.rank() == 0 {
                assert_eq!(recorder.download(&spectrum, 0, 1)?, [[(size * size * size) as f32, 0.0]]);
            }
            Ok::<_, meshloom::Error>(tuned)
        });
        let results = results.unwrap();
        assert!(results.iter().all(|tuned| tuned.choice == results[0].choice), "all ranks choose alike");
        results[0].clone()
    };
    let first = tune(2, 4);
    let least = first.tried.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    assert!(first.tried.len() > 5 && first.seconds == least);
    let again = tune(2, 4);
    assert!(again.tried.is_empty() && again.choice == first.choice, "it is remembered");
    // Another number of ranks is another question, and does not forget the first.
    assert!(!tune(1, 4).tried.is_empty() && tune(2, 4).tried.is_empty());
    // A file without wisdom counts as empty and is replaced.
    std::fs::write(&file, "{ \"half").unwrap();
    assert!(!tune(1, 4).tried.is_empty() && tune(1, 4).tried.is_empty());
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn ranks_that_disagree_are_told() {
    let results = run_threads(3, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let size = if comm.rank() == 2 { 8 } else { 4 };
        let spec = Spec::of::<f32>([size; 3]);
        match Tuner::new(&gpu, &comm, &spec).tune::<f32>() {
            Err(TransformError::Exchange(ExchangeError::Comm(CommError::Differ { argument, rank: 2, .. }))) => {
                assert_eq!(argument, "spec");
                Ok::<_, meshloom::Error>(())
            }
            other => panic!("{other:?}"),
        }
    });
    results.unwrap();
    let usual = |ranks: usize| {
        let gpu = Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap();
        TransformChoice::usual(&gpu, &Spec::of::<f32>([8; 3]), ranks).grid
    };
    assert_eq!(usual(4), [4, 1]);
}

#[test]
fn a_second_plan_compiles_nothing() {
    let options = Options { window_bytes: Some(1 << 20), kernels: 406, ..meshloom_sanitizer::options().unwrap() };
    let gpu = Gpu::open(&options, 0).unwrap();
    let comm = Communicator::solo();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let run = |recorder: &mut Recorder| {
        let mut comms = GridComms::new(&comm, Grid::new([1, 1], 1).unwrap()).unwrap();
        let transform = Transform::<f32>::new(&gpu, [6, 10, 12], comms.grid(), 0).unwrap();
        let layout = transform.field_layout();
        let (field, spectrum) = (transform.field(&gpu, &layout).unwrap(), transform.spectrum(&gpu).unwrap());
        recorder.clear(&field);
        transform.forward(recorder, &mut comms, &field, &layout, &spectrum).unwrap();
        transform.inverse(recorder, &mut comms, &spectrum, &field, &layout).unwrap();
        recorder.wait().unwrap();
        gpu.compiled()
    };
    let compiled = run(&mut recorder);
    assert!(compiled > 0);
    assert_eq!(run(&mut recorder), compiled);
}

/// A device of the least that there is in the form for GPUs, beside a software renderer: other
/// kernels, pieces of exchanges and passes alone, the same together.
#[test]
fn ranks_on_different_devices_plan_alike() {
    let shape = [16; 3];
    let parts = run_threads(2, |comm| {
        let (profile, floor) = [(Profile::Software, false), (Profile::Gpu, true)][comm.rank()];
        let options = Options { profile: Some(profile), floor, ..meshloom_sanitizer::options()? };
        let Rank { gpu, mut recorder, .. } = Rank::new(comm.clone(), Gpu::open(&options, 0)?)?;
        let tuning = TransformTuning::of(&gpu);
        let limits = tuning.limits(gpu.common());
        let planned = [tuning.pieces, tuning.alone, limits.workgroup_bytes, limits.invocations, limits.shared.into()];
        assert_eq!(comm.first_to_differ(planned)?, None, "{planned:?}");

        let grid = Grid::auto(shape, 2);
        let mut comms = GridComms::new(&comm, grid)?;
        let transform = Transform::<[f32; 2]>::new(&gpu, shape, grid, comm.rank())?;
        let (layout, spectrum) = (transform.field_layout(), transform.spectrum(&gpu)?);
        let field = gpu.array::<[f32; 2]>("field", layout.len())?;
        recorder.upload(&field, 0, &vec![[1.0, -2.0]; layout.len() as usize])?;
        transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?;
        recorder.clear(&field);
        transform.inverse(&mut recorder, &mut comms, &spectrum, &field, &layout)?;
        Ok::<_, meshloom::Error>(recorder.download(&field, 0, layout.len())?)
    });
    let field = parts.unwrap().concat();
    assert_eq!(field.len(), 16 * 16 * 16);
    assert!(field.iter().all(|[re, im]| (re - 1.0).abs() < 1e-6 && (im + 2.0).abs() < 1e-6));
}
