//! Between what ranks have of their own and what all of them have: collectives as operators.

use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::leaf::{Leaf, Support};
use super::linear::Linear;
use super::signature::{CallCost, Signature};
use super::space::Space;
use super::vector::{Contents, Vector};
use crate::comm::Op;
use crate::exchange::collectives::{all_gather, all_reduce};
use crate::fft::Values;
use crate::host_memory;
use crate::rank::Rank;

/// The values of all ranks' points as one vector on every rank, rank by rank. Its adjoint takes this rank's part of the cotangent, which is the
/// same on every rank. For small data: every rank holds the whole.
pub struct Replicate {
    signature: Signature,
    start: u64,
}

impl Replicate {
    /// From the only leaf of `domain`, one real number at each point. All ranks call it.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces.
    pub fn new(rank: &Rank, domain: &Space) -> Result<Self, OperatorError> {
        let Some((
            name,
            Leaf { support: Support::Points { own, total, .. }, values: Values::Real, components: 1, batch: 1 },
        )) = domain.only()
        else {
            return Err(OperatorError::invalid("replication", format!("{domain} is not one number at each point")));
        };
        let mut start = [*own];
        rank.comm.scan_exclusive(&mut start, Op::Sum)?;
        let target = Space::of(name, Leaf::vector(*total))?;
        Ok(Replicate { signature: Signature::new("replication", domain, &target), start: start[0] })
    }

    fn own(&self) -> u64 {
        self.signature.domain.only().map_or(0, |(_, leaf)| leaf.len())
    }
}

impl Linear for Replicate {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comm) = (&mut rank.recorder, &rank.comm);
        Ok(all_gather(recorder, comm, x.single()?, y.single()?)?)
    }

    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        Ok(rank.recorder.copy(y.single()?, self.start, x.single()?, 0, self.own())?)
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<(), OperatorError> {
        Ok(())
    }

    fn costs(&self) -> [CallCost; 2] {
        let (own, all) = (4 * self.own(), 4 * self.signature.target.only().map_or(0, |(_, leaf)| leaf.len()));
        let there = CallCost {
            messages: u64::from(own < all),
            sent: if own < all { own } else { 0 },
            ..CallCost::passes(1, own + all)
        };
        [there, CallCost::passes(1, 2 * own)]
    }
}

/// The sum over ranks of a vector that each of them has of its own, on every rank: an all-reduce. Its adjoint hands every rank the cotangent, which is
/// the same on all. Floats are added along a fixed tree over the ranks, so that the bits depend on their number: where they must not, sum what the
/// vectors are made of with a [`Gather`](super::Gather).
pub struct SumOverRanks {
    signature: Signature,
}

impl SumOverRanks {
    /// From the only leaf of `domain`, one real number at each point, as many points on every rank. All ranks call it.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces.
    pub fn new(rank: &Rank, domain: &Space) -> Result<Self, OperatorError> {
        let ranks = rank.comm.size() as u64;
        match domain.only() {
            Some((
                name,
                Leaf { support: Support::Points { own, total, .. }, values: Values::Real, components: 1, batch: 1 },
            )) if own * ranks == *total => {
                let target = Space::of(name, Leaf::vector(*own))?;
                Ok(SumOverRanks { signature: Signature::new("sum over ranks", domain, &target) })
            }
            _ => {
                let why = format!("{domain} is not one number at each of as many points on every one of {ranks} ranks");
                Err(OperatorError::invalid("sum over ranks", why))
            }
        }
    }

    fn len(&self) -> u64 {
        self.signature.target.only().map_or(0, |(_, leaf)| leaf.len())
    }
}

impl Linear for SumOverRanks {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let (len, recorder, comm) = (self.len(), &mut rank.recorder, &rank.comm);
        recorder.copy(x.single()?, 0, y.single()?, 0, len)?;
        Ok(all_reduce(recorder, comm, y.single()?, 0..len, Op::Sum)?)
    }

    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        Ok(rank.recorder.copy(y.single()?, 0, x.single()?, 0, self.len())?)
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<(), OperatorError> {
        Ok(())
    }

    fn costs(&self) -> [CallCost; 2] {
        let (bytes, copy) = (4 * self.len(), CallCost::passes(1, 8 * self.len()));
        let Some((_, leaf)) = self.signature.domain.only() else { return [copy; 2] };
        let steps = u64::from((leaf.total() / leaf.len().max(1)).next_power_of_two().ilog2());
        [CallCost { messages: 2 * steps, sent: 2 * steps * bytes, ..copy }, copy]
    }
}

/// Parameters of the host as a vector on the device. Its adjoint waits for the device, since it brings the cotangent to the host.
pub struct ToDevice {
    signature: Signature,
}

impl ToDevice {
    /// From the only leaf of `domain`, parameters.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces.
    pub fn new(domain: &Space) -> Result<Self, OperatorError> {
        match domain.only() {
            Some((name, leaf)) if matches!(leaf.support, Support::Parameters { .. }) => {
                let target = Space::of(name, Leaf { support: Support::Vector { len: leaf.places() }, ..leaf.clone() })?;
                Ok(ToDevice { signature: Signature::new("upload", domain, &target) })
            }
            _ => Err(OperatorError::invalid("upload", format!("{domain} is not one leaf of parameters"))),
        }
    }
}

impl Linear for ToDevice {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let [Contents::Host(values)] = x.contents() else { return Ok(()) };
        let values = host_memory::collect("values of a field", values.iter().map(|&value| value as f32))?;
        Ok(rank.recorder.upload(y.single()?, 0, &values)?)
    }

    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        let y = y.single()?;
        let values = rank.recorder.download(y, 0, y.len())?;
        if let [Contents::Host(own)] = x.contents_mut() {
            own.iter_mut().zip(values).for_each(|(own, value)| *own = value.into());
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<(), OperatorError> {
        Ok(())
    }

    fn costs(&self) -> [CallCost; 2] {
        [CallCost::passes(0, 4 * self.signature.target.only().map_or(0, |(_, leaf)| leaf.len())); 2]
    }
}
