//! The test that `docs/ci.md` shows, as it stands there.

use meshloom::{Error, Launch, exchange::GridComms, fft::Transform, gpu::Options, grid::Grid, launch};

/// A field of ones and its modes, on three ranks as threads; under MPI with `Launch::Mpi` and the
/// feature `mpi`.
#[test]
fn a_transform_gives_its_input_back() {
    let shape = [12, 10, 8];
    let parts = launch(Launch::Threads(3), &Options::from_env().unwrap(), |context| {
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
        transform.inverse(recorder, &mut comms, &spectrum, &field, &layout)?;
        Ok::<_, Error>(recorder.download(&field, 0, layout.len())?)
    });
    let field = parts.unwrap().concat();
    assert_eq!(field.len(), 12 * 10 * 8);
    assert!(field.iter().all(|value| (value - 1.0).abs() < 1e-6));
}
