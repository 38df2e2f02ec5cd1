//! `meshloom bench halo`: ghosts.

use clap::Args;
use meshloom::exchange::GridComms;
use meshloom::exchange::ghost_cells::{Cells, GhostCells};
use meshloom::gpu::Recorder;
use meshloom::grid::{Block, Cost, GhostPlan, Link, Sweep, volume};
use meshloom::{Context, Error};
use serde_json::{Value, json};

use super::copy::{self, CopySpeed};
use super::measure::{Clock, Spread};
use super::report::{self, Report, amount, range, rate, ratio, time};
use super::{Found, Settings, name, values};
use crate::common::Failure;

#[derive(Args)]
pub struct Arguments {
    /// Cells of the mesh: one number for a cube, or three as 96x80x60; several with commas between
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "256", value_parser = super::shape)]
    size: Vec<[u64; 3]>,
    /// Ghost cells on either side of every axis
    #[arg(long, value_name = "CELLS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=4096))]
    width: u64,
    #[command(flatten)]
    settings: Settings,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.settings.run(|rank| measure(rank, arguments))
}

const COLUMNS: [&str; 10] =
    ["mesh", "grid", "what", "median", "least .. greatest", "ghosts", "of copy", "between", "on the host", "ratio"];

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Exchange,
    Reduce,
}

const WAYS: [Way; 2] = [Way::Exchange, Way::Reduce];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Exchange => "exchange",
            Way::Reduce => "reduce",
        }
    }

    /// The sweeps of a halo in this direction's order, with what a rank gives and takes.
    fn sweeps(self, plan: &GhostPlan) -> Vec<(&Sweep, &[Link], &[Link])> {
        let sweeps = plan.sweeps.iter();
        match self {
            Way::Exchange => sweeps.map(|sweep| (sweep, &sweep.owned[..], &sweep.ghosts[..])).collect(),
            Way::Reduce => sweeps.rev().map(|sweep| (sweep, &sweep.ghosts[..], &sweep.owned[..])).collect(),
        }
    }

    /// Bytes that packing, unpacking and what a rank sends itself read and write in device memory.
    fn traffic(self, plan: &GhostPlan, lines: &mut GridComms) -> u64 {
        let cells = |links: &[Link]| links.iter().map(|link| link.block.len()).sum::<u64>();
        let mut traffic = 0;
        for (sweep, give, take) in self.sweeps(plan) {
            let me = lines.along(sweep.axis).comm().rank();
            let own = cells(&give.iter().copied().filter(|link| link.peer == me).collect::<Vec<_>>());
            let unpacked = if self == Way::Exchange { 2 } else { 3 };
            traffic += 2 * cells(give) + 2 * own + unpacked * cells(take);
        }
        4 * traffic
    }
}

fn measure(rank: &Context, arguments: &Arguments) -> Result<Found, Error> {
    let settings = &arguments.settings;
    let per = if settings.reference { 4 } else { 2 };
    let clock = Clock::new(settings, rank, copy::MEASUREMENTS + arguments.size.len() * per);
    let mut recorder = Recorder::new(&rank.gpu)?;
    let mut report = Report::new("halo", settings, rank, &COLUMNS);
    report.field("width", arguments.width.into());
    let copy = copy::measure(rank, &clock, &mut recorder)?;
    report.copy(&copy);
    for &shape in &arguments.size {
        Bench { rank, settings, clock: &clock, copy: &copy, report: &mut report }.measure(
            &mut recorder,
            shape,
            arguments.width,
        )?;
    }
    report.field("seconds", json!({ "total": clock.finish() }));
    Ok(Ok(report))
}

struct Bench<'a> {
    rank: &'a Context,
    settings: &'a Settings,
    clock: &'a Clock,
    copy: &'a CopySpeed,
    report: &'a mut Report,
}

impl Bench<'_> {
    fn measure(&mut self, recorder: &mut Recorder, shape: [u64; 3], width: u64) -> Result<(), Error> {
        let (rank, clock) = (self.rank, self.clock);
        let grid = self.settings.grid(shape, rank.comm.size())?;
        let mut lines = GridComms::new(&rank.comm, grid)?;
        let plan = GhostPlan::new(shape, grid, rank.comm.rank(), [[width; 2]; 3], [true; 3]);
        let halo = GhostCells::new(plan);
        let ghosts = halo.layout().len() - volume(&halo.layout().own);
        let field = rank.gpu.array::<f32>("bench::field", halo.layout().len())?;
        let content = values(field.len(), rank.comm.rank());
        recorder.upload(&field, 0, &content)?;
        let mut costs = Vec::new();
        let run = |recorder: &mut Recorder, way: Way, lines: &mut GridComms| match way {
            Way::Exchange => halo.exchange(recorder, lines, &field, Cells::Float),
            Way::Reduce => halo.reduce(recorder, lines, &field, Cells::Float),
        };
        for way in WAYS {
            let before = lines.cost();
            clock.once(recorder, |recorder| Ok(run(recorder, way, &mut lines)?))?;
            let after = lines.cost();
            costs.push(Cost {
                sent: after.sent - before.sent,
                received: after.received - before.received,
                messages: after.messages - before.messages,
            });
        }
        // Both have run once, on the device and now on the host.
        let mut host = self.settings.reference.then(|| Host { plan: halo.plan().clone(), field: content });
        let same = match &mut host {
            Some(host) => {
                WAYS.into_iter().try_for_each(|way| host.run(way, &mut lines))?;
                let device = recorder.download(&field, 0, field.len())?;
                clock.sum([u64::from(!close(&device, &host.field))])? == [0]
            }
            None => false,
        };
        let mut result = json!({ "shape": shape, "grid": grid.parts() });
        for (way, cost) in WAYS.into_iter().zip(costs) {
            let ours = clock.together(recorder, |recorder| Ok(run(recorder, way, &mut lines)?))?;
            let theirs = match &mut host {
                Some(host) => Some(clock.together(recorder, |_| host.run(way, &mut lines))?),
                None => None,
            };
            let mine = [4 * ghosts, way.traffic(halo.plan(), &mut lines), cost.sent, cost.messages];
            let theirs = theirs.map(|theirs| (theirs, same));
            result[way.name()] = self.way([&name(shape), &grid.to_string(), way.name()], mine, &ours, theirs)?;
        }
        self.report.result(result);
        Ok(())
    }

    /// Reports one direction.
    fn way(
        &mut self,
        names: [&str; 3],
        mine: [u64; 4],
        ours: &Spread,
        theirs: Option<(Spread, bool)>,
    ) -> Result<Value, Error> {
        let [ghosts, device, between, messages] = self.clock.sum(mine)?;
        let (speed, of_copy) =
            (ghosts as f64 / ours.median, device as f64 / ours.median / self.copy.bytes_per_second());
        let mut result = json!({
            "seconds": ours.json(),
            "bytes": { "ghosts": ghosts, "device": device, "between_ranks": between },
            "messages": messages,
            "bytes_per_second": speed,
            "of_copy": of_copy,
        });
        let mut row = names.map(String::from).to_vec();
        let sent = if between > 0 { format!("{} in {messages}", amount(between)) } else { String::new() };
        let ghosts = format!("{} at {}", amount(ghosts), rate(speed));
        row.extend([time(ours.median), range(ours), ghosts, format!("{of_copy:.2}"), sent]);
        match theirs {
            Some((theirs, same)) => {
                result["reference"] = report::reference(ours, "arrays of the host, one thread a rank", &theirs);
                let [mesh, grid, way] = names;
                let what = format!("the {way} of {mesh} on {grid}");
                self.report.compared(&mut result["reference"], what, same);
                row.extend([time(theirs.median), ratio(ours, &theirs)]);
            }
            None => row.extend([String::new(), String::new()]),
        }
        self.report.row(row);
        Ok(result)
    }
}

/// Whether two fields are the same, but for the order in which sums may be taken.
fn close(device: &[f32], host: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    device.len() == host.len() && device.iter().zip(host).all(near)
}

/// The same halo of a field in host memory: one message a neighbour and axis.
struct Host {
    plan: GhostPlan,
    field: Vec<f32>,
}

impl Host {
    fn run(&mut self, way: Way, lines: &mut GridComms) -> Result<(), Error> {
        for (sweep, give, take) in way.sweeps(&self.plan) {
            let comm = lines.along(sweep.axis).comm();
            let (mut message, mut counts) = (Vec::new(), vec![0; comm.size()]);
            // Links stand in the order of the peers.
            for link in give {
                counts[link.peer] += link.block.len();
                rows(link.block).for_each(|row| message.extend_from_slice(&self.field[row]));
            }
            let came = comm.all_to_all_v(&message, &counts)?;
            let mut rest = came.data();
            for row in take.iter().flat_map(|link| rows(link.block)) {
                let (values, after) = rest.split_at(row.len());
                match way {
                    Way::Exchange => self.field[row].copy_from_slice(values),
                    Way::Reduce => self.field[row].iter_mut().zip(values).for_each(|(cell, value)| *cell += value),
                }
                rest = after;
            }
        }
        Ok(())
    }
}

/// The rows of a block, as ranges of the array.
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
