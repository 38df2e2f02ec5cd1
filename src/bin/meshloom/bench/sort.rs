//! `meshloom bench sort`: the stable order of 32- and 64-bit keys on one device.

use clap::Args;
use meshloom::gpu::primitives::{Count, Keys, Sort};
use meshloom::gpu::{Array, Recorder};
use meshloom::{Context, Error};
use serde_json::json;

use super::copy::{self, CopySpeed};
use super::measure::Clock;
use super::reference;
use super::report::{self, Report, amount, range, ratio, time};
use super::{Found, Settings};
use crate::common::Failure;

#[derive(Args)]
pub struct Arguments {
    /// Keys on each rank; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1048576",
        value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    size: Vec<u64>,
    #[command(flatten)]
    settings: Settings,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    reference::check(arguments.settings.reference)?;
    arguments.settings.run(|rank| measure(rank, arguments))
}

const COLUMNS: [&str; 9] =
    ["keys", "bits", "median", "least .. greatest", "keys/s", "bytes", "of copy", "on the host", "ratio"];

fn measure(rank: &Context, arguments: &Arguments) -> Result<Found, Error> {
    let settings = &arguments.settings;
    let per = if settings.reference { 6 } else { 2 };
    let clock = Clock::new(settings, rank, copy::MEASUREMENTS + arguments.size.len() * per);
    let mut recorder = Recorder::new(&rank.gpu)?;
    let mut report = Report::new("sort", settings, rank, &COLUMNS);
    let sort = Sort::new(&rank.gpu);
    report.field("form", format!("{:?}", sort.form()).to_lowercase().into());
    let copy = copy::measure(rank, &clock, &mut recorder)?;
    report.copy(&copy);
    for &size in &arguments.size {
        for bits in [63, 32] {
            let mut bench = Bench { rank, settings, clock: &clock, copy: &copy, report: &mut report, sort: &sort };
            bench.measure(&mut recorder, size, bits)?;
        }
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
    sort: &'a Sort,
}

/// Random keys of so many bits, different for every rank.
pub fn random(count: u64, bits: u32, rank: usize) -> Vec<u64> {
    let mut state = rank as u64;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> (64 - bits)
    };
    std::iter::repeat_with(next).take(count as usize).collect()
}

impl Bench<'_> {
    /// Keys of so many bits with their index as payload: what a sort of particles does.
    fn measure(&mut self, recorder: &mut Recorder, size: u64, bits: u32) -> Result<(), Error> {
        let (gpu, clock, sort) = (&self.rank.gpu, self.clock, self.sort);
        let keys = random(size, bits, self.rank.comm.rank());
        let upload = |recorder: &mut Recorder, shift: u32| -> Result<Array<u32>, Error> {
            let words: Vec<u32> = keys.iter().map(|key| (key >> shift) as u32).collect();
            let array = gpu.array::<u32>("bench::keys", size)?;
            recorder.upload(&array, 0, &words)?;
            Ok(array)
        };
        let (high, low) = (upload(recorder, 32)?, upload(recorder, 0)?);
        let order = gpu.array::<u32>("bench::order", size)?;
        let words = if bits > 32 { Keys::U64 { high: &high, low: &low } } else { Keys::U32(&low) };
        let ours =
            clock.together(recorder, |recorder| Ok(sort.order(recorder, words.bits(bits), &order, Count::All)?))?;
        let [keys_all, bytes] = clock.sum([size, sort.traffic(bits > 32, bits, size)])?;
        let speed = keys_all as f64 / ours.median;
        let of_copy = bytes as f64 / ours.median / self.copy.bytes_per_second();
        let mut result = json!({
            "size": size, "bits": bits, "seconds": ours.json(), "keys_per_second": speed,
            "bytes": { "device": bytes }, "of_copy": of_copy,
        });
        let mut row = vec![size.to_string(), bits.to_string(), time(ours.median), range(&ours)];
        row.extend([format!("{:.1} M", speed / 1e6), amount(bytes), format!("{of_copy:.2}")]);
        if self.settings.reference {
            let pairs: Vec<(u64, u32)> = keys.iter().copied().zip(0..).collect();
            let mut sorted = pairs.clone();
            reference::sort::by_key(&mut sorted);
            let device = recorder.download(&order, 0, size)?;
            let equal = device.iter().zip(&sorted).all(|(index, pair)| *index == pair.1);
            let same = clock.sum([u64::from(!equal)])? == [0];
            // Sorting what is sorted would be quick: every run begins with the keys as they were, as on the device.
            let copied = clock.together(recorder, |_| {
                sorted.copy_from_slice(&pairs);
                Ok(())
            })?;
            let mut theirs = clock.together(recorder, |_| {
                sorted.copy_from_slice(&pairs);
                reference::sort::by_key(&mut sorted);
                Ok(())
            })?;
            for seconds in [&mut theirs.median, &mut theirs.min, &mut theirs.max] {
                *seconds -= copied.min;
            }
            result["reference"] = report::reference(&ours, reference::sort::NAME, &theirs);
            result["reference"]["threads"] = reference::threads().into();
            row.extend([time(theirs.median), ratio(&ours, &theirs)]);
            let what = format!("the order of {size} keys of {bits} bits");
            self.report.compared(&mut result["reference"], what, same);
        } else {
            row.extend([String::new(), String::new()]);
        }
        self.report.row(row);
        self.report.result(result);
        Ok(())
    }
}
