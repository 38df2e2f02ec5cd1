//! `meshloom bench halo`: ghost cells of a mesh.

use clap::Args;
use meshloom::exchange::GridComms;
use meshloom::exchange::ghost_cells::GhostCells;
use meshloom::gpu::Recorder;
use meshloom::grid::{Block, GhostPlan, Link, Sweep, volume};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use super::copy::{self, CopySpeed};
use super::input::Settings;
use super::input::name;
use super::input::values;
use super::measure::Spread;
use super::report::{Reference, Report, amount, range, rate, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Cells of the mesh: one number for a cube, or three as 96x80x60; several with commas between
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "256", value_parser = super::input::shape)]
    size: Vec<[u64; 3]>,
    /// Ghost cells on either side of every axis
    #[arg(long, value_name = "CELLS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=4096))]
    width: u64,
    #[command(flatten)]
    pub settings: Settings,
}

const COLUMNS: [&str; 10] =
    ["mesh", "grid", "what", "median", "least .. greatest", "ghosts", "of copy", "between", "on the host", "ratio"];

/// An exchange of ghost cells.
#[derive(Clone, Copy, PartialEq)]
enum Operation {
    /// Fill them from their owners.
    Exchange,
    /// Add them to their owners.
    Reduce,
}

const OPERATIONS: [Operation; 2] = [Operation::Exchange, Operation::Reduce];

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Exchange => "exchange",
            Operation::Reduce => "reduce",
        }
    }

    /// Returns the sweeps over the axes in their order, each with the blocks that this rank sends
    /// and receives.
    fn sweeps(self, plan: &GhostPlan) -> Vec<(&Sweep, &[Link], &[Link])> {
        let sweeps = plan.sweeps.iter();
        match self {
            Operation::Exchange => sweeps.map(|sweep| (sweep, &sweep.owned[..], &sweep.ghosts[..])).collect(),
            Operation::Reduce => sweeps.rev().map(|sweep| (sweep, &sweep.ghosts[..], &sweep.owned[..])).collect(),
        }
    }

    /// Returns the bytes that packing, unpacking and a rank's copies to itself read and write in
    /// device memory.
    fn traffic(self, plan: &GhostPlan, comms: &mut GridComms) -> u64 {
        let cells = |links: &[Link]| links.iter().map(|link| link.block.len()).sum::<u64>();
        let mut traffic = 0;
        for (sweep, send, receive) in self.sweeps(plan) {
            let me = comms.along(sweep.axis).comm().rank();
            let own = cells(&send.iter().copied().filter(|link| link.peer == me).collect::<Vec<_>>());
            let unpacked = if self == Operation::Exchange { 2 } else { 3 };
            traffic += 2 * cells(send) + 2 * own + unpacked * cells(receive);
        }
        4 * traffic
    }
}

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let settings = &arguments.settings;
    let per = if settings.reference { 4 } else { 2 };
    let measurements = copy::MEASUREMENTS + arguments.size.len() * per;
    let mut session = Session::new("halo", settings, rank, measurements, &COLUMNS);
    session.report.field("width", arguments.width.into());
    let copy = copy::measure(&mut session)?;
    for &shape in &arguments.size {
        measure_one(&mut session, &copy, shape, arguments.width)?;
    }
    Ok(session.finish())
}

/// Both operations on one mesh. Collective.
fn measure_one(session: &mut Session, copy: &CopySpeed, shape: [u64; 3], width: u64) -> Result<(), Error> {
    let Session { rank, settings, clock, .. } = session;
    let recorder = &mut rank.recorder;
    let grid = settings.common.process_grid(shape, rank.comm.shares())?;
    let mut comms = GridComms::new(&rank.comm, grid)?;
    let plan = GhostPlan::new(shape, grid, rank.comm.rank(), [[width; 2]; 3], [true; 3])?;
    let ghosts = GhostCells::new(plan);
    let cells = ghosts.plan.layout.len() - volume(&ghosts.plan.layout.own);
    let field = rank.gpu.array::<f32>("bench::field", ghosts.plan.layout.len())?;
    let content = values(field.len(), rank.comm.rank());
    recorder.upload(&field, 0, &content)?;
    let run = |recorder: &mut Recorder, operation: Operation, comms: &mut GridComms| match operation {
        Operation::Exchange => ghosts.exchange(recorder, comms, &field),
        Operation::Reduce => ghosts.reduce(recorder, comms, &field),
    };
    let mut costs = Vec::new();
    for operation in OPERATIONS {
        let before = comms.cost();
        clock.once(recorder, |recorder| Ok(run(recorder, operation, &mut comms)?))?;
        costs.push(comms.cost().since(before));
    }
    // Both have run once on the device, and now do so on the host.
    let mut host = settings.reference.then(|| HostField { plan: ghosts.plan.clone(), field: content });
    let same = match &mut host {
        Some(host) => {
            OPERATIONS.into_iter().try_for_each(|operation| host.run(operation, &mut comms))?;
            let device = recorder.download(&field, 0, field.len())?;
            clock.sum([u64::from(!close(&device, &host.field))])? == [0]
        }
        None => false,
    };
    let mut measured = Vec::new();
    for (operation, cost) in OPERATIONS.into_iter().zip(costs) {
        let ours = clock.together(recorder, |recorder| Ok(run(recorder, operation, &mut comms)?))?;
        let theirs = match &mut host {
            Some(host) => Some((clock.together(recorder, |_| host.run(operation, &mut comms))?, same)),
            None => None,
        };
        let counts = [4 * cells, operation.traffic(&ghosts.plan, &mut comms), cost.sent_bytes, cost.messages];
        let [ghosts, device, between, messages] = clock.sum(counts)?;
        measured.push(Measured { operation, ours, theirs, ghosts, device, between, messages });
    }
    let mut result = json!({ "shape": shape, "grid": grid.parts() });
    for measured in &measured {
        result[measured.operation.name()] = report_one(session, copy, [&name(shape), &grid.to_string()], measured);
    }
    session.report.result(result);
    Ok(())
}

/// One operation on one mesh; bytes and messages are those of all ranks.
struct Measured {
    operation: Operation,
    ours: Spread,
    /// Time of the same exchange on the host, and whether its result is equal.
    theirs: Option<(Spread, bool)>,
    ghosts: u64,
    /// Read and written in device memory.
    device: u64,
    /// Between ranks.
    between: u64,
    messages: u64,
}

/// Adds a row to the table, and returns the object of one operation.
fn report_one(session: &mut Session, copy: &CopySpeed, [mesh, grid]: [&str; 2], measured: &Measured) -> Value {
    let &Measured { operation, ours, theirs, ghosts, device, between, messages } = measured;
    let speed = ghosts as f64 / ours.median;
    let of_copy = device as f64 / ours.median / copy.bytes_per_second();
    let mut result = json!({
        "seconds": ours,
        "bytes": { "ghosts": ghosts, "device": device, "between_ranks": between },
        "messages": messages,
        "bytes_per_second": speed,
        "of_copy": of_copy,
    });
    let mut row = [mesh, grid, operation.name()].map(String::from).to_vec();
    let sent = if between > 0 { format!("{} in {messages}", amount(between)) } else { String::new() };
    let ghosts = format!("{} at {}", amount(ghosts), rate(speed));
    row.extend([time(ours.median), range(&ours), ghosts, format!("{of_copy:.2}"), sent]);
    if let Some((seconds, same)) = theirs {
        let what = format!("the {} of {mesh} on {grid}", operation.name());
        let name = "arrays of the host, one thread per rank";
        let theirs = Reference { name, seconds, threads: None, what, same };
        result["reference"] = session.report.beside(&mut row, &ours, theirs);
    }
    session.report.row(row);
    result
}

/// Returns `true` if two fields are equal except for the rounding of sums in another order.
fn close(device: &[f32], host: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    device.len() == host.len() && device.iter().zip(host).all(near)
}

/// Reference: the same field with the same ghost cells in host memory: one message per neighbor and
/// axis.
struct HostField {
    plan: GhostPlan,
    field: Vec<f32>,
}

impl HostField {
    fn run(&mut self, operation: Operation, comms: &mut GridComms) -> Result<(), Error> {
        for (sweep, send, receive) in operation.sweeps(&self.plan) {
            let comm = comms.along(sweep.axis).comm();
            let (mut message, mut counts) = (Vec::new(), vec![0; comm.size()]);
            // Links are in the order of the peers.
            for link in send {
                counts[link.peer] += link.block.len();
                rows(link.block).for_each(|row| message.extend_from_slice(&self.field[row]));
            }
            let received = comm.all_to_all_v(&message, &counts)?;
            let mut rest = received.data();
            for row in receive.iter().flat_map(|link| rows(link.block)) {
                let (values, after) = rest.split_at(row.len());
                match operation {
                    Operation::Exchange => self.field[row].copy_from_slice(values),
                    Operation::Reduce => {
                        self.field[row].iter_mut().zip(values).for_each(|(cell, value)| *cell += value)
                    }
                }
                rest = after;
            }
        }
        Ok(())
    }
}

/// Returns the rows of a block, as ranges of the array.
fn rows(block: Block) -> impl Iterator<Item = std::ops::Range<usize>> {
    let Block { offset, extent: [n0, n1, n2], strides: [s0, s1, _] } = block;
    (0..n0).flat_map(move |i| {
        (0..n1).map(move |j| {
            let start = (offset + i * s0 + j * s1) as usize;
            start..start + n2 as usize
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_differ_by_more_than_rounding() {
        assert!(close(&[0.0, 1.0, -8.0], &[1e-7, 1.000_001, -8.000_01]));
        assert!(!close(&[1.0], &[1.001]) && !close(&[1.0], &[1.0, 0.0]) && !close(&[f32::NAN], &[f32::NAN]));
    }
}
