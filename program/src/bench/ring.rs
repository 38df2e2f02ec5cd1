//! `meshloom bench exchange --bytes`: every rank sends to the next and receives from the one
//! before, arrays of the device and vectors of the host, beside what MPI does by itself where it
//! runs the ranks.

use std::mem;

use meshloom::comm::Communicator;
use meshloom::exchange::Exchange;
use meshloom::gpu::MemoryKind;
use meshloom::grid::{Transfer, Transfers};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use super::input::Settings;
use super::input::values;
use super::measure::Spread;
use super::mpi::Mpi;
use super::report::{self, Report, of_reference, rate, time};
use super::session::Session;

const COLUMNS: [&str; 9] = [
    "bytes",
    "arrays",
    "rate per rank",
    "vectors",
    "rate per rank",
    "MPI",
    "rate per rank",
    "arrays of MPI",
    "vectors of MPI",
];

/// Measures rings of these sizes.
pub fn measure(
    rank: &mut Rank,
    settings: &Settings,
    sizes: &[u64],
    set: impl Fn(Exchange) -> Exchange,
) -> Result<Report, Error> {
    let mpi = Mpi::running();
    let measurements = sizes.len() * if mpi.is_some() { 3 } else { 2 };
    let mut exchange = set(rank.exchange.clone());
    let mut session = Session::new("exchange", settings, rank, measurements, &COLUMNS);
    session.report.field("chunk_bytes", exchange.chunk_bytes().into());
    session.report.field("depth", exchange.depth().into());
    for &bytes in sizes {
        measure_one(&mut session, &mut exchange, mpi.as_ref(), bytes)?;
    }
    Ok(session.finish())
}

/// Neighbors of a rank.
struct Neighbors {
    to: usize,
    from: usize,
}

impl Neighbors {
    fn of(comm: &Communicator) -> Self {
        let (rank, size) = (comm.rank(), comm.size());
        Neighbors { to: (rank + 1) % size, from: (rank + size - 1) % size }
    }
}

fn measure_one(session: &mut Session, exchange: &mut Exchange, mpi: Option<&Mpi>, bytes: u64) -> Result<(), Error> {
    let neighbors = Neighbors::of(&session.rank.comm);
    let words = bytes / 4;
    let outgoing = values(words, session.rank.comm.rank());
    let expected = values(words, neighbors.from);
    let (arrays, arrived) = arrays(session, exchange, &neighbors, &outgoing)?;
    let (vectors, came) = vectors(session, &neighbors, &outgoing)?;
    let theirs = match mpi {
        Some(mpi) => {
            let (data, mut incoming): (&[u8], _) = (bytemuck::cast_slice(&outgoing), vec![0u8; bytes as usize]);
            let recorder = &mut session.rank.recorder;
            Some(session.clock.together(recorder, |_| {
                mpi.ring(neighbors.to, data, neighbors.from, &mut incoming);
                Ok(())
            })?)
        }
        None => None,
    };
    let wrong = [arrived != expected, came != expected].map(u64::from);
    let [wrong_arrays, wrong_vectors] = session.sum(wrong)?;
    let mut result = json!({ "bytes": bytes });
    let mut row = vec![bytes.to_string()];
    let report = &mut session.report;
    for (name, ours, wrong) in [("arrays", &arrays, wrong_arrays), ("vectors", &vectors, wrong_vectors)] {
        result[name] = spread(ours, bytes);
        let mut object = theirs.map_or(json!({}), |theirs| report::reference(ours, "MPI_Isend, MPI_Irecv", &theirs));
        report.compared(&mut object, format!("{name} of {bytes} bytes"), wrong == 0);
        result[name]["reference"] = object;
        row.extend([time(ours.median), rate(bytes as f64 / ours.median)]);
    }
    if let Some(theirs) = theirs {
        result["mpi"] = spread(&theirs, bytes);
        row.extend([time(theirs.median), rate(bytes as f64 / theirs.median)]);
        row.extend([&arrays, &vectors].map(|ours| of_reference(ours, &theirs)));
    }
    report.row(row);
    report.result(result);
    Ok(())
}

fn spread(spread: &Spread, bytes: u64) -> Value {
    json!({ "seconds": spread, "bytes_per_second_a_rank": bytes as f64 / spread.median })
}

/// Arrays of the device: the time, and what came.
fn arrays(
    session: &mut Session,
    exchange: &mut Exchange,
    Neighbors { to, from }: &Neighbors,
    data: &[f32],
) -> Result<(Spread, Vec<f32>), Error> {
    let Session { rank, clock, .. } = session;
    let (recorder, len) = (&mut rank.recorder, data.len() as u64);
    let outgoing = rank.gpu.array_in::<f32>("bench::outgoing", len, MemoryKind::Outgoing)?;
    let incoming = rank.gpu.array_in::<f32>("bench::incoming", len, MemoryKind::Incoming)?;
    recorder.upload(&outgoing, 0, data)?;
    let part = |&peer: &usize| vec![Transfer { peer, start: 0, len }];
    let transfers = Transfers { send: part(to), receive: part(from) };
    let spread = clock.together(recorder, |recorder| Ok(exchange.run(recorder, &transfers, &outgoing, &incoming)?))?;
    Ok((spread, recorder.download(&incoming, 0, len)?))
}

/// Vectors of the host: the time, and what came.
fn vectors(
    session: &mut Session,
    &Neighbors { to, from }: &Neighbors,
    data: &[f32],
) -> Result<(Spread, Vec<f32>), Error> {
    let Session { rank, clock, .. } = session;
    let (comm, mut buffer, mut last) = (&rank.comm, bytemuck::cast_slice(data).to_vec(), Vec::new());
    let bytes = buffer.len() as u64;
    let spread = clock.together(&mut rank.recorder, |_| {
        let receiving = comm.receive(from, 0, bytes)?;
        let sending = comm.send(to, 0, mem::take(&mut buffer))?;
        last = receiving.wait()?;
        buffer = sending.wait()?;
        if buffer.is_empty() {
            // Between threads the vector itself has gone to the receiver.
            buffer = bytemuck::cast_slice(data).to_vec();
        }
        Ok(())
    })?;
    Ok((spread, bytemuck::pod_collect_to_vec(&last)))
}
