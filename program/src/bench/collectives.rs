//! `meshloom bench collectives`: the collectives of the host and of device arrays, beside those of
//! MPI where it runs the ranks.

use clap::{Args, ValueEnum};
use meshloom::comm::{CommError, Communicator, Op};
use meshloom::exchange::collectives::Collectives;
use meshloom::gpu::{Array, Recorder};
use meshloom::{Error, Rank};
use serde_json::json;

use super::input::Settings;
use super::input::keys;
use super::measure::{Clock, Spread};
use super::mpi::Mpi;
use super::report::{self, Report, of_reference, range, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Bytes of the data of a rank, for all-to-all of a block for one other; multiples of 8,
    /// several with commas between
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "8,1024,65536,1048576", value_parser = bytes)]
    bytes: Vec<u64>,
    /// Collectives, several with commas between [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    operations: Vec<Operation>,
    /// Memory of the data; several with commas between
    #[arg(long = "where", value_name = "WHERE", value_delimiter = ',', default_value = "host,device")]
    data: Vec<Data>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Most bytes: all ranks' blocks have to lie in the memory of one.
const MOST: u64 = 1 << 30;

fn bytes(text: &str) -> Result<u64, String> {
    let number = text.trim().parse::<u64>().ok().filter(|&n| n.is_multiple_of(8) && (8..=MOST).contains(&n));
    number.ok_or_else(|| format!("`{text}` is no size; write a multiple of 8, up to {MOST}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Operation {
    Barrier,
    Broadcast,
    Gather,
    AllGather,
    AllReduce,
    AllToAll,
}

/// Location of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Data {
    /// Slices of the host
    Host,
    /// Arrays of the devices
    Device,
}

const COLUMNS: [&str; 7] = ["collective", "of", "bytes", "median", "least .. greatest", "MPI", "of MPI"];

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let mpi = Mpi::running();
    let all = Operation::value_variants().to_vec();
    let operations = if arguments.operations.is_empty() { all } else { arguments.operations.clone() };
    let mut calls = Vec::new();
    for operation in operations {
        // Arrays do not wait for each other.
        let barrier = operation == Operation::Barrier;
        let sizes = if barrier { &[0][..] } else { &arguments.bytes };
        for &data in arguments.data.iter().filter(|data| !barrier || **data == Data::Host) {
            calls.extend(sizes.iter().map(|&bytes| (operation, data, bytes)));
        }
    }
    let measurements = calls.len() * if mpi.is_some() { 2 } else { 1 };
    let mut session = Session::new("collectives", &arguments.settings, rank, measurements, &COLUMNS);
    for call in calls {
        measure_one(&mut session, mpi.as_ref(), call)?;
    }
    Ok(session.finish())
}

fn measure_one(
    session: &mut Session,
    mpi: Option<&Mpi>,
    (operation, place, bytes): (Operation, Data, u64),
) -> Result<(), Error> {
    let Session { rank, clock, report, .. } = session;
    let data = operation.data(bytes, &rank.comm);
    let (ours, came) = match place {
        Data::Host => {
            let comm = &rank.comm;
            let mut came = vec![0; operation.came(&data, comm)];
            let ours = clock.together(&mut rank.recorder, |_| Ok(operation.run(comm, &data, &mut came)?))?;
            // Each run has reduced in place what the one before it left.
            if came.len() == data.len() {
                came.copy_from_slice(&data);
            }
            operation.run(comm, &data, &mut came)?;
            (ours, came)
        }
        Data::Device => on_devices(rank, clock, operation, &data)?,
    };
    let name = operation.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let of = if place == Data::Host { "host" } else { "device" };
    let mut result = json!({ "collective": name, "data": of, "bytes": bytes, "seconds": ours });
    let mut row = vec![name.clone(), of.into(), bytes.to_string(), time(ours.median), range(&ours)];
    if let Some(mpi) = mpi {
        let mut theirs_came = if operation == Operation::Broadcast { data.clone() } else { vec![0; came.len()] };
        let theirs = clock.together(&mut rank.recorder, |_| {
            operation.run_by(mpi, &data, &mut theirs_came);
            Ok(())
        })?;
        let [differ] = clock.sum([u64::from(theirs_came != came)])?;
        result["reference"] = report::reference(&ours, "MPI's own call, which blocks", &theirs);
        report.compared(&mut result["reference"], format!("{name} of {bytes} bytes ({of})"), differ == 0);
        row.extend([time(theirs.median), of_reference(&ours, &theirs)]);
    }
    report.row(row);
    report.result(result);
    Ok(())
}

/// Same with arrays on the devices, whose contents the host uploads before and downloads after;
/// returns the received data.
fn on_devices(rank: &mut Rank, clock: &Clock, operation: Operation, data: &[u64]) -> Result<(Spread, Vec<u64>), Error> {
    let array = rank.gpu.array::<u32>("bench::data", 2 * data.len() as u64)?;
    rank.recorder.upload(&array, 0, bytemuck::cast_slice(data))?;
    let mut collectives = Collectives::new(rank.exchange.clone());
    let mut came = None;
    let spread = clock.together(&mut rank.recorder, |recorder| {
        came = operation.run_on_devices(&mut collectives, recorder, &array)?;
        Ok(())
    })?;
    let words = came.map_or(Ok(Vec::new()), |came| rank.recorder.download(&came, 0, came.len()))?;
    let numbers = words.as_chunks::<2>().0.iter().map(|&[low, high]| u64::from(high) << 32 | u64::from(low));
    Ok((spread, numbers.collect()))
}

impl Operation {
    /// Returns what this rank gives.
    fn data(self, bytes: u64, comm: &Communicator) -> Vec<u64> {
        let blocks = if self == Operation::AllToAll { comm.size() as u64 } else { 1 };
        keys(bytes / 8 * blocks, 60, comm.rank())
    }

    /// Elements that this rank gets.
    fn came(self, data: &[u64], comm: &Communicator) -> usize {
        let blocks = match self {
            Operation::Barrier => 0,
            Operation::Gather if comm.rank() > 0 => 0,
            Operation::Gather | Operation::AllGather => comm.size(),
            Operation::Broadcast | Operation::AllReduce | Operation::AllToAll => 1,
        };
        blocks * data.len()
    }

    /// Gives this rank what it gets, in memory that is there already. What is broadcast and reduced
    /// is what lies there.
    fn run(self, comm: &Communicator, data: &[u64], came: &mut [u64]) -> Result<(), CommError> {
        match self {
            Operation::Barrier => comm.barrier(),
            Operation::Broadcast => comm.broadcast(0, came),
            Operation::Gather => comm.gather_into(0, data, came),
            Operation::AllGather => comm.all_gather_into(data, came),
            Operation::AllReduce => comm.all_reduce(came, Op::Sum),
            Operation::AllToAll => comm.all_to_all_into(data, came),
        }
    }

    /// Returns what this rank gets as an array of the device.
    fn run_on_devices(
        self,
        collectives: &mut Collectives,
        recorder: &mut Recorder,
        data: &Array<u32>,
    ) -> Result<Option<Array<u32>>, Error> {
        Ok(match self {
            Operation::Barrier => None,
            Operation::Broadcast => {
                let given = (collectives.comm().rank() == 0).then_some(data);
                Some(collectives.broadcast(recorder, 0, given)?.finish(recorder)?)
            }
            Operation::Gather => collectives.gather(recorder, 0, data, 1)?.finish(recorder)?,
            Operation::AllGather => Some(collectives.all_gather(recorder, data, 1)?.finish(recorder)?),
            Operation::AllReduce => Some(collectives.all_reduce::<u64>(recorder, data, Op::Sum)?.finish(recorder)?),
            Operation::AllToAll => Some(collectives.all_to_all(recorder, data, 1)?.finish(recorder)?),
        })
    }

    /// Same with MPI, into existing memory; sums beside the data.
    fn run_by(self, mpi: &Mpi, data: &[u64], into: &mut [u64]) {
        match self {
            Operation::Barrier => mpi.barrier(),
            Operation::Broadcast => mpi.broadcast(into),
            Operation::Gather => mpi.gather(data, into),
            Operation::AllGather => mpi.all_gather(data, into),
            Operation::AllReduce => mpi.all_reduce(data, into),
            Operation::AllToAll => mpi.all_to_all(data, into),
        }
    }
}
