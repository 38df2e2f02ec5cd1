//! Exchanges that know what must arrive: parts of any length between all ranks, filled with values
//! that name their place.

use meshloom::comm::Communicator;
use meshloom::exchange::{Exchange, ExchangeError, PendingExchange};
use meshloom::gpu::{Array, MemoryKind, Recorder};
use meshloom::grid::{Transfer, Transfers};

const SENTINEL: u32 = 0xdead_beef;

pub fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 17
}

/// Amounts that ranks send to each other: uneven, a third of it nothing.
#[derive(Clone, Copy)]
pub struct Plan {
    pub ranks: usize,
    pub most: u64,
    pub salt: u64,
}

impl Plan {
    pub fn len(&self, from: usize, to: usize) -> u64 {
        let n = mix(self.salt << 20 | (from * 64 + to) as u64);
        if n.is_multiple_of(3) { 0 } else { 1 + n % self.most }
    }

    /// Parts in an order of their own, with gaps between them: the parts and the length of the
    /// array.
    fn parts(&self, len: impl Fn(usize) -> u64, salt: u64) -> (Vec<Transfer>, u64) {
        let mut peers: Vec<usize> = (0..self.ranks).collect();
        peers.sort_by_key(|&peer| mix(salt + peer as u64));
        let (mut at, mut parts) = (0, Vec::new());
        for peer in peers {
            at += mix(salt + 1000 + peer as u64) % 4;
            parts.push(Transfer { peer, start: at, len: len(peer) });
            at += len(peer);
        }
        (parts, at + 1)
    }

    pub fn transfers(&self, me: usize) -> (Transfers, [u64; 2]) {
        let (send, out) = self.parts(|peer| self.len(me, peer), self.salt + 2 * me as u64);
        let (receive, inn) = self.parts(|peer| self.len(peer, me), self.salt + 77 + 3 * me as u64);
        (Transfers { send, receive }, [out, inn])
    }

    fn value(&self, from: usize, to: usize, i: u64) -> u32 {
        mix(self.salt << 40 | (from as u64) << 34 | (to as u64) << 28 | i) as u32
    }

    pub fn outgoing(&self, me: usize) -> Vec<u32> {
        let (transfers, [len, _]) = self.transfers(me);
        let mut data = vec![7; len as usize];
        for part in &transfers.send {
            (0..part.len).for_each(|i| data[(part.start + i) as usize] = self.value(me, part.peer, i));
        }
        data
    }

    pub fn incoming(&self, me: usize) -> Vec<u32> {
        let (transfers, [_, len]) = self.transfers(me);
        let mut data = vec![SENTINEL; len as usize];
        for part in &transfers.receive {
            (0..part.len).for_each(|i| data[(part.start + i) as usize] = self.value(part.peer, me, i));
        }
        data
    }
}

/// One exchange of a plan on a rank.
pub struct Side {
    plan: Plan,
    me: usize,
    pub transfers: Transfers,
    pub outgoing: Array<u32>,
    pub incoming: Array<u32>,
}

impl Side {
    pub fn new(recorder: &mut Recorder, plan: Plan, me: usize, memory: [MemoryKind; 2]) -> Result<Side, ExchangeError> {
        let (transfers, lens) = plan.transfers(me);
        let gpu = recorder.gpu().clone();
        let outgoing = gpu.array_in("outgoing", lens[0], memory[0])?;
        let incoming = gpu.array_in("incoming", lens[1], memory[1])?;
        recorder.upload(&outgoing, 0, &plan.outgoing(me))?;
        recorder.upload(&incoming, 0, &vec![SENTINEL; lens[1] as usize])?;
        Ok(Side { plan, me, transfers, outgoing, incoming })
    }

    pub fn start(&self, recorder: &mut Recorder, exchange: &mut Exchange) -> Result<PendingExchange, ExchangeError> {
        exchange.start(recorder, &self.transfers, &self.outgoing, &self.incoming)
    }

    pub fn check(&self, recorder: &mut Recorder, what: &str) -> Result<(), ExchangeError> {
        let got = recorder.download(&self.incoming, 0, self.incoming.len())?;
        let expected = self.plan.incoming(self.me);
        let wrong = got.iter().zip(&expected).position(|(got, expected)| got != expected);
        assert_eq!(wrong, None, "{what}: rank {} of {}", self.me, self.plan.ranks);
        let kept = recorder.download(&self.outgoing, 0, self.outgoing.len())?;
        assert!(kept == self.plan.outgoing(self.me), "{what}: rank {} of {}", self.me, self.plan.ranks);
        Ok(())
    }
}

/// Arrays that the host maps where it can.
pub const MAPPED: [MemoryKind; 2] = [MemoryKind::Outgoing, MemoryKind::Incoming];

/// Returns what becomes of it on two ranks that go on after errors: rank 0 sends more than goes
/// with what its exchange is, rank 1 waits for another exchange, of a few words. Rank 1 stays until
/// rank 0 has given up, too.
pub fn mismatched(comm: &Communicator, recorder: &mut Recorder) -> Result<Result<(), ExchangeError>, ExchangeError> {
    let gpu = recorder.gpu().clone();
    let [from, to] = [gpu.array::<u32>("from", 50_000)?, gpu.array::<u32>("to", 50_000)?];
    let part = |len| vec![Transfer { peer: 1 - comm.rank(), start: 0, len }];
    let mut exchange = Exchange::new(comm.clone());
    if comm.rank() == 0 {
        let outcome = exchange.run(recorder, &Transfers { send: part(50_000), receive: vec![] }, &from, &to);
        drop(comm.send(1, 0, vec![])?);
        return Ok(outcome);
    }
    let few = Transfers { send: vec![], receive: part(7) };
    let outcome = exchange.run(recorder, &few, &from.cast::<f32>()?, &to.cast::<f32>()?);
    comm.receive(0, 0, 0)?.wait()?;
    Ok(outcome)
}
