//! `meshloom fft --plan-only`: a forecast of the cost of a transform on each rank, without a device
//! or a file.

use std::collections::BTreeMap;

use meshloom::fft::{DirectionForecast, Forecast, Precision, Spec, TransformTuning, Values};
use meshloom::gpu::{Profile, bytes};
use meshloom::grid::{Cost, Grid};
use serde_json::json;

use super::arguments::Arguments;
use crate::common;
use crate::failure::Failure;
use crate::scaling;
use crate::terminal;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let (options, common) = (&arguments.plan, &arguments.common);
    let cells = match options.shape[..] {
        [n] => [1, 1, n],
        [n0, n1] => [1, n0, n1],
        [n0, n1, n2] => [n0, n1, n2],
        _ => return Err(Failure::Usage("--shape: an array has 1, 2 or 3 axes".into())),
    };
    let values = if arguments.real { Values::Real } else { Values::Complex };
    let precision = arguments.precision.map_or(Precision::Single, Precision::from);
    let spec = Spec { values, precision, ..Spec::of::<f32>(cells) }.fields(options.fields).norm(arguments.norm.into());
    let spec = if options.natural { spec.natural() } else { spec };
    let usual = TransformTuning::profile(Profile::Gpu);
    let tuning = TransformTuning { pieces: options.pieces.unwrap_or(usual.pieces), ..usual };
    let machine = options.machine.machine()?;
    let on = |grid: Grid, rank: usize| {
        Forecast::new(&spec, grid, rank, &tuning, options.chunk_bytes).map_err(|e| usage(&format!("--shape: {e}")))
    };
    let seconds = |forecast: &Forecast| forecast.seconds(&machine).map_err(|e| usage(&format!("--shape: {e}")));
    if let Some(most) = options.scaling {
        let forward = |grid: Grid| Some(seconds(&on(grid, 0).ok()?).ok()?[0]);
        return terminal::print(&scaling::table("seconds of a forward transform", most as usize, &machine, forward));
    }
    let shares = common.forecast_shares()?;
    let grid = match common.grid {
        Some(parts) => Grid::new(parts, shares).map_err(|e| usage(&format!("--grid: {e}")))?,
        None => Grid::auto(cells, shares),
    };
    // Traffic is summed over the ranks.
    let largest = on(grid, grid.largest(cells))?;
    let mut all = [Cost::default(); 2];
    for (rank, count) in alike(cells, grid) {
        let one = on(grid, rank)?;
        for _ in 0..count {
            all[0] += one.forward.cost();
            all[1] += one.inverse.cost();
        }
    }
    let phases = largest.phase_seconds(&machine).map_err(|e| usage(&e))?;
    let [forward, inverse] = seconds(&largest)?;
    let times = [(forward, &phases[0]), (inverse, &phases[1])];
    let directions = [(&largest.forward, 0), (&largest.inverse, 1)].map(|(costs, n)| Direction {
        costs,
        phase_seconds: times[n].1,
        seconds: times[n].0,
        all: all[n],
    });
    match common.json {
        true => terminal::print_object(&object(arguments, &largest, &directions)),
        false => terminal::print(&(table(&largest, &directions).join("\n") + "\n")),
    }
}

/// Forecast of one direction.
struct Direction<'a> {
    /// Costs of the rank with the largest parts.
    costs: &'a DirectionForecast,
    /// Seconds of each phase alone.
    phase_seconds: &'a [f64],
    /// Seconds with overlap.
    seconds: f64,
    /// Sum of the costs of all ranks.
    all: Cost,
}

/// Returns a rank of each kind, and how many ranks are of its kind: those with parts of the same
/// sizes, whose forecasts are equal.
fn alike(cells: [u64; 3], grid: Grid) -> BTreeMap<usize, u64> {
    // A half spectrum has an axis of its own.
    let axes = [cells[0], cells[1], cells[2], cells[2] / 2 + 1];
    let (mut kinds, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for rank in 0..grid.ranks() {
        let at = grid.at(rank);
        let kind = [0, 1].map(|axis| axes.map(|n| grid.shares_along(axis).len_of(n, at[axis])));
        *counts.entry(*kinds.entry(kind).or_insert(rank)).or_default() += 1;
    }
    counts
}

/// Returns the lines of a forecast.
fn table(forecast: &Forecast, directions: &[Direction<'_>; 2]) -> Vec<String> {
    let (memory, grid) = (&forecast.memory, forecast.plan.grid);
    let mut lines = vec![format!("grid {grid:?}, {} ranks; of the largest rank:", grid.ranks())];
    lines.push(format!(
        "memory {}: field {}, spectrum {}, working arrays {} (forward) and {} (inverse)",
        bytes(memory.total()),
        bytes(memory.field),
        bytes(memory.spectrum),
        bytes(memory.working[0]),
        bytes(memory.working[1])
    ));
    for (name, Direction { costs, phase_seconds, seconds, all }) in ["forward", "inverse"].iter().zip(directions) {
        lines.push(format!("{name:<20} {:>12} {:>12} {:>10} {:>12}", "device memory", "sent", "messages", "seconds"));
        for (phase, seconds) in costs.phases.iter().zip(*phase_seconds) {
            let cost = phase.cost;
            let (device, sent) = (bytes(cost.device_bytes), bytes(cost.sent_bytes));
            lines.push(format!("  {:<18} {device:>13} {sent:>12} {:>10} {seconds:>12.6}", phase.name, cost.messages));
        }
        let cost = costs.cost();
        let device = bytes(cost.device_bytes);
        lines.push(format!(
            "  {:<18} {device:>13} {:>12} {:>10} {:>12.6}",
            "all, overlapped",
            bytes(cost.sent_bytes),
            cost.messages,
            seconds
        ));
        lines.push(format!("  all ranks together send {} in {} messages", bytes(all.sent_bytes), all.messages));
    }
    lines
}

fn object(arguments: &Arguments, forecast: &Forecast, directions: &[Direction<'_>; 2]) -> serde_json::Value {
    let grid = forecast.plan.grid;
    let direction = |Direction { costs, phase_seconds, seconds, all }: &Direction<'_>| {
        let phases: Vec<_> = costs
            .phases
            .iter()
            .zip(*phase_seconds)
            .map(|(phase, seconds)| {
                json!({
                    "name": phase.name, "seconds": seconds, "messages": phase.cost.messages,
                    "bytes": { "device": phase.cost.device_bytes, "sent": phase.cost.sent_bytes, "received": phase.cost.received_bytes },
                })
            })
            .collect();
        let cost = costs.cost();
        json!({
            "phases": phases, "seconds": seconds, "messages": cost.messages,
            "bytes": { "device": cost.device_bytes, "sent": cost.sent_bytes, "received": cost.received_bytes },
            "all_ranks": { "bytes": all.sent_bytes, "messages": all.messages },
        })
    };
    let memory = &forecast.memory;
    json!({
        "command": "fft", "plan_only": true,
        "shape": arguments.plan.shape, "fields": arguments.plan.fields,
        "values": if arguments.real { "real" } else { "complex" },
        "precision": common::Precision::from(forecast.plan.spec.precision),
        "ranks": grid.ranks(), "grid": grid.parts(),
        "memory": {
            "total": memory.total(), "field": memory.field, "spectrum": memory.spectrum,
            "working": { "forward": memory.working[0], "inverse": memory.working[1] },
        },
        "forward": direction(&directions[0]),
        "inverse": direction(&directions[1]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums over kinds against sums over ranks.
    #[test]
    fn ranks_of_a_kind_have_equal_costs() {
        let tuning = TransformTuning::profile(Profile::Gpu);
        for (cells, parts) in [
            ([12, 10, 9], [3, 2]),
            ([7, 16, 5], [5, 3]),
            ([4, 4, 4], [6, 1]),
            ([1, 30, 14], [1, 4]),
            ([1, 1, 240], [1, 6]),
        ] {
            for values in [Values::Real, Values::Complex] {
                let spec = Spec { values, ..Spec::of::<f32>(cells) };
                let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
                let cost = |rank: usize| {
                    let one = Forecast::new(&spec, grid, rank, &tuning, 64).unwrap();
                    let numbers = |cost: Cost| [cost.device_bytes, cost.sent_bytes, cost.received_bytes, cost.messages];
                    [numbers(one.forward.cost()), numbers(one.inverse.cost())]
                };
                let add = |sum: [[u64; 4]; 2], one: [[u64; 4]; 2]| {
                    [0, 1].map(|n| [0, 1, 2, 3].map(|m| sum[n][m] + one[n][m]))
                };
                let each = (0..grid.ranks()).map(cost).fold(Default::default(), add);
                let kinds = alike(cells, grid);
                assert!(kinds.len() <= grid.ranks());
                let kinds = kinds.into_iter().flat_map(|(rank, count)| (0..count).map(move |_| rank));
                assert_eq!(kinds.map(cost).fold(Default::default(), add), each, "{cells:?} {parts:?} {values:?}");
            }
        }
    }
}
