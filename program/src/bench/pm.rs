//! `meshloom bench pm`: steps of a particle-mesh simulation.

use std::time::Instant;

use clap::Args;
use meshloom::comm::Op;
use meshloom::mesh::Window;
use meshloom::pm::{Config, Noise, Simulation, SimulationError};
use meshloom::{Error, Rank};
use serde_json::json;

use super::copy::{self, CopySpeed};
use super::input;
use super::input::Settings;
use super::measure::{Spread, WARM_UP};
use super::report::{Report, amount, range, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Particles along each axis; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64",
        value_parser = clap::value_parser!(u64).range(1..=1 << 14))]
    size: Vec<u64>,
    /// Cells of the force mesh along each axis, for one particle
    #[arg(long, value_name = "F", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=8))]
    mesh_factor: u64,
    /// Window of painting and reading; several with commas between
    #[arg(long, value_enum, value_name = "cic|tsc|pcs", value_delimiter = ',', default_value = "cic")]
    window: Vec<WindowName>,
    #[command(flatten)]
    pub settings: Settings,
}

/// A mass assignment window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WindowName {
    /// Cloud in cell: 8 cells a particle
    Cic,
    /// Triangular-shaped cloud: 27 cells a particle
    Tsc,
    /// Piecewise cubic spline: 64 cells a particle
    Pcs,
}

const COLUMNS: [&str; 10] = [
    "particles",
    "mesh",
    "window",
    "start",
    "a step",
    "least .. greatest",
    "per particle",
    "memory",
    "of copy",
    "between",
];

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let settings = &arguments.settings;
    let cases: Vec<_> = arguments.size.iter().flat_map(|&n| arguments.window.iter().map(move |&w| (n, w))).collect();
    let mut session = Session::new("pm", settings, rank, copy::MEASUREMENTS + cases.len(), &COLUMNS);
    let copy = copy::measure(&mut session)?;
    for (particles, window) in cases {
        measure_one(&mut session, &copy, config(arguments, particles, window))?;
    }
    Ok(session.finish())
}

/// A run with as many steps as are measured, in a box with a particle per (Mpc/h)^3, so that
/// displacements in cells are those of usual runs.
fn config(arguments: &Arguments, particles: u64, window: WindowName) -> Config {
    let window = match window {
        WindowName::Cic => Window::Cic,
        WindowName::Tsc => Window::Tsc,
        WindowName::Pcs => Window::Pcs,
    };
    Config {
        particles,
        mesh: particles * arguments.mesh_factor,
        box_size: particles as f64,
        window,
        // And one whose kernels are measured.
        steps: (WARM_UP + arguments.settings.runs + u32::from(arguments.settings.kernels)) as usize,
        grid: arguments.settings.common.grid,
        ..Config::default()
    }
}

/// Measures and reports one run. Collective.
fn measure_one(session: &mut Session, copy: &CopySpeed, config: Config) -> Result<(), Error> {
    let Session { rank, settings, clock, report } = session;
    let last = WARM_UP as usize + settings.runs as usize;
    let (particles, mesh, window) = (config.particles.pow(3), config.mesh, config.window);
    let mut start = 0.0;
    let begun = Instant::now();
    let mut simulation = Simulation::new(rank, config, Noise::Seed)?;
    let (mut seconds, mut before) = (Vec::new(), begun);
    let cost = simulation.cost();
    simulation.run(rank, |_, rank, reached| {
        rank.recorder.wait().map_err(SimulationError::from)?;
        let mut slowest = [before.elapsed().as_secs_f64()];
        rank.comm.all_reduce(&mut slowest, Op::Max)?;
        match reached.step {
            0 => start = slowest[0],
            step if step > WARM_UP as usize && step <= last => seconds.push(slowest[0]),
            _ => {}
        }
        if settings.kernels && reached.step == last {
            rank.recorder.measure(true).map_err(SimulationError::from)?;
        }
        before = Instant::now();
        Ok::<(), Error>(())
    })?;
    clock.counted();
    let step = Spread::new(seconds, 1);
    clock.add_kernels(step.median, rank.recorder.kernel_times());
    rank.recorder.measure(false)?;
    let steps = simulation.steps() as u64;
    let sent = simulation.cost().since(cost);
    let [memory, between, messages] =
        clock.sum([simulation.traffic(), sent.sent_bytes, sent.messages].map(|all| all / steps))?;
    let of_copy = memory as f64 / step.median / copy.bytes_per_second();
    let window = format!("{window:?}").to_lowercase();
    let per_particle = step.median * 1e9 / particles as f64;
    report.row(vec![
        particles.to_string(),
        input::name([mesh; 3]),
        window.clone(),
        time(start),
        time(step.median),
        range(&step),
        format!("{per_particle:.1} ns"),
        amount(memory),
        format!("{of_copy:.2}"),
        if between > 0 { format!("{}, {messages} messages", amount(between)) } else { String::new() },
    ]);
    report.result(json!({
        "particles": particles, "mesh": mesh, "window": window, "grid": simulation.grid().parts(),
        "start": start, "seconds": step, "nanoseconds_a_particle": per_particle,
        "bytes": { "device": memory, "between_ranks": between }, "messages": messages, "of_copy": of_copy,
    }));
    Ok(())
}
