//! Infers positive numbers from products of neighbors, with an operator of one's own in WGSL: its
//! value and both derivatives. Samples of the posterior are spread over ranks.
//!
//! ```text
//! cargo run --release --example own_kernel_posterior
//! MESHLOOM_RANKS=3 cargo run --release --example own_kernel_posterior
//!
//! truth within 0.2 posterior standard deviations (rms), 0.12 wide
//! ```

use meshloom::Rank;
use meshloom::inference::{Data, Fit, FitOptions, Likelihood, NoiseLevel, SampleGroups};
use meshloom::operators::{
    KernelOperator, Leaf, Model, PointwiseOperator, Space, Vector, check_adjoint, check_derivative, random_field,
};

const PRODUCTS: &str = "
    fn value(i: u32) -> f32 { return x(i) * x(i + 1u); }
    fn jvp(i: u32) -> f32 { return dx(i) * x(i + 1u) + x(i) * dx(i + 1u); }
    fn vjp(i: u32) -> f32 { return dy(i) * x(i + 1u) + dy(i - 1u) * x(i - 1u); }";

/// Runs the example.
pub fn main() -> meshloom::Result<()> {
    meshloom::run(|rank| {
        let (groups, own) = SampleGroups::split(&rank.comm, rank.size())?;
        let mut rank = meshloom::Rank::new(own, rank.gpu.clone())?;

        // Standard normal numbers -> positive numbers -> products of neighbors.
        let latent = Space::of("xi", Leaf::vector(40))?;
        let exp = PointwiseOperator::wgsl("fn f(xi: f32) -> f32 { return exp(0.5 * xi); }", "f", &latent, "sky")?;
        let sky = Model::new(exp);
        let target = Space::of("products", Leaf::vector(39))?;
        let model = sky.then(&Model::new(KernelOperator::new("products", sky.target(), &target, PRODUCTS)?))?;

        // The derivatives are right, and data of a truth with noise of 0.02.
        let [truth, direction] = [random_field(&mut rank, &latent, 1)?, random_field(&mut rank, &latent, 2)?];
        check_adjoint(&mut rank, &model, &truth)?;
        check_derivative(&mut rank, &model, &truth, &direction)?;
        let noise = random_field(&mut rank, &target, 3)?;
        let mut data = model.value(&mut rank, &truth)?;
        rank.vector_axpby(0.02, &noise, 1.0, &mut data)?;
        let values = data.get(&mut rank.recorder, "products")?;
        let data = Data { name: "products", leaf: &Leaf::vector(39), values: &values, mask: None };
        let likelihood = Likelihood::gaussian(&mut rank, &data, NoiseLevel::Uniform(0.02))?.amend(&model)?;

        let start = Vector::zeros(&mut rank.recorder, &latent)?;
        let fit = Fit::new(&mut rank, &likelihood, &groups, &start, &FitOptions::new(8))?.run(&mut rank)?;
        let truth = sky.value(&mut rank, &truth)?;
        let mut value = |rank: &mut Rank, x: &Vector| Ok(sky.value(rank, x)?);
        let (mean, std) = fit.samples().mean_and_std(&mut rank, &groups, &truth, &mut value)?;
        let [truth, mean, std] = [truth, mean, std].map(|vector| vector.get(&mut rank.recorder, "sky"));
        let (truth, mean, std) = (truth?, mean?, std?);
        let rms = |values: Vec<f64>| (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt();
        let apart = (0..40).map(|i| (truth[i] - mean[i]) / std[i]).collect();
        if groups.all().rank() == 0 {
            let (apart, width) = (rms(apart), rms(std));
            println!("truth within {apart:.1} posterior standard deviations (rms), {width:.2} wide");
        }
        Ok(())
    })?;
    Ok(())
}
