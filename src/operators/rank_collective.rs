//! Collectives as operators: the values of ranks are moved between ranks, or added over them.

use super::{
    Direction, Fingerprint, Leaf, Linear, OperatorError, PointOrder, Result, Signature, Space, Support, Vector, refuse,
};
use crate::comm::Op;
use crate::exchange::collectives::{Collectives, ScanRange, all_gather, all_reduce};
use crate::fft::Values;
use crate::gpu::{Array, Recorder};
use crate::grid::Cost;
use crate::rank::Rank;

/// The collective. Counts are numbers of real values.
#[derive(Clone, Debug)]
enum Kind {
    /// `start` is the first value of this rank in the vector.
    Replicate {
        start: u64,
    },
    SumOverRanks,
    AllGather {
        counts: Vec<u64>,
    },
    Broadcast {
        root: usize,
    },
    Gather {
        root: usize,
        counts: Vec<u64>,
    },
    AllToAll {
        outgoing: Vec<u64>,
        incoming: Vec<u64>,
    },
    SendReceive {
        to: Option<usize>,
        from: Option<usize>,
    },
    AllReduce,
    Scan {
        range: ScanRange,
    },
}

impl Kind {
    /// Returns the name in errors and reports.
    fn name(&self) -> &'static str {
        match self {
            Kind::Replicate { .. } => "replication",
            Kind::SumOverRanks => "sum over ranks",
            Kind::AllGather { .. } => "all-gather",
            Kind::Broadcast { .. } => "broadcast",
            Kind::Gather { .. } => "gather to a rank",
            Kind::AllToAll { .. } => "all-to-all",
            Kind::SendReceive { .. } => "send and receive",
            Kind::AllReduce => "all-reduce",
            Kind::Scan { range } if range.has_own() => "scan",
            Kind::Scan { .. } => "exclusive scan",
        }
    }
}

/// A collective of the values at the points of each rank, with its adjoint.
///
/// | constructor | result | its [`Adjoint`](super::Adjoint) |
/// |---|---|---|
/// | [`replicate`](Self::replicate) | a vector of the points of all ranks | the part of each rank |
/// | [`sum_over_ranks`](Self::sum_over_ranks) | a vector: the sum over ranks | the cotangent, on each rank |
/// | [`all_gather`](Self::all_gather) | the points of all ranks, on each | reduce-scatter: the sum over ranks, on each owner |
/// | [`broadcast`](Self::broadcast) | the points of the root, on each | reduce: their sum, on the root |
/// | [`gather`](Self::gather) | the points of all ranks, on the root | scatter |
/// | [`all_to_all`](Self::all_to_all) | a part for each rank | the parts return |
/// | [`send_receive`](Self::send_receive) | the points of another rank | the points return |
/// | [`all_reduce`](Self::all_reduce) | the sum over ranks, on each | itself |
/// | [`scan`](Self::scan), [`scan_exclusive`](Self::scan_exclusive) | the sum over the ranks up to this one, or before it | the sum over the ranks from this one on, or after it |
///
/// The first two give vectors: one variable that all ranks hold, whose cotangent is equal on all
/// ranks and counts once. Points are variables of each rank, even if they are copies; their
/// cotangents are added. Sums of floats follow a fixed tree over ranks, so their bits depend on the
/// number of ranks; a [`Gather`](super::Gather) of the terms does not. Vectors are for small data.
///
/// Constructors are collective. Calls submit and wait for other ranks. Cost: 8 bytes per number in
/// one to three passes, and the messages of the [`Collectives`].
#[derive(Clone, Debug)]
pub struct RankCollective {
    signature: Signature,
    kind: Kind,
    ranks: usize,
    rank: usize,
}

/// Returns the only leaf of a space of points, with its name and its number of points on this rank.
fn points<'a>(domain: &'a Space, name: &str) -> Result<(&'a str, &'a Leaf, u64)> {
    match domain.only() {
        Some((leaf_name, leaf)) => match leaf.support {
            Support::Points { own, .. } => Ok((leaf_name, leaf, own)),
            _ => refuse(name, format!("{domain} is not values at points of each rank")),
        },
        None => refuse(name, format!("{domain} is not one leaf")),
    }
}

/// Returns the number of points of each rank, and of their numbers. Collective.
fn counts(rank: &Rank, domain: &Space, name: &str) -> Result<(Vec<u64>, Vec<u64>)> {
    let (_, leaf, own) = points(domain, name)?;
    let points = rank.comm.all_gather(&[own])?;
    let numbers = points.iter().map(|count| count * leaf.numbers()).collect();
    Ok((points, numbers))
}

/// Returns the name of the only leaf and its points on this rank and on all ranks, if each has one
/// real number.
fn numbers(domain: &Space) -> Option<(&str, u64, u64)> {
    match domain.only()? {
        (name, Leaf { support: Support::Points { own, total, .. }, values: Values::Real, components: 1, batch: 1 }) => {
            Some((name, *own, *total))
        }
        _ => None,
    }
}

impl RankCollective {
    /// Creates the collective that joins the points of all ranks to one vector, rank by rank.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] unless `domain` is one real number at each point.
    pub fn replicate(rank: &Rank, domain: &Space) -> Result<Self> {
        let Some((name, own, total)) = numbers(domain) else {
            return refuse("replication", format!("{domain} is not one number at each point"));
        };
        let mut start = [own];
        rank.comm.scan_exclusive(&mut start, Op::Sum)?;
        let target = Space::of(name, Leaf::vector(total))?;
        Ok(Self::between(rank, domain, &target, Kind::Replicate { start: start[0] }))
    }

    /// Creates the collective that adds the points of all ranks to one vector.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] unless `domain` is one real number at each point, with equally
    ///   many points on every rank.
    pub fn sum_over_ranks(rank: &Rank, domain: &Space) -> Result<Self> {
        let ranks = rank.comm.size() as u64;
        match numbers(domain) {
            Some((name, own, total)) if own * ranks == total => {
                let target = Space::of(name, Leaf::vector(own))?;
                Ok(Self::between(rank, domain, &target, Kind::SumOverRanks))
            }
            _ => {
                let why = format!("{domain} is not one number at each of as many points on every one of {ranks} ranks");
                refuse("sum over ranks", why)
            }
        }
    }

    /// Creates the collective that gives each rank the points of all ranks, in the order of ranks.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] unless `domain` is one leaf of points.
    /// - [`OperatorError::Comm`] for errors of the ranks.
    pub fn all_gather(rank: &Rank, domain: &Space) -> Result<Self> {
        let (points, counts) = counts(rank, domain, "all-gather")?;
        let total: u64 = points.iter().sum();
        Self::new(rank, domain, [total, points.len() as u64 * total], Kind::AllGather { counts })
    }

    /// Creates the collective that gives all ranks the points of `root`; the others have none.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if another rank has points.
    /// - Same as [`all_gather`](Self::all_gather).
    pub fn broadcast(rank: &Rank, domain: &Space, root: usize) -> Result<Self> {
        let (counts, _) = counts(rank, domain, "broadcast")?;
        let Some(&len) = counts.get(root) else { return Err(no_rank("broadcast", root, counts.len())) };
        if let Some(other) = (0..counts.len()).find(|&rank| rank != root && counts[rank] > 0) {
            let why = format!("rank {other} has {} points; only rank {root} may have some", counts[other]);
            return refuse("broadcast", why);
        }
        Self::new(rank, domain, [len, len * counts.len() as u64], Kind::Broadcast { root })
    }

    /// Creates the collective that gives `root` the points of all ranks, in the order of ranks; the
    /// others get none.
    ///
    /// # Errors
    /// - Same as [`all_gather`](Self::all_gather).
    pub fn gather(rank: &Rank, domain: &Space, root: usize) -> Result<Self> {
        let (points, counts) = counts(rank, domain, "gather to a rank")?;
        if root >= points.len() {
            return Err(no_rank("gather to a rank", root, points.len()));
        }
        let total = points.iter().sum();
        let here = if rank.comm.rank() == root { total } else { 0 };
        Self::new(rank, domain, [here, total], Kind::Gather { root, counts })
    }

    /// Creates the collective that sends `counts[rank]` points to each rank. Points are in the
    /// order of ranks, before and after.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the sum of the counts is not the number of points of a rank.
    /// - Same as [`all_gather`](Self::all_gather).
    pub fn all_to_all(rank: &Rank, domain: &Space, counts: &[u64]) -> Result<Self> {
        let (_, leaf, own) = points(domain, "all-to-all")?;
        let sum = counts.iter().fold(0u64, |sum, &count| sum.saturating_add(count));
        let fits = counts.len() == rank.comm.size() && sum == own;
        // All ranks learn of a fault before any of them waits for counts.
        let wrong = rank.comm.all_gather(&[u64::from(!fits)])?.iter().position(|&wrong| wrong != 0);
        if let Some(rank) = wrong {
            let why = format!(
                "the counts of rank {rank} are not one for each rank, with the sum of its points (here {} counts, {own} points)",
                counts.len()
            );
            return refuse("all-to-all", why);
        }
        let incoming = rank.comm.all_to_all(counts)?;
        let [total] = rank.comm.reduced([own], Op::Sum)?;
        let numbers = |counts: &[u64]| counts.iter().map(|count| count * leaf.numbers()).collect();
        let kind = Kind::AllToAll { outgoing: numbers(counts), incoming: numbers(&incoming) };
        Self::new(rank, domain, [incoming.iter().sum(), total], kind)
    }

    /// Creates the collective that sends the points of this rank to rank `to` and receives those of
    /// rank `from`: a permutation of ranks, such as a shift. `None` sends or receives nothing.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if senders and receivers do not match.
    /// - Same as [`all_gather`](Self::all_gather).
    pub fn send_receive(rank: &Rank, domain: &Space, to: Option<usize>, from: Option<usize>) -> Result<Self> {
        const NAME: &str = "send and receive";
        let (_, _, own) = points(domain, NAME)?;
        let number = |peer: Option<usize>| peer.map_or(u64::MAX, |rank| rank as u64);
        let all = rank.comm.all_gather(&[[own, number(to), number(from)]])?;
        for (rank, &[_, to, from]) in all.iter().enumerate() {
            // The peer that a rank names must name this rank in the other direction.
            for (peer, back) in [(to, 2), (from, 1)] {
                let other = usize::try_from(peer).ok().and_then(|peer| all.get(peer));
                if peer != u64::MAX && other.is_none_or(|other| other[back] != rank as u64) {
                    let deed = if back == 2 { "sends to" } else { "receives from" };
                    return refuse(NAME, format!("rank {rank} {deed} rank {peer}, which does not expect it"));
                }
            }
        }
        let received = from.map_or(0, |from| all[from][0]);
        let total = all.iter().filter(|[_, to, _]| *to != u64::MAX).map(|[own, ..]| own).sum();
        Self::new(rank, domain, [received, total], Kind::SendReceive { to, from })
    }

    /// Creates the collective that gives every rank the sum of the points over ranks.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if ranks have different numbers of points.
    /// - Same as [`all_gather`](Self::all_gather).
    pub fn all_reduce(rank: &Rank, domain: &Space) -> Result<Self> {
        Self::of_equals(rank, domain, Kind::AllReduce)
    }

    /// Creates the collective that adds the points of the ranks up to and including this one.
    ///
    /// # Errors
    /// - Same as [`all_reduce`](Self::all_reduce).
    pub fn scan(rank: &Rank, domain: &Space) -> Result<Self> {
        Self::of_equals(rank, domain, Kind::Scan { range: ScanRange::UpTo })
    }

    /// Creates the collective that adds the points of the ranks before this one; the first rank
    /// gets zeros.
    ///
    /// # Errors
    /// - Same as [`all_reduce`](Self::all_reduce).
    pub fn scan_exclusive(rank: &Rank, domain: &Space) -> Result<Self> {
        Self::of_equals(rank, domain, Kind::Scan { range: ScanRange::Before })
    }

    /// Creates a collective for equally many points on every rank.
    fn of_equals(rank: &Rank, domain: &Space, kind: Kind) -> Result<Self> {
        let (counts, _) = counts(rank, domain, kind.name())?;
        if let Some(rank) = counts.iter().position(|&count| count != counts[0]) {
            let why = format!("rank {rank} has {} points, rank 0 {}; they must have as many", counts[rank], counts[0]);
            return refuse(kind.name(), why);
        }
        Self::new(rank, domain, [counts[0], counts.iter().sum()], kind)
    }

    /// Creates a collective whose values are at `own` of `total` points.
    fn new(rank: &Rank, domain: &Space, [own, total]: [u64; 2], kind: Kind) -> Result<Self> {
        let (name, leaf, _) = points(domain, "collective")?;
        let support = Support::Points { own, total, order: PointOrder::Ranks };
        let target = Space::of(name, Leaf { support, ..leaf.clone() })?;
        Ok(Self::between(rank, domain, &target, kind))
    }

    fn between(rank: &Rank, domain: &Space, target: &Space, kind: Kind) -> Self {
        let (rank, ranks) = (rank.comm.rank(), rank.comm.size());
        RankCollective { signature: Signature::new(kind.name(), domain, target), kind, ranks, rank }
    }
}

fn no_rank(name: &str, root: usize, ranks: usize) -> OperatorError {
    OperatorError::invalid(name, format!("rank {root} of {ranks}"))
}

/// Returns the sum over the ranks in the range of this one, if there are any.
fn scanned(
    collectives: &mut Collectives,
    recorder: &mut Recorder,
    numbers: &Array<f32>,
    range: ScanRange,
) -> Result<Option<Array<f32>>> {
    let sum = collectives.scan_range::<f32>(recorder, numbers, range, Op::Sum)?.finish(recorder)?;
    Ok((sum.len() == numbers.len()).then_some(sum))
}

impl Linear for RankCollective {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        use Direction::{Adjoint, Forward};
        let (v, out) = (v.single()?, out.single()?);
        let fields = self.signature.domain.only().map_or(1, |(_, leaf)| leaf.fields());
        let mut collectives = rank.collectives();
        let (recorder, comm) = (&mut rank.recorder, &rank.comm);
        let received = match (&self.kind, direction) {
            (Kind::Replicate { .. }, Forward) => return Ok(all_gather(recorder, comm, v, out)?),
            (Kind::Replicate { start }, Adjoint) => return Ok(recorder.copy(v, *start, out, 0, out.len())?),
            (Kind::SumOverRanks, Forward) => {
                recorder.copy(v, 0, out, 0, out.len())?;
                return Ok(all_reduce(recorder, comm, out, 0..out.len(), Op::Sum)?);
            }
            (Kind::SumOverRanks, Adjoint) => return Ok(recorder.copy(v, 0, out, 0, out.len())?),
            (Kind::AllGather { .. }, Forward) => {
                Some(collectives.all_gather_v(recorder, v, fields)?.finish(recorder)?.array)
            }
            (Kind::AllGather { counts }, Adjoint) => {
                Some(collectives.reduce_scatter_v::<f32>(recorder, v, counts, Op::Sum, fields)?.finish(recorder)?)
            }
            (Kind::Broadcast { root }, Forward) => {
                let given = (self.rank == *root).then_some(v);
                Some(collectives.broadcast(recorder, *root, given)?.finish(recorder)?)
            }
            (Kind::Broadcast { root }, Adjoint) => {
                collectives.reduce::<f32>(recorder, *root, v, Op::Sum)?.finish(recorder)?
            }
            (Kind::Gather { root, .. }, Forward) => {
                collectives.gather_v(recorder, *root, v, fields)?.finish(recorder)?.map(|parts| parts.array)
            }
            (Kind::Gather { root, counts }, Adjoint) => {
                let given = (self.rank == *root).then_some((v, &counts[..]));
                Some(collectives.scatter_v(recorder, *root, given, fields)?.finish(recorder)?)
            }
            (Kind::AllToAll { outgoing: counts, .. }, Forward) | (Kind::AllToAll { incoming: counts, .. }, Adjoint) => {
                Some(collectives.all_to_all_v(recorder, v, counts, fields)?.finish(recorder)?.array)
            }
            (Kind::SendReceive { to, from }, Forward) | (Kind::SendReceive { to: from, from: to }, Adjoint) => {
                collectives.send_receive(recorder, to.map(|to| (to, v)), *from)?.finish(recorder)?
            }
            (Kind::AllReduce, _) => Some(collectives.all_reduce::<f32>(recorder, v, Op::Sum)?.finish(recorder)?),
            (Kind::Scan { range }, Forward) => scanned(&mut collectives, recorder, v, *range)?,
            (Kind::Scan { range }, Adjoint) => scanned(&mut collectives, recorder, v, range.transposed())?,
        };
        match received {
            Some(received) => recorder.copy(&received, 0, out, 0, out.len())?,
            None => recorder.clear(out),
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        if let Kind::Broadcast { root } | Kind::Gather { root, .. } = &self.kind {
            out.number(*root as u64);
        }
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let Signature { domain, target, .. } = &self.signature;
        let [from, to] = [domain, target].map(|space| 4 * space.own_numbers());
        let (others, ranks) = (self.ranks as u64 - 1, self.ranks as u64);
        let call = |passes, messages, sent| Cost { messages, sent_bytes: sent, ..Cost::kernels(passes, from + to) };
        let at =
            |root: usize, root_sends: u64, other_sends: u64| if self.rank == root { root_sends } else { other_sends };
        // The bytes that a reduction to parts sends of `bytes`, or the distribution of these parts.
        let parts = |bytes: u64| bytes / ranks * others;
        match &self.kind {
            Kind::Replicate { .. } => {
                let messages = u64::from(from < to);
                [call(1, messages, messages * from), Cost::kernels(1, 2 * from)]
            }
            Kind::SumOverRanks => {
                let steps = u64::from(self.ranks.next_power_of_two().ilog2());
                [call(1, 2 * steps, 2 * steps * to), call(1, 0, 0)]
            }
            Kind::AllGather { .. } => [call(1, others, from * others), call(3, others, parts(to))],
            Kind::Broadcast { root } => {
                let forward = at(*root, 2 * parts(to), to / ranks * others.saturating_sub(1));
                [call(1, 2 * others, forward), call(3, others + 1, parts(to) + at(*root, 0, to / ranks))]
            }
            Kind::Gather { root, .. } => {
                let sends = [at(*root, 0, from), at(*root, to.saturating_sub(from), 0)];
                [call(2, u64::from(self.rank != *root), sends[0]), call(2, at(*root, others, 0), sends[1])]
            }
            Kind::AllToAll { .. } => [call(3, others, from), call(3, others, to)],
            Kind::SendReceive { to: next, from: before } => {
                [call(1, u64::from(next.is_some()), from), call(1, u64::from(before.is_some()), to)]
            }
            Kind::AllReduce => [call(3, 2 * others, 2 * parts(from)); 2],
            Kind::Scan { range } => [*range, range.transposed()].map(|range| {
                // The rank at the end of an exclusive scan gets nothing.
                let spared = u64::from(!range.has_own() && self.rank != range.end(self.ranks));
                call(3, 2 * others - spared, 2 * parts(from) - spared * (from / ranks))
            }),
        }
    }
}
