//! `meshloom bench shallow-water`: steps of the shallow-water model.

use clap::Args;
use meshloom::Rank;
use meshloom_program::models::shallow_water::{ShallowWater, ShallowWaterConfig, ShallowWaterError};
use serde_json::json;

use super::copy::{self, CopySpeed};
use super::input;
use super::input::Settings;
use super::measure::Spread;
use super::reference::{self, shallow_water::Reference};
use super::report::{self, Report, amount, range, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Columns and rows, as 360x180; several with commas between
    #[arg(long, value_name = "NXxNY", value_delimiter = ',', default_value = "360x180", value_parser = input::plane)]
    size: Vec<[u64; 2]>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Steps that are timed together: as in a run, they are submitted together where there is one rank.
const STEPS: u64 = 50;

/// Steps after which results are compared with the reference's.
const COMPARED: u64 = 10;

/// Returns an upper bound in m of the accumulated roundings of [`COMPARED`] steps, if all had one
/// sign, for elevations up to `greatest` on water of the depth `depth`: half a unit of the
/// elevation per step, and the roundings of four fluxes, which grow with the height; the derivation
/// is in `tests/shallow_water.rs`.
fn roundings(greatest: f32, depth: f64) -> f32 {
    (COMPARED + 1) as f32 * (greatest * f32::EPSILON / 2.0 + 1.6e-6 * (1.0 + greatest / depth as f32))
}

const COLUMNS: [&str; 12] = [
    "cells",
    "grid",
    "a step",
    "least .. greatest",
    "per cell",
    "cells/s",
    "bytes per cell",
    "of copy",
    "exchanges",
    "between",
    "on the host",
    "ratio",
];

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, ShallowWaterError> {
    let settings = &arguments.settings;
    let per = if settings.reference { 2 } else { 1 };
    let measurements = copy::MEASUREMENTS + per * arguments.size.len();
    let mut session = Session::new("shallow-water", settings, rank, measurements, &COLUMNS);
    let copy = copy::measure(&mut session)?;
    for &cells in &arguments.size {
        measure_one(&mut session, &copy, cells)?;
    }
    Ok(session.finish())
}

/// Measures and reports a grid. Collective.
fn measure_one(session: &mut Session, copy: &CopySpeed, cells: [u64; 2]) -> Result<(), ShallowWaterError> {
    let Session { rank, clock, .. } = session;
    let config = ShallowWaterConfig { cells, grid: session.settings.common.grid, ..ShallowWaterConfig::default() };
    let mut water = ShallowWater::<f32>::new(rank, config.clone())?;
    let all = clock.together(*rank, |rank: &mut Rank| water.advance(rank, STEPS))?;
    let per_step = |seconds: f64| seconds / STEPS as f64;
    let step = Spread { median: per_step(all.median), min: per_step(all.min), max: per_step(all.max), ..all };
    let planned = water.step_cost();
    let cost = planned.cost;
    let [device, between, messages] = clock.sum([cost.device_bytes, cost.sent_bytes, cost.messages])?;
    let (count, exchanges) = ((cells[0] * cells[1]) as f64, clock.most(planned.exchanges)?);
    let of_copy = device as f64 / step.median / copy.bytes_per_second();
    let per_cell = device as f64 / count;
    let name = format!("{}x{}", cells[0], cells[1]);
    let result = json!({
        "cells": cells, "grid": water.grid().parts(), "seconds": step, "nanoseconds_a_cell": step.median * 1e9 / count,
        "cell_steps_per_second": count / step.median, "bytes_per_cell_step": per_cell, "exchanges_per_step": exchanges,
        "bytes": { "device": device, "between_ranks": between }, "messages": messages, "of_copy": of_copy,
    });
    let row = vec![
        name.clone(),
        water.grid().to_string(),
        time(step.median),
        range(&step),
        format!("{:.2} ns", step.median * 1e9 / count),
        format!("{:.1} M", count / step.median / 1e6),
        format!("{per_cell:.0}"),
        format!("{of_copy:.2}"),
        exchanges.to_string(),
        if between > 0 { format!("{}, {messages} messages", amount(between)) } else { String::new() },
    ];
    drop(water);
    let theirs = on_host(session, &config)?.map(|(seconds, same)| report::Reference {
        name: reference::shallow_water::NAME,
        seconds,
        threads: Some(reference::threads()),
        what: format!("the flow on {name} cells"),
        same,
    });
    session.report.add(row, result, &step, theirs);
    Ok(())
}

/// Returns the time of a step of the reference, on the host of rank 0, and whether it has our flow;
/// none on other ranks, and where it was not asked for. Collective.
fn on_host(session: &mut Session, config: &ShallowWaterConfig) -> Result<Option<(Spread, bool)>, ShallowWaterError> {
    if !session.settings.reference {
        return Ok(None);
    }
    let Session { rank, clock, .. } = session;
    let mut water = ShallowWater::<f32>::new(rank, config.clone())?;
    let start = water.flow(rank)?;
    water.advance(rank, COMPARED)?;
    let end = water.flow(rank)?;
    drop(water);
    let [eta, u, ours] = [&start.elevation, &start.velocity[0], &end.elevation].map(|own| gathered(rank, config, own));
    let (eta, u, ours) = (eta?, u?, ours?);
    let reference = if rank.comm.rank() == 0 { Reference::new(config, &eta, &u) } else { None };
    let Some(mut reference) = reference else {
        clock.alone::<1>(None)?;
        return Ok(None);
    };
    (0..COMPARED).for_each(|_| reference.step());
    let bound = roundings(ours.iter().fold(0.0, |most: f32, eta| most.max(eta.abs())), config.depth);
    // What is not a number is near nothing.
    let same = bound.is_finite() && reference.elevation().zip(&ours).all(|(a, b)| (a - b).abs() <= bound);
    let theirs = clock.alone::<1>(Some(&mut |_| reference.step()))?;
    Ok(theirs.map(|[theirs]| (theirs, same)))
}

/// Returns a field of all ranks on each of them. Collective.
fn gathered(rank: &Rank, config: &ShallowWaterConfig, own: &[f32]) -> Result<Vec<f32>, ShallowWaterError> {
    let parts = rank.comm.all_gather_v(own)?;
    let mut whole = vec![0.0; config.cells.iter().product::<u64>() as usize];
    for (number, part) in parts.iter().enumerate() {
        let (starts, length) = config.rows(rank.comm.shares(), number)?;
        for (start, row) in starts.zip(part.chunks(length.max(1) as usize)) {
            whole[start as usize..][..row.len()].copy_from_slice(row);
        }
    }
    Ok(whole)
}
