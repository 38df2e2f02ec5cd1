//! Transforms, and operators made of them, between MPI processes.

use super::fourier::{Cell, cells, cut, modes, random, same};
use super::{Case, Inner, Outcome};
use meshloom::comm::Communicator;
use meshloom::exchange::GridComms;
use meshloom::fft::{Spec, Transform, TransformOptions, TransformTuning};
use meshloom::gpu::{Gpu, Recorder};
use meshloom::grid::Grid;
use meshloom::mesh::{PointsInCells, Window};
use meshloom::operators::{
    Adjoint, Hartley, Leaf, Model, PointwiseOperator, Readout, Space, Wavenumbers, check_adjoint, random_field,
};
use meshloom::{Error, Rank};

pub const CASE: Case = Case {
    name: "fft::transforms",
    ranks: &[1, 2, 3, 4],
    inner: Inner::Device(|comm| Ok(rank(comm)?)),
    outcome: Outcome::Passes,
};

/// Returns the whole spectrum and field, or this rank's parts of them.
fn both<T: Cell>(gpu: &Gpu, comms: &mut GridComms, spec: &Spec, whole: Option<&Both<T>>) -> Result<Both<T>, Error> {
    let mut recorder = Recorder::new(gpu)?;
    let tuning = TransformTuning { pieces: 3, ..TransformTuning::of(gpu) };
    let options = TransformOptions::default().tuning(tuning);
    let transform = Transform::<T>::with(gpu, spec, comms.grid(), comms.rank(), &options)?;
    let (layout, part) = (transform.field_layout(), transform.spectrum_part());
    let (field, spectrum) = (transform.field(gpu, &layout)?, transform.spectrum(gpu)?);
    recorder.upload(&field, 0, &cut(&random::<T>(cells(spec), 1), spec.cells, &layout.own))?;
    transform.forward(&mut recorder, comms, &field, &layout, &spectrum)?;
    let there = recorder.download(&spectrum, 0, spectrum.len())?;
    recorder.upload(&spectrum, 0, &cut(&random::<T::Mode>(modes(spec), 2), spec.spectrum(), &part))?;
    transform.inverse(&mut recorder, comms, &spectrum, &field, &layout)?;
    let back = recorder.download(&field, 0, field.len())?;
    if let Some(whole) = whole {
        let what = format!("rank {} of {}: {spec:?}", comms.rank(), comms.grid());
        same(&there, &cut(&whole.there, spec.spectrum(), &part), &what);
        same(&back, &cut(&whole.back, spec.cells, &layout.own), &what);
    }
    Ok(Both { there, back })
}

struct Both<T: Cell> {
    there: Vec<T::Mode>,
    back: Vec<T>,
}

/// On all grids of these ranks, the same bits as on one.
fn rank(comm: &Communicator) -> Result<(), Error> {
    let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
    let mut alone = GridComms::new(&Communicator::solo(), Grid::new([1, 1], 1)?)?;
    let ranks = comm.size();
    for shape in [[16, 12, 6], [9, 10, 11]] {
        for spec in [Spec::of::<f32>(shape), Spec::of::<f32>(shape).natural()] {
            let whole = both::<f32>(&gpu, &mut alone, &spec, None)?;
            for p in (1..=ranks).filter(|p| ranks.is_multiple_of(*p)) {
                for chunk in [100, 1 << 20] {
                    let mut comms = GridComms::new(comm, Grid::new([p, ranks / p], ranks)?)?.with_chunks(chunk, 2);
                    both(&gpu, &mut comms, &spec, Some(&whole))?;
                }
            }
        }
    }
    operators(comm, gpu)?;
    comm.barrier()?;
    Ok(())
}

/// Amplitudes and excitations to a field at points, whose adjoint paints and sums over all
/// processes.
fn operators(comm: &Communicator, gpu: Gpu) -> Result<(), Error> {
    let mut rank = Rank::new(comm.clone(), gpu)?;
    let mesh = rank.mesh([4, 6, 5]).periodic([4.0, 6.0, 5.0]).grid([1, comm.size()]).build()?;
    let (modes, cells) = (Space::of("xi", Leaf::modes(&mesh))?, Space::of("x", Leaf::cells(&mesh))?);
    let amplitudes = Wavenumbers::edges(&mesh, &[0.0, 1.0, 2.0, 9.0])?.amplitudes(&mut rank, &modes)?;
    let both = Model::new(amplitudes).named("a")?.zip(&Model::identity(&modes)?)?;
    let text = "fn f(a: f32, xi: f32) -> f32 { return a * xi; }";
    let product = Model::new(PointwiseOperator::wgsl(text, "f", both.target(), "x")?);
    let transform = Model::new(Adjoint::new(Hartley::new(&mut rank, &cells)?));
    let positions = [[0.5, 1.5, 2.5], [3.25, 5.75, 4.5], [3.0, 0.0, 0.0]];
    let own = |position: &&[f64; 3]| mesh.owns(PointsInCells::cell_of(**position, mesh.size(), mesh.shape()));
    let positions: Vec<[f64; 3]> = positions.iter().filter(own).copied().collect();
    let readout = Model::new(Readout::new(&mut rank, &cells, Window::Cic, &positions)?);
    let model = both.then(&product)?.then(&transform)?.then(&readout)?;
    let x = random_field(&mut rank, model.domain(), 1)?;
    check_adjoint(&mut rank, &model, &x)?;
    Ok(())
}
