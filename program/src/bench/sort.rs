//! `meshloom bench sort`: the stable order of 32- and 64-bit keys on one device.

use clap::Args;
use meshloom::gpu::Array;
use meshloom::gpu::primitives::{Count, Keys, Sort};
use meshloom::points::{Bounds, Curve, Domain, Frame};
use meshloom::{Error, Rank};
use serde_json::json;

use super::copy::{self, CopySpeed};
use super::input;
use super::input::Settings;
use super::measure::Spread;
use super::points::Kind;
use super::reference;
use super::report::{Reference, Report, amount, range, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Keys on each rank; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1048576",
        value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    size: Vec<u64>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Sorted keys: their bits, and whether they are random or those of points in a halo.
const KEYS: [(u32, Kind); 3] = [(63, Kind::Uniform), (63, Kind::Hernquist), (32, Kind::Uniform)];

const COLUMNS: [&str; 11] =
    ["keys", "bits", "of", "tied", "median", "least .. greatest", "keys/s", "bytes", "of copy", "on the host", "ratio"];

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let settings = &arguments.settings;
    let per = if settings.reference { 9 } else { 3 };
    let measurements = copy::MEASUREMENTS + arguments.size.len() * per;
    let mut session = Session::new("sort", settings, rank, measurements, &COLUMNS);
    let sort = Sort::new(&session.rank.gpu);
    session.report.field("form", format!("{:?}", sort.form()).to_lowercase().into());
    let copy = copy::measure(&mut session)?;
    for &size in &arguments.size {
        for what in KEYS {
            measure_one(&mut session, &copy, &sort, size, what)?;
        }
    }
    Ok(session.finish())
}

/// Sorts `size` keys with their index as payload, as a sort of particles does, and reports it.
/// Collective.
fn measure_one(
    session: &mut Session,
    copy: &CopySpeed,
    sort: &Sort,
    size: u64,
    (bits, kind): (u32, Kind),
) -> Result<(), Error> {
    let Session { rank, clock, .. } = session;
    let keys = match kind {
        Kind::Uniform => input::keys(size, bits, rank.comm.rank()),
        Kind::Hernquist => halo(size, rank.comm.rank())?,
    };
    let (high, low) = (upload(rank, &keys, 32)?, upload(rank, &keys, 0)?);
    let order = rank.gpu.array::<u32>("bench::order", size)?;
    let words = if bits > 32 { Keys::U64 { high: &high, low: &low } } else { Keys::U32(&low) };
    let ours = clock
        .together(&mut rank.recorder, |recorder| Ok(sort.order(recorder, words.bits(bits), &order, Count::All)?))?;
    let tied = sort.order_and_ties(&mut rank.recorder, words.bits(bits), &order, Count::All)?;
    let tied = tied.map_or(Ok(vec![0]), |tied| rank.recorder.download(&tied, 0, 1))?[0];
    let [keys_all, bytes, tied] = clock.sum([size, sort.traffic(bits > 32, bits, size), u64::from(tied)])?;
    let speed = keys_all as f64 / ours.median;
    let of_copy = bytes as f64 / ours.median / copy.bytes_per_second();
    let result = json!({
        "size": size, "bits": bits, "keys": name(kind), "tied": tied, "seconds": ours, "keys_per_second": speed,
        "bytes": { "device": bytes }, "of_copy": of_copy,
    });
    let mut row = vec![size.to_string(), bits.to_string(), name(kind).into(), tied.to_string()];
    row.extend([time(ours.median), range(&ours)]);
    row.extend([format!("{:.1} M", speed / 1e6), amount(bytes), format!("{of_copy:.2}")]);
    let mut theirs = None;
    if session.settings.reference {
        let order = session.rank.recorder.download(&order, 0, size)?;
        let (seconds, same) = sorted_on_host(session, &keys, &order)?;
        let what = format!("the order of {size} {} keys of {bits} bits", name(kind));
        let threads = Some(reference::threads());
        theirs = Some(Reference { name: reference::sort::NAME, seconds, threads, what, same });
    }
    session.report.add(row, result, &ours, theirs);
    Ok(())
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Uniform => "uniform",
        Kind::Hernquist => "clustered",
    }
}

/// Keys along the Morton curve of points in a halo with a cusp, with outliers far away.
fn halo(size: u64, rank: usize) -> Result<Vec<u64>, Error> {
    let positions = Kind::Hernquist.positions(size, 1.0, rank);
    let axis = |a: usize| positions.iter().skip(a).step_by(3).copied();
    let low = [0, 1, 2].map(|a| axis(a).fold(f32::INFINITY, f32::min));
    let high = [0, 1, 2].map(|a| axis(a).fold(f32::NEG_INFINITY, f32::max));
    let frame = Frame::new(&Domain::open(3)?, Some(Bounds { low, high }));
    Ok(positions.chunks_exact(3).map(|point| frame.key(Curve::Morton, point)).collect())
}

/// 32 bits of each key, from bit `shift` on.
fn upload(rank: &mut Rank, keys: &[u64], shift: u32) -> Result<Array<u32>, Error> {
    let words: Vec<u32> = keys.iter().map(|key| (key >> shift) as u32).collect();
    let array = rank.gpu.array::<u32>("bench::keys", words.len() as u64)?;
    rank.recorder.upload(&array, 0, &words)?;
    Ok(array)
}

/// Returns the time of the reference, and whether `order` is its order on all ranks.
fn sorted_on_host(session: &mut Session, keys: &[u64], order: &[u32]) -> Result<(Spread, bool), Error> {
    let Session { rank, clock, .. } = session;
    let pairs: Vec<(u64, u32)> = keys.iter().copied().zip(0..).collect();
    let mut sorted = pairs.clone();
    reference::sort::by_key(&mut sorted);
    let equal = order.iter().zip(&sorted).all(|(index, pair)| *index == pair.1);
    let same = clock.sum([u64::from(!equal)])? == [0];
    // Sorting what is sorted already would be quick: every run begins with the keys in their first
    // order, as on the device.
    let copied = clock.together(&mut rank.recorder, |_| {
        sorted.copy_from_slice(&pairs);
        Ok(())
    })?;
    let mut theirs = clock.together(&mut rank.recorder, |_| {
        sorted.copy_from_slice(&pairs);
        reference::sort::by_key(&mut sorted);
        Ok(())
    })?;
    for seconds in [&mut theirs.median, &mut theirs.min, &mut theirs.max] {
        *seconds -= copied.min;
    }
    Ok((theirs, same))
}
