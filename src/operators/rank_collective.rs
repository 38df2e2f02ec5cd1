//! Collectives as operators: values that each rank has of its own move between ranks or are added over them.

use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::leaf::{Leaf, Support};
use super::linear::Linear;
use super::point_numbers::PointOrder;
use super::signature::{CallCost, Signature};
use super::space::Space;
use super::vector::Vector;
use crate::comm::Op;
use crate::exchange::collectives::{Collectives, ScanRange};
use crate::gpu::{Array, Recorder};
use crate::rank::Rank;

/// What moves. Counts are numbers of a field.
#[derive(Clone, Debug)]
enum Kind {
    AllGather { counts: Vec<u64> },
    Broadcast { root: usize },
    Gather { root: usize, counts: Vec<u64> },
    AllToAll { outgoing: Vec<u64>, incoming: Vec<u64> },
    SendReceive { to: Option<usize>, from: Option<usize> },
    AllReduce,
    Scan { range: ScanRange },
}

/// A collective of the values at each rank's points, with its adjoint. Each rank's values are variables of their own, also where they are copies
/// of another's: their cotangents are each rank's own, and where a value went to several ranks they are added.
///
/// | made by | is | its [`Adjoint`](super::Adjoint) is |
/// |---|---|---|
/// | [`all_gather`](Self::all_gather) | the points of all ranks, on each | reduce-scatter: sums over ranks of the cotangents, each on its owner |
/// | [`broadcast`](Self::broadcast) | the root's points, on each | reduce: their sum, on the root |
/// | [`gather`](Self::gather) | the points of all ranks, on the root | scatter |
/// | [`all_to_all`](Self::all_to_all) | a part for each rank | the parts back |
/// | [`send_receive`](Self::send_receive) | another rank's points, such as a neighbour's | back to whom they are from |
/// | [`all_reduce`](Self::all_reduce) | the sum over ranks, on each | itself |
/// | [`scan`](Self::scan), [`scan_exclusive`](Self::scan_exclusive) | the sum over the ranks up to each, or before it | over those from it on, or behind it |
///
/// Where ranks hold one and the same variable (a vector), use [`Replicate`](super::Replicate), [`SumOverRanks`](super::SumOverRanks) and their
/// adjoints, which count it once. Sums of floats follow a fixed tree over ranks: their bits depend on the number of ranks.
///
/// Calls submit and wait for other ranks. Cost on a GPU: 8 bytes per number and pass, a pass or two; between ranks what [`Collectives`] say.
///
/// [`Collectives`]: crate::exchange::collectives::Collectives
#[derive(Clone, Debug)]
pub struct RankCollective {
    signature: Signature,
    kind: Kind,
    ranks: usize,
    rank: usize,
}

/// The only leaf of a space, of points.
fn points<'a>(domain: &'a Space, name: &str) -> Result<(&'a str, &'a Leaf, u64), OperatorError> {
    match domain.only() {
        Some((leaf_name, leaf)) => match leaf.support {
            Support::Points { own, .. } => Ok((leaf_name, leaf, own)),
            _ => Err(OperatorError::invalid(name, format!("{domain} is not values at points of each rank"))),
        },
        None => Err(OperatorError::invalid(name, format!("{domain} is not one leaf"))),
    }
}

impl RankCollective {
    /// The points of all ranks, in the order of ranks, on each of them. All ranks call it.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces than one leaf of points; [`OperatorError::Comm`].
    pub fn all_gather(rank: &Rank, domain: &Space) -> Result<Self, OperatorError> {
        let (_, leaf, own) = points(domain, "all-gather")?;
        let counts = rank.comm.all_gather(&[own])?;
        let total: u64 = counts.iter().sum();
        let counts = counts.iter().map(|count| count * leaf.numbers()).collect();
        let ranks = rank.comm.size() as u64;
        Self::new(rank, domain, [total, ranks * total], Kind::AllGather { counts })
    }

    /// The points of `root`, on all ranks; the others have none. All ranks call it.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`OperatorError::Invalid`] where another rank has points.
    pub fn broadcast(rank: &Rank, domain: &Space, root: usize) -> Result<Self, OperatorError> {
        let (_, _, own) = points(domain, "broadcast")?;
        let counts = rank.comm.all_gather(&[own])?;
        let Some(&len) = counts.get(root) else { return Err(no_rank("broadcast", root, counts.len())) };
        if let Some(other) = (0..counts.len()).find(|&rank| rank != root && counts[rank] > 0) {
            let why = format!("rank {other} has {} points; only rank {root} may have some", counts[other]);
            return Err(OperatorError::invalid("broadcast", why));
        }
        Self::new(rank, domain, [len, len * counts.len() as u64], Kind::Broadcast { root })
    }

    /// The points of all ranks, in the order of ranks, on `root`, where the others have none then. All ranks call it.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn gather(rank: &Rank, domain: &Space, root: usize) -> Result<Self, OperatorError> {
        let (_, leaf, own) = points(domain, "gather to a rank")?;
        let counts = rank.comm.all_gather(&[own])?;
        if root >= counts.len() {
            return Err(no_rank("gather to a rank", root, counts.len()));
        }
        let total: u64 = counts.iter().sum();
        let counts = counts.iter().map(|count| count * leaf.numbers()).collect();
        let here = if rank.comm.rank() == root { total } else { 0 };
        Self::new(rank, domain, [here, total], Kind::Gather { root, counts })
    }

    /// `counts[rank]` points of this rank, which stand in the order of ranks, to each rank; those that come stand so, too. All ranks call it.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`OperatorError::Comm`] where the counts of a rank are not those of its points.
    pub fn all_to_all(rank: &Rank, domain: &Space, counts: &[u64]) -> Result<Self, OperatorError> {
        let (_, leaf, own) = points(domain, "all-to-all")?;
        let sum = counts.iter().fold(0u64, |sum, &count| sum.saturating_add(count));
        let fits = counts.len() == rank.comm.size() && sum == own;
        // All ranks hear of it before any of them waits for counts.
        let wrong = rank.comm.all_gather(&[u64::from(!fits)])?.iter().position(|&wrong| wrong != 0);
        if let Some(rank) = wrong {
            let why = format!(
                "the counts of rank {rank} are not one for each rank, with the sum of its points (here {} counts, {own} points)",
                counts.len()
            );
            return Err(OperatorError::invalid("all-to-all", why));
        }
        let incoming = rank.comm.all_to_all(counts)?;
        let mut sums = [own];
        rank.comm.all_reduce(&mut sums, Op::Sum)?;
        let numbers = |counts: &[u64]| counts.iter().map(|count| count * leaf.numbers()).collect();
        let kind = Kind::AllToAll { outgoing: numbers(counts), incoming: numbers(&incoming) };
        Self::new(rank, domain, [incoming.iter().sum(), sums[0]], kind)
    }

    /// The points of rank `from` on this rank, whose own go to rank `to`: a shift or any other permutation of ranks. Without `from` there are none;
    /// without `to` its own go nowhere. All ranks call it.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`OperatorError::Invalid`] where senders and receivers do not fit each other.
    pub fn send_receive(
        rank: &Rank,
        domain: &Space,
        to: Option<usize>,
        from: Option<usize>,
    ) -> Result<Self, OperatorError> {
        const NAME: &str = "send and receive";
        let (_, _, own) = points(domain, NAME)?;
        let number = |peer: Option<usize>| peer.map_or(u64::MAX, |rank| rank as u64);
        let all = rank.comm.all_gather(&[[own, number(to), number(from)]])?;
        for (rank, &[_, to, from]) in all.iter().enumerate() {
            // What a rank names must name it, the other way round.
            for (peer, back) in [(to, 2), (from, 1)] {
                let other = usize::try_from(peer).ok().and_then(|peer| all.get(peer));
                if peer != u64::MAX && other.is_none_or(|other| other[back] != rank as u64) {
                    let deed = if back == 2 { "sends to" } else { "receives from" };
                    let why = format!("rank {rank} {deed} rank {peer}, which does not expect it");
                    return Err(OperatorError::invalid(NAME, why));
                }
            }
        }
        let came = from.map_or(0, |from| all[from][0]);
        let total = all.iter().filter(|[_, to, _]| *to != u64::MAX).map(|[own, ..]| own).sum();
        Self::new(rank, domain, [came, total], Kind::SendReceive { to, from })
    }

    /// The sum over ranks of their points, as many on each, on every rank. All ranks call it.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`OperatorError::Invalid`] where ranks have different numbers of points.
    pub fn all_reduce(rank: &Rank, domain: &Space) -> Result<Self, OperatorError> {
        Self::of_equals(rank, domain, "all-reduce", Kind::AllReduce)
    }

    /// The sum of the points of the ranks up to and including this one, as many on each. All ranks call it.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn scan(rank: &Rank, domain: &Space) -> Result<Self, OperatorError> {
        Self::of_equals(rank, domain, "scan", Kind::Scan { range: ScanRange::UpTo })
    }

    /// The sum of the points of the ranks before this one, as many on each; zeros on the first rank. All ranks call it.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn scan_exclusive(rank: &Rank, domain: &Space) -> Result<Self, OperatorError> {
        Self::of_equals(rank, domain, "exclusive scan", Kind::Scan { range: ScanRange::Before })
    }

    /// What adds points of ranks that have as many.
    fn of_equals(rank: &Rank, domain: &Space, name: &str, kind: Kind) -> Result<Self, OperatorError> {
        let (_, _, own) = points(domain, name)?;
        let counts = rank.comm.all_gather(&[own])?;
        if let Some(rank) = counts.iter().position(|&count| count != counts[0]) {
            let why = format!("rank {rank} has {} points, rank 0 {}; they must have as many", counts[rank], counts[0]);
            return Err(OperatorError::invalid(name, why));
        }
        Self::new(rank, domain, [own, own * counts.len() as u64], kind)
    }

    fn new(rank: &Rank, domain: &Space, [own, total]: [u64; 2], kind: Kind) -> Result<Self, OperatorError> {
        let (name, leaf, _) = points(domain, "collective")?;
        let target = Space::of(
            name,
            Leaf { support: Support::Points { own, total, order: PointOrder::Ranks }, ..leaf.clone() },
        )?;
        let (rank, ranks) = (rank.comm.rank(), rank.comm.size());
        let name = match &kind {
            Kind::AllGather { .. } => "all-gather",
            Kind::Broadcast { .. } => "broadcast",
            Kind::Gather { .. } => "gather to a rank",
            Kind::AllToAll { .. } => "all-to-all",
            Kind::SendReceive { .. } => "send and receive",
            Kind::AllReduce => "all-reduce",
            Kind::Scan { range } if range.has_own() => "scan",
            Kind::Scan { .. } => "exclusive scan",
        };
        Ok(RankCollective { signature: Signature::new(name, domain, &target), kind, ranks, rank })
    }

    /// Fields of a batch, and their components.
    fn fields(&self) -> u64 {
        self.signature.domain.only().map_or(1, |(_, leaf)| leaf.fields())
    }

    fn lens(&self) -> [u64; 2] {
        [&self.signature.domain, &self.signature.target].map(|space| space.only().map_or(0, |(_, leaf)| leaf.len()))
    }
}

fn no_rank(name: &str, root: usize, ranks: usize) -> OperatorError {
    OperatorError::invalid(name, format!("rank {root} of {ranks}"))
}

/// The sum over the ranks in the range of this one, if there are any.
fn scanned(
    collectives: &mut Collectives,
    recorder: &mut Recorder,
    numbers: &Array<f32>,
    range: ScanRange,
) -> Result<Option<Array<f32>>, OperatorError> {
    let sum = collectives.scan_range::<f32>(recorder, numbers, range, Op::Sum)?.finish(recorder)?;
    Ok((sum.len() == numbers.len()).then_some(sum))
}

/// Records the copy of what has come, or zeros where nothing has.
fn put(rank: &mut Rank, came: Option<Array<f32>>, to: &Array<f32>) -> Result<(), OperatorError> {
    match came {
        Some(came) => rank.recorder.copy(&came, 0, to, 0, to.len())?,
        None => rank.recorder.clear(to),
    }
    Ok(())
}

impl Linear for RankCollective {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let (x, y, fields) = (x.single()?, y.single()?, self.fields());
        let (mut collectives, recorder) = (rank.collectives(), &mut rank.recorder);
        let came = match &self.kind {
            Kind::AllGather { .. } => Some(collectives.all_gather_v(recorder, x, fields)?.finish(recorder)?.array),
            Kind::Broadcast { root } => {
                let given = (self.rank == *root).then_some(x);
                Some(collectives.broadcast(recorder, *root, given)?.finish(recorder)?)
            }
            Kind::Gather { root, .. } => {
                collectives.gather_v(recorder, *root, x, fields)?.finish(recorder)?.map(|parts| parts.array)
            }
            Kind::AllToAll { outgoing, .. } => {
                Some(collectives.all_to_all_v(recorder, x, outgoing, fields)?.finish(recorder)?.array)
            }
            Kind::SendReceive { to, from } => {
                collectives.send_receive(recorder, to.map(|to| (to, x)), *from)?.finish(recorder)?
            }
            Kind::AllReduce => Some(collectives.all_reduce::<f32>(recorder, x, Op::Sum)?.finish(recorder)?),
            Kind::Scan { range } => scanned(&mut collectives, recorder, x, *range)?,
        };
        put(rank, came, y)
    }

    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        let (x, y, fields) = (x.single()?, y.single()?, self.fields());
        let (mut collectives, recorder) = (rank.collectives(), &mut rank.recorder);
        let came = match &self.kind {
            Kind::AllGather { counts } => {
                Some(collectives.reduce_scatter_v::<f32>(recorder, y, counts, Op::Sum, fields)?.finish(recorder)?)
            }
            Kind::Broadcast { root } => collectives.reduce::<f32>(recorder, *root, y, Op::Sum)?.finish(recorder)?,
            Kind::Gather { root, counts } => {
                let given = (self.rank == *root).then_some((y, &counts[..]));
                Some(collectives.scatter_v(recorder, *root, given, fields)?.finish(recorder)?)
            }
            Kind::AllToAll { incoming, .. } => {
                Some(collectives.all_to_all_v(recorder, y, incoming, fields)?.finish(recorder)?.array)
            }
            Kind::SendReceive { to, from } => {
                collectives.send_receive(recorder, from.map(|from| (from, y)), *to)?.finish(recorder)?
            }
            Kind::AllReduce => Some(collectives.all_reduce::<f32>(recorder, y, Op::Sum)?.finish(recorder)?),
            Kind::Scan { range } => scanned(&mut collectives, recorder, y, range.transposed())?,
        };
        put(rank, came, x)
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        match &self.kind {
            Kind::Broadcast { root } | Kind::Gather { root, .. } => out.number(*root as u64),
            _ => {}
        }
        Ok(())
    }

    fn costs(&self) -> [CallCost; 2] {
        let [from, to] = self.lens().map(|numbers| 4 * numbers);
        let (others, ranks) = (self.ranks as u64 - 1, self.ranks as u64);
        let call = |passes, messages, sent| CallCost { messages, sent, ..CallCost::passes(passes, from + to) };
        let at =
            |root: usize, root_sends: u64, other_sends: u64| if self.rank == root { root_sends } else { other_sends };
        // What a reduction to parts sends of `bytes`, and their distribution.
        let parts = |bytes: u64| bytes / ranks * others;
        match &self.kind {
            Kind::AllGather { .. } => [call(1, others, from * others), call(3, others, parts(to))],
            Kind::Broadcast { root } => {
                let there = at(*root, 2 * parts(to), to / ranks * others.saturating_sub(1));
                [call(1, 2 * others, there), call(3, others + 1, parts(to) + at(*root, 0, to / ranks))]
            }
            Kind::Gather { root, .. } => {
                let sends = [at(*root, 0, from), at(*root, to.saturating_sub(from), 0)];
                [call(2, u64::from(self.rank != *root), sends[0]), call(2, at(*root, others, 0), sends[1])]
            }
            Kind::AllToAll { .. } => [call(3, others, from), call(3, others, to)],
            Kind::SendReceive { to: there, from: back } => {
                [call(1, u64::from(there.is_some()), from), call(1, u64::from(back.is_some()), to)]
            }
            Kind::AllReduce => [call(3, 2 * others, 2 * parts(from)); 2],
            Kind::Scan { range } => [*range, range.transposed()].map(|range| {
                // Of an exclusive one there is nothing for the rank at the end.
                let spared = u64::from(!range.has_own() && self.rank != range.end(self.ranks));
                call(3, 2 * others - spared, 2 * parts(from) - spared * (from / ranks))
            }),
        }
    }
}
