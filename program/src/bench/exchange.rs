//! `meshloom bench exchange`: what a distributed transform sends, without its passes; or messages
//! of given sizes ([`ring`]).

use std::path::PathBuf;

use clap::Args;
use meshloom::exchange::{Exchange, GridComms};
use meshloom::fft::{Spec, Transform, TransformOptions, TransformTuning};
use meshloom::gpu::{Array, MemoryKind, Recorder};
use meshloom::grid::{Cost, Transfer, Transfers};
use meshloom::{Error, Rank};
use serde_json::json;

use super::input::Settings;
use super::input::name;
use super::input::values;
use super::report::{Reference, Report, amount, range, rate, time};
use super::ring;
use super::session::Session;
use crate::failure::{Ended, Failure};
use crate::machine::MachineOption;

#[derive(Args)]
pub struct Arguments {
    /// Cells of the mesh: one number for a cube, or three as 96x80x60; several with commas between
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "256", value_parser = super::input::shape)]
    size: Vec<[u64; 3]>,
    /// In place of a mesh: bytes that each rank sends to the next and receives from the one before,
    /// multiples of 4, several with commas between; `all` for some from 8 B to 64 MiB
    #[arg(long, value_name = "BYTES|all", value_delimiter = ',', conflicts_with_all = ["size", "reference"], value_parser = bytes)]
    bytes: Vec<Bytes>,
    /// Most bytes of a message [default: the library's]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    chunk_bytes: Option<u64>,
    /// Messages in flight each way [default: the library's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: Option<u16>,
    /// In place of a mesh: measure this machine for forecasts, write its description, for --machine
    /// of other commands, and compare forecasts with runs. On one node this measures what lies
    /// within it, on several what lies between nodes; the other values are those of --machine
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["size", "bytes", "chunk_bytes", "depth", "reference"])]
    fit: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineOption,
    #[command(flatten)]
    pub settings: Settings,
}

/// Sizes of `--bytes all`.
const ALL: [u64; 10] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// Most bytes.
const MOST: u64 = 1 << 30;

/// A word of `--bytes`.
#[derive(Clone, Debug)]
struct Bytes(Vec<u64>);

fn bytes(text: &str) -> Result<Bytes, String> {
    if text == "all" {
        return Ok(Bytes(ALL.into()));
    }
    let number = text.trim().parse::<u64>().ok().filter(|&n| n.is_multiple_of(4) && (4..=MOST).contains(&n));
    number
        .map(|n| Bytes(vec![n]))
        .ok_or_else(|| format!("`{text}` is no size; write a multiple of 4, up to {MOST}, or all"))
}

impl Arguments {
    /// Returns an exchange with the chunks of the call.
    fn set(&self, usual: Exchange) -> Exchange {
        let chunk = self.chunk_bytes.unwrap_or(usual.chunk_bytes());
        let depth = self.depth.map_or(usual.depth(), usize::from);
        usual.with_chunks(chunk, depth)
    }
}

const COLUMNS: [&str; 9] =
    ["mesh", "grid", "axis", "median", "least .. greatest", "sent per rank", "rate per rank", "blocking", "ratio"];

/// An exchange of a transform, between two of its passes.
struct TransposeExchange {
    shape: [u64; 3],
    comms: GridComms,
    axis: usize,
    transfers: Transfers,
}

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Ended> {
    let (settings, ranks) = (&arguments.settings, rank.comm.size());
    if let Some(path) = &arguments.fit {
        return super::fit::measure(rank, settings, arguments.machine.machine()?, path);
    }
    if ranks == 1 {
        let why = "an exchange needs two ranks at least; give --ranks 2, or start it under mpirun";
        return Err(Failure::Usage(why.into()).into());
    }
    if !arguments.bytes.is_empty() {
        let sizes: Vec<u64> = arguments.bytes.iter().flat_map(|Bytes(sizes)| sizes).copied().collect();
        return Ok(ring::measure(rank, settings, &sizes, |usual| arguments.set(usual))?);
    }
    let mut exchanges = Vec::new();
    for &shape in &arguments.size {
        let grid = settings.common.process_grid(shape, rank.comm.shares())?;
        // One piece is the whole of a transpose.
        let tuning = TransformTuning { pieces: 1, ..TransformTuning::of(&rank.gpu) };
        let (spec, options) = (Spec::of::<[f32; 2]>(shape), TransformOptions::default().tuning(tuning));
        let plan = Transform::<[f32; 2]>::with(&rank.gpu, &spec, grid, rank.comm.rank(), &options);
        let [refused] = super::measure::sum(&rank.comm, [u64::from(plan.is_err())])?;
        let plan = match plan {
            Err(error) if refused == ranks as u64 => {
                return Err(Failure::Usage(format!("--size {}: {error}", name(shape))).into());
            }
            plan => plan?,
        };
        for transpose in plan.plan().forward.exchanges() {
            let (axis, mut comms) = (transpose.grid_axis, GridComms::new(&rank.comm, grid)?);
            let set = arguments.set(comms.along(axis).clone());
            comms = comms.with_chunks(set.chunk_bytes(), set.depth());
            exchanges.push(TransposeExchange { shape, comms, axis, transfers: transpose.transfers(0) });
        }
    }
    let measurements = exchanges.len() * if settings.reference { 2 } else { 1 };
    let mut session = Session::new("exchange", settings, rank, measurements, &COLUMNS);
    for exchange in exchanges {
        measure_one(&mut session, exchange)?;
    }
    Ok(session.finish())
}

fn end(parts: &[Transfer]) -> u64 {
    parts.iter().map(|part| part.start + part.len).max().unwrap_or(0)
}

/// Measures and reports one exchange. Collective.
fn measure_one(session: &mut Session, exchange: TransposeExchange) -> Result<(), Error> {
    let Session { rank, settings, clock, report } = session;
    let recorder = &mut rank.recorder;
    let TransposeExchange { shape, mut comms, axis, transfers } = exchange;
    let grid = comms.grid();
    let exchange = comms.along(axis);
    let outgoing = rank.gpu.array_in::<[f32; 2]>("bench::outgoing", end(&transfers.send), MemoryKind::Outgoing)?;
    let incoming = rank.gpu.array_in::<[f32; 2]>("bench::incoming", end(&transfers.receive), MemoryKind::Incoming)?;
    recorder.upload(&outgoing, 0, bytemuck::cast_slice(&values(2 * outgoing.len(), rank.comm.rank())))?;
    let (chunk_bytes, depth, before) = (exchange.chunk_bytes(), exchange.depth(), exchange.cost());
    clock.once(recorder, |recorder| Ok(exchange.run(recorder, &transfers, &outgoing, &incoming)?))?;
    let Cost { sent_bytes, messages, .. } = exchange.cost().since(before);
    let ours = clock.together(recorder, |recorder| Ok(exchange.run(recorder, &transfers, &outgoing, &incoming)?))?;
    let blocking = if settings.reference {
        let pipelined = recorder.download(&incoming, 0, incoming.len())?;
        recorder.clear(&incoming);
        let spread = clock.together(recorder, |recorder| {
            whole_messages(&mut comms, axis, recorder, &transfers, [&outgoing, &incoming])
        })?;
        let differs = recorder.download(&incoming, 0, incoming.len())? != pipelined;
        let [differ] = clock.sum([u64::from(differs)])?;
        Some((spread, differ == 0))
    } else {
        None
    };
    let [between, messages] = clock.sum([sent_bytes, messages])?;
    let most = clock.most(sent_bytes)?;
    let speed = most as f64 / ours.median;
    let result = json!({
        "shape": shape, "values": "complex", "grid": grid.parts(), "axis": axis,
        "chunk_bytes": chunk_bytes, "depth": depth,
        "seconds": ours,
        "bytes": { "between_ranks": between, "a_rank": most },
        "messages": messages,
        "bytes_per_second_a_rank": speed,
    });
    let mut row = vec![name(shape), grid.to_string(), axis.to_string(), time(ours.median), range(&ours)];
    row.extend([format!("{}, {messages} messages in all", amount(most)), rate(speed)]);
    let blocking = blocking.map(|(seconds, same)| Reference {
        name: "whole messages, nothing overlapped",
        seconds,
        threads: None,
        what: format!("the exchange of {} along axis {axis} of {grid}", name(shape)),
        same,
    });
    report.add(row, result, &ours, blocking);
    Ok(())
}

/// Runs the same exchange without chunks: the whole array to the host, one message per peer, the
/// whole array back.
fn whole_messages(
    comms: &mut GridComms,
    axis: usize,
    recorder: &mut Recorder,
    transfers: &Transfers,
    [outgoing, incoming]: [&Array<[f32; 2]>; 2],
) -> Result<(), Error> {
    let comm = comms.along(axis).comm();
    let data = recorder.download(outgoing, 0, outgoing.len())?;
    let mut counts = vec![0; comm.size()];
    // The blocks of a transform lie in the order of the peers without gaps.
    transfers.send.iter().for_each(|part| counts[part.peer] += part.len);
    let came = comm.all_to_all_v(&data, &counts)?;
    Ok(recorder.upload(incoming, 0, came.data())?)
}
