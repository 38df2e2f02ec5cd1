//! `meshloom bench map`: a function of many items over ranks and chunks, summed in order and
//! gathered, beside a loop of rayon.

use clap::Args;
use meshloom::gpu::{Kernel, KernelSource};
use meshloom::map::{ChunkSize, Deal, Items, MapChunk, Mapped, Mapping, Placement, RowReduction, map};
use meshloom::{Error, Rank};
use serde_json::json;

use super::input::Settings;
use super::reference;
use super::report::{Reference, Report, range, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Items of all ranks; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100000",
        value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    size: Vec<u64>,
    /// Items of a chunk; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1024,65536",
        value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    chunk: Vec<u64>,
    /// Steps that are computed for each item
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    steps: u32,
    #[command(flatten)]
    pub settings: Settings,
}

/// Invocations of a workgroup.
const GROUP: u32 = 64;

const COLUMNS: [&str; 9] = [
    "items",
    "chunk",
    "median",
    "least .. greatest",
    "items/s",
    "chunks a rank",
    "submits a rank",
    "on the host",
    "ratio",
];

meshloom::kernel_params! {
    struct OscillatorParams {
        count: u32,
        steps: u32,
    }
}

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let settings = &arguments.settings;
    let per = if settings.reference { 2 } else { 1 };
    let measurements = arguments.size.len() * arguments.chunk.len() * per;
    let mut session = Session::new("map", settings, rank, measurements, &COLUMNS);
    session.report.field("steps", arguments.steps.into());
    let source = KernelSource::new("bench::map", include_str!("map.wgsl")).params::<OscillatorParams>().group(GROUP);
    // SAFETY: both arrays have `count` elements, and the loop ends.
    let kernel = unsafe { Kernel::new_unchecked(source) };
    for &size in &arguments.size {
        for &chunk in &arguments.chunk {
            measure_one(&mut session, &kernel, [size, chunk], arguments.steps)?;
        }
    }
    Ok(session.finish())
}

/// Returns the items: constants of springs.
fn stiffness(size: u64) -> Vec<f32> {
    (0..size).map(|item| 0.5 + (item % 1000) as f32 / 1000.0).collect()
}

fn measure_one(session: &mut Session, kernel: &Kernel, [size, chunk]: [u64; 2], steps: u32) -> Result<(), Error> {
    let Session { rank, clock, settings, report } = session;
    let items = stiffness(size);
    let mapping = Mapping::new(size).chunk(ChunkSize::Items(chunk)).output("energies", 1, Placement::Sharded).output(
        "sum",
        1,
        Placement::Reduced(RowReduction::Sum),
    );
    let work = |rank: &mut Rank, chunk: &MapChunk| {
        let params = OscillatorParams { count: chunk.count() as u32, steps };
        let [energies, summed] = &chunk.outputs[..] else { return Ok(()) };
        let arrays = [chunk.inputs[0].raw(), energies.raw()];
        rank.recorder.dispatch(kernel, &arrays, &params, chunk.count().div_ceil(GROUP.into()))?;
        // Rows that are summed are overwritten: they are a copy.
        Ok::<_, Error>(rank.recorder.copy(energies, 0, summed, 0, chunk.count())?)
    };
    let before = rank.recorder.counts().submits;
    let mut mapped: Option<Mapped> = Some(map(rank, &mapping, &[Items::Host(&items)], work)?);
    let submits = rank.recorder.counts().submits - before;
    let ours = clock.together(*rank, |rank| {
        mapped = Some(map(rank, &mapping, &[Items::Host(&items)], work)?);
        Ok(())
    })?;
    let Some(mapped) = mapped else { return Ok(()) };
    let chunks = mapped.report.chunks;
    let speed = size as f64 / ours.median;
    let result = json!({
        "size": size, "chunk": chunk, "seconds": ours, "items_per_second": speed, "chunks": chunks,
        "submits": submits,
    });
    let mut row = vec![size.to_string(), chunk.to_string(), time(ours.median), range(&ours)];
    row.extend([format!("{:.2} M", speed / 1e6), chunks.to_string(), submits.to_string()]);
    let mut theirs = None;
    if settings.reference {
        let block = Deal { items: size, shares: rank.comm.shares() }.block(rank.comm.rank());
        let own = &items[block.start as usize..block.end as usize];
        let mut energies = vec![0.0; own.len()];
        let mut sum = 0.0;
        let seconds = clock.together(&mut rank.recorder, |_| {
            sum = reference::map::energies(own, steps, &mut energies);
            Ok(())
        })?;
        let mut all = [sum];
        rank.comm.all_reduce(&mut all, meshloom::comm::Op::Sum)?;
        let found = mapped.output("sum").map_or(Ok(vec![f32::NAN]), |sum| rank.recorder.download(sum, 0, 1))?[0];
        // Sums of as many roundings as there are steps and levels of the tree.
        let same = (f64::from(found) - all[0]).abs() <= 1e-6 * f64::from(steps).max(30.0) * all[0].abs();
        let [differ] = clock.sum([u64::from(!same)])?;
        theirs = Some(Reference {
            name: reference::map::NAME,
            seconds,
            threads: Some(reference::threads()),
            what: format!("the sum of {size} items"),
            same: differ == 0,
        });
    }
    report.add(row, result, &ours, theirs);
    Ok(())
}
