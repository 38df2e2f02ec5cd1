//! A model with an operator of one's own: a correlated field, seen by a detector that saturates, at
//! some of its cells. The response is a function in WGSL; its derivatives are found by the library.
//! Gradient descent with momentum brings the field to the data.
//!
//! ```text
//! cargo run --release --example own_operator            # one rank
//! cargo run --release --example own_operator -- 4       # four ranks as threads
//! mpirun -n 4 target/release/examples/own_operator      # four MPI ranks (built with --features mpi)
//! ```

use meshloom::Rank;
use meshloom::gpu::Options;
use meshloom::operators::{
    Adjoint, Diagonal, Hartley, Leaf, Linear, Model, PointwiseOperator, Select, Space, Vector, Wavenumbers,
    check_adjoint, check_derivative, random_field,
};
use meshloom::{Error, Launch, Mesh, launch};

const RESPONSE: &str = "
    fn response(s: f32) -> f32 {
        let flux = exp(s);
        return flux / (1.0 + 0.2 * flux);
    }";

/// Excitations of all modes to what the detector counts at every third cell.
fn model(rank: &mut Rank, mesh: &Mesh) -> Result<Model, Error> {
    let (modes, cells) = (Space::of("xi", Leaf::modes(mesh))?, Space::of("s", Leaf::cells(mesh))?);
    // A power law of the wavenumber, as one amplitude for each mode: its normalization gives the
    // field a variance of about 1.
    let wavenumbers = Wavenumbers::unique(mesh)?;
    let spectrum = wavenumbers.amplitudes(rank, &modes)?;
    let power: Vec<f64> = wavenumbers.values().iter().map(|k| 0.2 / (1.0 + (k / 4.0).powi(2))).collect();
    let mut amplitudes = Vector::new(&rank.gpu, &spectrum.signature().domain)?;
    amplitudes.set(&mut rank.recorder, "amplitudes", &power)?;
    let amplitudes = Model::new(spectrum).value(rank, &amplitudes)?;

    let correlate = Model::new(Diagonal::new(&modes, &amplitudes)?);
    let transform = Model::new(Adjoint::new(Hartley::new(rank, &cells)?));
    let response = Model::new(PointwiseOperator::wgsl(RESPONSE, "response", transform.target(), "counts")?);
    let [_, n1, n2] = mesh.shape();
    let seen: Vec<[u64; 3]> = (0..n1 * n2).step_by(3).map(|cell| [0, cell / n2, cell % n2]).collect();
    let select = Model::new(Select::cells(rank, response.target(), &seen)?);
    Ok(correlate.then(&transform)?.then(&response)?.then(&select)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let losses = launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        let mesh = rank.mesh([48, 64]).periodic([4.8, 6.4]).build()?;
        let model = model(rank, &mesh)?;

        let truth = random_field(rank, model.domain(), 1)?;
        let data = model.value(rank, &truth)?;
        check_adjoint(rank, &model, &truth)?;
        let direction = random_field(rank, model.domain(), 2)?;
        let taylor = check_derivative(rank, &model, &truth, &direction)?;

        // Half the squared difference, downhill.
        let mut x = Vector::zeros(&mut rank.recorder, model.domain())?;
        let mut velocity = Vector::zeros(&mut rank.recorder, model.domain())?;
        let mut gradient = Vector::new(&rank.gpu, model.domain())?;
        let mut losses = Vec::new();
        for step in 0..60 {
            let mut at = model.at(rank, &x)?;
            rank.vector_axpby(-1.0, &data, 1.0, &mut at.value)?;
            let difference = at.value.clone();
            if step % 20 == 0 || step == 59 {
                losses.push(0.5 * rank.vector_dot(&difference, &difference)?);
            }
            at.vjp(rank, &difference, &mut gradient)?;
            drop(at);
            rank.vector_axpby(-0.02, &gradient, 0.8, &mut velocity)?;
            rank.vector_axpby(1.0, &velocity, 1.0, &mut x)?;
        }
        Ok::<_, Error>((rank.index(), taylor.to_string(), model.cost().to_string(), losses))
    })?;
    for (_, taylor, cost, losses) in losses.into_iter().filter(|(rank, ..)| *rank == 0) {
        println!("{taylor}\n{cost}\nloss {losses:.4?}");
        assert!(losses[losses.len() - 1] < 0.05 * losses[0], "the gradient goes downhill");
    }
    Ok(())
}
