//! A small cosmological run driven from the library: prints how its power grows.
//!
//! ```text
//! cargo run --release --example simulation -- 2    # two ranks as threads
//! ```

use meshloom::gpu::Options;
use meshloom::pm::{Config, Noise, Simulation};
use meshloom::{Error, Launch, launch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let config = Config { particles: 32, mesh: 64, box_size: 128.0, steps: 8, ..Config::default() };
    launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
        simulation.run(rank, |simulation, rank, reached| {
            let bins = simulation.power(rank)?;
            if rank.index() == 0 {
                let linear = simulation.linear_power().at(bins[0].k, reached.a)?;
                println!(
                    "a = {:.4}   P({:.3} h/Mpc) = {:8.1} (Mpc/h)^3, linear theory {linear:8.1}",
                    reached.a, bins[0].k, bins[0].power
                );
            }
            Ok::<_, Error>(())
        })
    })?;
    Ok(())
}
