//! The test that `docs/ci.md` shows, as it stands there.

use meshloom::{Error, Launch, exchange::GridComms, fft::Transform, gpu::Options, grid::Grid, launch};
use meshloom::{comm::run_threads, exchange::Context, fft::TransformTuning, gpu::Gpu, gpu::Profile};

/// A field of ones and its modes, on three ranks as threads; under MPI with `Launch::Mpi` and the feature `mpi`.
#[test]
fn a_transform_gives_its_input_back() {
    let shape = [12, 10, 8];
    let parts = launch(Launch::Threads(3), &Options::from_env().unwrap(), |mut context| {
        let grid = Grid::auto(shape, context.comm.size());
        let mut comms = GridComms::new(&context.comm, grid)?;
        let transform = Transform::new(&context.gpu, shape, grid, context.comm.rank())?;
        let layout = transform.field_layout();
        let field = context.gpu.array::<f32>("field", layout.len())?;
        let spectrum = transform.spectrum(&context.gpu)?;

        let recorder = &mut context.recorder;
        recorder.upload(&field, 0, &vec![1.0; layout.len() as usize])?;
        transform.forward(recorder, &mut comms, &field, &layout, &spectrum)?;
        recorder.clear(&field);
        transform.inverse(recorder, &mut comms, &spectrum, None, &field, &layout)?;
        Ok::<_, Error>(recorder.download(&field, 0, layout.len())?)
    });
    let field = parts.unwrap().concat();
    assert_eq!(field.len(), 12 * 10 * 8);
    assert!(field.iter().all(|value| (value - 1.0).abs() < 1e-6));
}

/// A device of the least that there is in the form for GPUs, beside a software renderer: other kernels, pieces of exchanges and passes alone, the same together.
#[test]
fn ranks_on_different_devices_plan_alike() {
    let shape = [16; 3];
    let parts = run_threads(2, |comm| {
        let (profile, floor) = [(Profile::Software, false), (Profile::Gpu, true)][comm.rank()];
        let options = Options { profile: Some(profile), floor, ..Options::from_env()? };
        let Context { gpu, mut recorder, .. } = Context::new(comm.clone(), Gpu::open(&options, 0)?)?;
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
        transform.inverse(&mut recorder, &mut comms, &spectrum, None, &field, &layout)?;
        Ok::<_, Error>(recorder.download(&field, 0, layout.len())?)
    });
    let field = parts.unwrap().concat();
    assert_eq!(field.len(), 16 * 16 * 16);
    assert!(field.iter().all(|[re, im]| (re - 1.0).abs() < 1e-6 && (im + 2.0).abs() < 1e-6));
}
