//! Programs whose ranks wait for each other, and correct ones in which ranks wait for long.

use std::thread;
use std::time::Duration;

use meshloom::comm::{Communicator, Op};
use meshloom::exchange::{Exchange, ExchangeError, PendingExchange};
use meshloom::gpu::{Gpu, Recorder};
use meshloom::grid::{Transfer, Transfers};

/// A program of one rank, and the numbers of ranks that run it.
pub struct Program {
    pub name: &'static str,
    pub ranks: &'static [usize],
    pub body: fn(&Communicator, &Gpu) -> Result<(), ExchangeError>,
    /// Texts that the error contains, whatever the number of ranks.
    pub words: &'static [&'static str],
}

/// Time for which a rank is late. It is longer than ranks must wait for each other in different
/// operations until that is an error.
const LATE: Duration = Duration::from_millis(5500);

/// Elements of an exchange that moves in many chunks.
const LONG: u64 = 100_000;

/// Programs that end with an error.
pub const DEADLOCKS: &[Program] = &[
    Program {
        name: "an exchange skipped before a barrier",
        ranks: &[2, 3, 4],
        body: |comm, gpu| {
            let mut exchanges = Exchanges::new(comm, gpu)?;
            exchanges.shift(100)?;
            if !is_last(comm) {
                exchanges.shift(100)?;
            }
            Ok(comm.barrier()?)
        },
        words: &["in exchange of u32", "in barrier(largest message 1073741824) as collective 0"],
    },
    // Too much for one message: its sender waits, too.
    Program {
        name: "an exchange in chunks skipped before a reduction",
        ranks: &[2, 3, 4],
        body: |comm, gpu| {
            if !is_last(comm) {
                Exchanges::new(comm, gpu)?.in_chunks(1 << 16).shift(LONG)?;
            }
            Ok(comm.all_reduce(&mut [0f32], Op::Sum)?)
        },
        words: &["in exchange of u32", "in all_reduce(Sum of f32, 1 elements"],
    },
    Program {
        name: "an exchange skipped before a gather",
        ranks: &[2, 3],
        body: |comm, gpu| {
            if !is_last(comm) {
                Exchanges::new(comm, gpu)?.shift(100)?;
            }
            comm.gather(comm.size() - 1, &[0u8])?;
            Ok(comm.barrier()?)
        },
        words: &["in exchange of u32", "in gather(root "],
    },
    // Rank 1 waits for 2, 2 for 0, and 0 for 1.
    Program {
        name: "three ranks in three communicators",
        ranks: &[3, 4],
        body: |comm, gpu| {
            let pair = |ranks: [usize; 2]| comm.split(ranks.contains(&comm.rank()).then_some(0), 0);
            let (a, b) = (pair([1, 2])?, pair([2, 0])?);
            if comm.rank() < 2 {
                let mut exchanges = Exchanges::new(comm, gpu)?;
                return if comm.rank() == 0 { exchanges.receive(1) } else { Ok(a.unwrap_or(comm.clone()).barrier()?) };
            }
            // Rank 3 waits for a rank of the cycle.
            let own = b.filter(|_| comm.rank() == 2).unwrap_or(comm.clone());
            Ok(own.barrier()?)
        },
        words: &["rank 0 waits for rank 1 in exchange of u32", "rank 1 waits for rank 2 in barrier"],
    },
    Program {
        name: "an exchange along an axis, and a collective of all",
        ranks: &[4],
        body: |comm, gpu| {
            let line = comm.split(Some(comm.rank() as u32 / 2), 0)?.unwrap_or(comm.clone());
            let mut exchanges = Exchanges::new(&line, gpu)?;
            if !is_last(comm) {
                exchanges.shift(100)?;
            }
            Ok(comm.all_reduce(&mut [0u32], Op::Max)?)
        },
        words: &["rank 2 waits for rank 3 in exchange of u32", "in all_reduce(Max of u32"],
    },
    Program {
        name: "two exchanges in another order",
        ranks: &[2, 3],
        body: |comm, gpu| {
            let mut exchanges = Exchanges::new(comm, gpu)?.in_chunks(1 << 16);
            let (right, left) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
            let part = |peer| vec![Transfer { peer, start: 0, len: LONG }];
            let transfers = Transfers { send: part(right), receive: part(left) };
            let mut pending = [exchanges.start(&transfers, LONG)?, exchanges.start(&transfers, LONG)?];
            if is_last(comm) {
                pending.reverse();
            }
            pending.into_iter().try_for_each(|pending| pending.finish(&mut exchanges.recorder))
        },
        words: &["in exchange of u32, rank "],
    },
    Program {
        name: "two communicators in another order",
        ranks: &[2, 3],
        body: |comm, _| {
            let all = || comm.split(Some(0), 0).map(|all| all.unwrap_or(comm.clone()));
            let mut parts = [all()?, all()?];
            if is_last(comm) {
                parts.reverse();
            }
            parts[0].barrier()?;
            Ok(parts[1].all_reduce(&mut [1u8 as i32], Op::Min)?)
        },
        words: &["in barrier(", "rank 1 waits for rank "],
    },
];

/// Correct programs in which ranks wait for longer than it takes to find a deadlock.
pub const SLOW: &[Program] = &[
    // Some ranks wait in the exchange, others, which take no part, in the barrier after it.
    Program {
        name: "a late rank in an exchange",
        ranks: &[2, 4],
        body: |comm, gpu| {
            if comm.rank() == 1 {
                thread::sleep(LATE);
            }
            if comm.rank() < 3 {
                Exchanges::new(comm, gpu)?.shift_among(3, 50_000)?;
            }
            Ok(comm.barrier()?)
        },
        words: &[],
    },
    // All wait for each other in one exchange, of which one rank moves a chunk now and then.
    Program {
        name: "a slow receiver of many chunks",
        ranks: &[2, 3],
        body: |comm, gpu| {
            let mut exchanges = Exchanges::new(comm, gpu)?.in_chunks(1 << 16);
            exchanges.slowly = is_last(comm);
            exchanges.shift(4 * LONG)?;
            Ok(comm.barrier()?)
        },
        words: &[],
    },
    Program {
        name: "a late rank in a part",
        ranks: &[4],
        body: |comm, gpu| {
            let line = comm.split(Some(comm.rank() as u32 / 2), 0)?.unwrap_or(comm.clone());
            let mut exchanges = Exchanges::new(&line, gpu)?;
            exchanges.shift(100)?;
            if comm.rank() == 0 {
                thread::sleep(LATE);
            }
            line.barrier()?;
            exchanges.shift(LONG)?;
            Ok(comm.all_reduce(&mut [1u32], Op::Sum)?)
        },
        words: &[],
    },
];

fn is_last(comm: &Communicator) -> bool {
    comm.rank() + 1 == comm.size()
}

/// Exchanges of a rank.
struct Exchanges {
    comm: Communicator,
    recorder: Recorder,
    exchange: Exchange,
    /// Whether this rank sleeps between its steps, for [`LATE`] in all.
    slowly: bool,
}

impl Exchanges {
    fn new(comm: &Communicator, gpu: &Gpu) -> Result<Exchanges, ExchangeError> {
        let (recorder, exchange) = (Recorder::new(gpu)?, Exchange::new(comm.clone()));
        Ok(Exchanges { comm: comm.clone(), recorder, exchange, slowly: false })
    }

    fn in_chunks(self, bytes: u64) -> Exchanges {
        Exchanges { exchange: self.exchange.with_chunks(bytes, 1), ..self }
    }

    /// Sends to the next rank and receives from the one before.
    fn shift(&mut self, len: u64) -> Result<(), ExchangeError> {
        self.shift_among(self.comm.size(), len)
    }

    /// Same as `shift`, among the first `ranks` ranks.
    fn shift_among(&mut self, ranks: usize, len: u64) -> Result<(), ExchangeError> {
        let (rank, size) = (self.comm.rank(), ranks.min(self.comm.size()));
        let part = |peer| vec![Transfer { peer, start: 0, len }];
        self.run(&Transfers { send: part((rank + 1) % size), receive: part((rank + size - 1) % size) }, len)
    }

    fn receive(&mut self, from: usize) -> Result<(), ExchangeError> {
        self.run(&Transfers { send: vec![], receive: vec![Transfer { peer: from, start: 0, len: 9 }] }, 9)
    }

    fn start(&mut self, transfers: &Transfers, len: u64) -> Result<PendingExchange, ExchangeError> {
        let gpu = self.recorder.gpu().clone();
        let (from, to) = (gpu.array::<u32>("from", len)?, gpu.array::<u32>("to", len)?);
        self.exchange.start(&mut self.recorder, transfers, &from, &to)
    }

    fn run(&mut self, transfers: &Transfers, len: u64) -> Result<(), ExchangeError> {
        let mut pending = self.start(transfers, len)?;
        for _ in 0..if self.slowly { 11 } else { 0 } {
            thread::sleep(LATE / 11);
            pending.progress(&mut self.recorder)?;
        }
        pending.finish(&mut self.recorder)
    }
}
