//! `meshloom bench exchange --fit`: the description of this machine for forecasts, from measured
//! exchanges, transforms, copies and steps of particles, and forecasts beside runs. Times are the
//! least of several runs: other work on the machine only adds to them.

use std::path::Path;

use meshloom::cluster::Machine;
use meshloom::comm::Communicator;
use meshloom::exchange::{Exchange, GridComms};
use meshloom::fft::Transform;
use meshloom::gpu::{ExchangePath, MemoryKind, Profile, Recorder};
use meshloom::grid::{Grid, Transfer, Transfers};
use meshloom::io::write_whole;
use meshloom::{Error, Rank};
use serde_json::json;

use super::fit_check::{self, Comparison, ranks_per_device};
use super::input::Settings;
use super::report::{Report, time};
use super::session::Session;
use crate::config_file;
use crate::failure::Ended;

/// Bytes that each rank sends, and bytes of a chunk: short messages, many messages, many bytes.
const SIZES: [[u64; 2]; 9] = [
    [8, 2 << 20],
    [4 << 10, 2 << 20],
    [64 << 10, 2 << 20],
    [64 << 10, 4 << 10],
    [1 << 20, 2 << 20],
    [1 << 20, 16 << 10],
    [4 << 20, 2 << 20],
    [16 << 20, 2 << 20],
    [48 << 20, 2 << 20],
];

/// Cells along each axis of the transforms whose passes are measured: little work, and much.
const CELLS: [u64; 2] = [8, 64];
const CELLS_OF_GPU: u64 = 256;

/// Numbers of f32 values of the copies within a device that are measured.
const COPIED: [u64; 2] = [1 << 14, 1 << 22];
const COPIED_OF_GPU: u64 = 1 << 27;

const COLUMNS: [&str; 4] = ["work", "measured", "model", "model / measured"];

/// A measured exchange.
struct Sample {
    bytes: u64,
    chunk_bytes: u64,
    seconds: f64,
}

/// A value of a machine that is fitted.
type Value = fn(&mut Machine) -> &mut f64;

/// Measures this machine, writes it to `path` on rank 0, and reports how well it fits. Values that
/// are not measured are those of `base`. Collective.
pub fn measure(rank: &mut Rank, settings: &Settings, base: Machine, path: &Path) -> Result<Report, Ended> {
    crate::output_name::check_name(path, &["toml"])?;
    let ranks = rank.comm.size();
    let mut machine = rank.machine(base).map_err(Error::from)?;
    // Several nodes: all messages leave their node.
    let is_apart = ranks > machine.ranks_per_node;
    let distance = if is_apart { machine.ranks_per_node } else { 1 };
    let exchange = rank.exchange.clone();
    let depth = exchange.depth() as u64;
    let sizes: &[[u64; 2]] = if ranks > 1 { &SIZES } else { &[] };
    let measurements = sizes.len() + CELLS.len() + COPIED.len() + fit_check::measurements(rank);
    let mut session = Session::new("exchange", settings, rank, measurements, &COLUMNS);
    let mut samples = Vec::new();
    for &[bytes, chunk_bytes] in sizes {
        let exchange = exchange.clone().with_chunks(chunk_bytes, exchange.depth());
        let seconds = ring(&mut session, exchange, distance, bytes)?;
        samples.push(Sample { bytes, chunk_bytes, seconds });
    }
    passes(&mut session, &mut machine)?;
    copies(&mut session, &mut machine)?;
    fit_check::particles(&mut session, &mut machine)?;
    let model = |machine: &Machine, sample: &Sample| {
        machine.ring_seconds(ranks, distance, sample.bytes, [sample.chunk_bytes, depth])
    };
    let misfit = |machine: &Machine| {
        let square = |sample: &Sample| (model(machine, sample) / sample.seconds).ln().powi(2);
        samples.iter().map(square).sum::<f64>()
    };
    let machine = fitted(machine, &values(session.rank, is_apart), &misfit);
    let of_sample = |sample: &Sample| Comparison {
        work: format!("{} bytes, chunks of {}", sample.bytes, sample.chunk_bytes),
        seconds: sample.seconds,
        model_seconds: model(&machine, sample),
    };
    let mut comparisons: Vec<Comparison> = samples.iter().map(of_sample).collect();
    report(&mut session.report, "largest_ratio_of_fit", &comparisons);
    comparisons = fit_check::compare(&mut session, &machine)?;
    report(&mut session.report, "largest_ratio_of_forecasts", &comparisons);
    session.report.field("machine", json!(machine));
    let text = config_file::text(&machine)?;
    if session.rank.index() == 0 {
        write_whole(path, text.as_bytes()).map_err(Error::from)?;
    }
    Ok(session.finish())
}

/// Reports comparisons, and the largest factor by which two times differ under this name.
fn report(report: &mut Report, name: &'static str, comparisons: &[Comparison]) {
    let mut largest = 1.0f64;
    for Comparison { work, seconds, model_seconds } in comparisons {
        let ratio = model_seconds / seconds;
        largest = largest.max(ratio).max(1.0 / ratio);
        report.row(vec![work.clone(), time(*seconds), time(*model_seconds), format!("{ratio:.2}")]);
        report.result(json!({ "work": work, "seconds": seconds, "model_seconds": model_seconds }));
    }
    report.field(name, largest.into());
}

/// Returns the values that exchanges of this machine depend on.
fn values(rank: &Rank, is_apart: bool) -> Vec<Value> {
    let mut values: Vec<Value> = vec![|machine| &mut machine.message_seconds, |machine| &mut machine.submit_seconds];
    values.push(if is_apart {
        |machine| &mut machine.latency_seconds
    } else {
        |machine| &mut machine.local_latency_seconds
    });
    let path = rank.exchange.path(&rank.gpu);
    if path != Some(ExchangePath::Mapped) {
        values.push(|machine| &mut machine.copy_rate);
    }
    if !matches!(path, Some(ExchangePath::Ring | ExchangePath::Peer)) && !is_apart {
        values.push(|machine| &mut machine.host_copy_rate);
    }
    if is_apart {
        values.push(|machine| &mut machine.nic_rate);
    }
    values
}

/// Returns the machine whose values have the least misfit, found by changing one at a time by a
/// factor that shrinks.
fn fitted(start: Machine, values: &[Value], misfit: &dyn Fn(&Machine) -> f64) -> Machine {
    let (mut best, mut least, mut factor) = (start.clone(), misfit(&start), 4.0f64);
    while factor > 1.005 {
        let before = least;
        for value in values {
            for by in [factor, 1.0 / factor] {
                let mut changed = best.clone();
                *value(&mut changed) *= by;
                let found = misfit(&changed);
                if changed.check().is_ok() && found < least {
                    (best, least) = (changed, found);
                }
            }
        }
        if least >= before {
            factor = factor.sqrt();
        }
    }
    best
}

/// Returns the least seconds in which each rank sends `bytes` bytes to the rank `distance` after
/// it.
fn ring(session: &mut Session, mut exchange: Exchange, distance: usize, bytes: u64) -> Result<f64, Error> {
    let Session { rank, clock, .. } = session;
    let (size, me, len) = (rank.comm.size(), rank.comm.rank(), bytes / 4);
    let outgoing = rank.gpu.array_in::<f32>("bench::outgoing", len, MemoryKind::Outgoing)?;
    let incoming = rank.gpu.array_in::<f32>("bench::incoming", len, MemoryKind::Incoming)?;
    rank.recorder.clear(&outgoing);
    let part = |peer: usize| vec![Transfer { peer: peer % size, start: 0, len }];
    let transfers = Transfers { send: part(me + distance), receive: part(me + size - distance % size) };
    let run = |recorder: &mut _| Ok(exchange.run(recorder, &transfers, &outgoing, &incoming)?);
    Ok(clock.together(&mut rank.recorder, run)?.min)
}

/// Measures copies within devices that all ranks record at the same time.
fn copies(session: &mut Session, machine: &mut Machine) -> Result<(), Error> {
    let Session { rank, clock, .. } = session;
    let large = if rank.gpu.common().profile == Profile::Gpu { COPIED_OF_GPU } else { COPIED[1] };
    let mut seconds = Vec::new();
    for len in [COPIED[0], large] {
        let [from, to] = [rank.gpu.array::<f32>("bench::from", len)?, rank.gpu.array::<f32>("bench::to", len)?];
        rank.recorder.clear(&from);
        let run = |recorder: &mut Recorder| Ok(recorder.copy(&from, 0, &to, 0, len)?);
        seconds.push(clock.together(&mut rank.recorder, run)?.min);
    }
    let bytes = 2.0 * 4.0 * (large - COPIED[0]) as f64;
    machine.device_copy_rate = (ranks_per_device(machine) * bytes / (seconds[1] - seconds[0]).max(1e-9)).min(1e18);
    Ok(())
}

/// Measures the passes of transforms that all ranks compute at the same time, each one its own.
fn passes(session: &mut Session, machine: &mut Machine) -> Result<(), Error> {
    let Session { rank, clock, .. } = session;
    let large = if rank.gpu.common().profile == Profile::Gpu { CELLS_OF_GPU } else { CELLS[1] };
    let mut measured = Vec::new();
    for cells in [CELLS[0], large] {
        let grid = Grid::new([1, 1], 1)?;
        let mut comms = GridComms::new(&Communicator::solo(), grid)?;
        let transform = Transform::<[f32; 2]>::new(&rank.gpu, [cells; 3], grid, 0)?;
        let (layout, spectrum) = (transform.field_layout(), transform.spectrum(&rank.gpu)?);
        let field = transform.field(&rank.gpu, &layout)?;
        rank.recorder.clear(&field);
        let run = |recorder: &mut _| Ok(transform.forward(recorder, &mut comms, &field, &layout, &spectrum)?);
        let seconds = clock.together(&mut rank.recorder, run)?.min;
        measured.push((seconds, transform.plan().forward.traffic() as f64));
    }
    // Three passes each.
    let ranks_per_device = ranks_per_device(machine);
    let [(short, few), (long, many)] = [measured[0], measured[1]];
    machine.memory_rate = ranks_per_device * (many - few) / (long - short).max(1e-9);
    machine.dispatch_seconds = (short / ranks_per_device / 3.0 - few / machine.memory_rate / 3.0).clamp(1e-9, 1.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_the_machine_that_was_simulated() {
        let base = Machine { path: ExchangePath::Mapped, devices: 1, ..Machine::default() };
        let truth =
            Machine { message_seconds: 3e-6, local_latency_seconds: 2e-5, host_copy_rate: 2.5e9, ..base.clone() };
        let seconds = |machine: &Machine, [bytes, chunk]: [u64; 2]| machine.ring_seconds(2, 1, bytes, [chunk, 8]);
        let misfit = |machine: &Machine| {
            SIZES.iter().map(|&size| (seconds(machine, size) / seconds(&truth, size)).ln().powi(2)).sum()
        };
        let values: [Value; 3] = [
            |machine| &mut machine.message_seconds,
            |machine| &mut machine.local_latency_seconds,
            |machine| &mut machine.host_copy_rate,
        ];
        let mut found = fitted(base, &values, &misfit);
        let mut truth = truth;
        for value in values {
            let ratio = *value(&mut found) / *value(&mut truth);
            assert!((0.97..1.03).contains(&ratio), "{found:?}");
        }
    }
}
