//! Moving distributed arrays from one set of boxes to another.
//!
//! ```text
//! input -> blocks, packed by peer -> Exchange::run -> blocks, by peer -> output
//!   \_________________ what the rank keeps: one copy ________________/
//! ```
//!
//! [`Redistribution`] says which blocks go where, this module moves them: one dispatch per block,
//! or a plain copy where the block is one run of the array. [`Exchange::run`] submits; the last
//! dispatches are left for the caller to submit.

use super::{BlockCopies, Exchange, ExchangeError, FieldBlocks};
use crate::comm::Subject;
use crate::gpu::{Array, DeviceElement, DeviceError, Gpu, MemoryKind, Recorder};
use crate::grid::{Block, Redistribution, volume};

/// A redistribution of `fields` meshes at once, for arrays of any element.
#[must_use = "a redistribution does nothing until it is run"]
pub struct Reshape {
    /// Which cells go where.
    pub plan: Redistribution,
    /// Meshes moved at once.
    pub fields: u64,
    copies: BlockCopies,
}

impl Reshape {
    /// Moves `fields` meshes as planned; their arrays lie one after the other, in one array.
    pub fn new(plan: Redistribution, fields: u64) -> Self {
        Reshape { plan, fields, copies: BlockCopies::default() }
    }

    /// Returns the redistribution in the other direction, which is the inverse and the adjoint.
    pub fn reversed(&self) -> Self {
        Reshape::new(self.plan.reversed(), self.fields)
    }

    /// Elements of the array before: [`Reshape::fields`] times this rank's box.
    pub fn input_len(&self) -> u64 {
        volume(&self.plan.from) * self.fields
    }

    /// Elements of the array after.
    pub fn output_len(&self) -> u64 {
        volume(&self.plan.to) * self.fields
    }

    /// Fills `output`, this rank's part after, from the ranks' `input`, their parts before; two
    /// different arrays, the input is left as it was. Arrays of `f64` need a device that has it
    /// ([`Capabilities::f64`]).
    ///
    /// All ranks of `exchange` call it, in the order of the redistribution's ranks. What was
    /// recorded before is submitted if this rank sends or receives anything; what is recorded after
    /// sees the output. Where the redistribution is the identity, the arrays are copied on the
    /// device and nothing travels.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] when an
    /// array has another length, the exchange other ranks, or the device no double precision for
    /// arrays of it.
    ///
    /// [`Capabilities::f64`]: crate::gpu::Capabilities::f64
    pub fn run<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        input: &Array<T>,
        output: &Array<T>,
    ) -> Result<(), ExchangeError> {
        let (gpu, fields) = (recorder.gpu().clone(), self.fields);
        self.check(&gpu, exchange, input, output)?;
        let before = |block: Block| FieldBlocks { array: input, block, stride: volume(&self.plan.from) };
        let after = |block: Block| FieldBlocks { array: output, block, stride: volume(&self.plan.to) };
        if let Some(kept) = self.plan.kept {
            self.copies.record(recorder, fields, before(kept.from), after(kept.to))?;
        }
        let transfers = self.plan.transfers(fields);
        // A rank with nothing to move takes part, too, because exchanges are identified by counting
        // them.
        let total = |copies: &[crate::grid::BoxCopy]| copies.iter().map(|copy| copy.block.len()).sum::<u64>() * fields;
        let outgoing = gpu.array_in::<T>("reshape::outgoing", total(&self.plan.pack), MemoryKind::Outgoing)?;
        let incoming = gpu.array_in::<T>("reshape::incoming", total(&self.plan.unpack), MemoryKind::Incoming)?;
        for copy in &self.plan.pack {
            let packed = FieldBlocks::packed(&outgoing, copy.start * fields, copy.block);
            self.copies.record(recorder, fields, before(copy.block), packed)?;
        }
        let subject = Subject::new(&format!("redistribution of {fields} meshes of {}", T::ELEMENT.wgsl()));
        let subject = subject.with(&self.plan.alike).with(&[fields]);
        exchange.start_for(subject, recorder, &transfers, &outgoing, &incoming)?.finish(recorder)?;
        for copy in &self.plan.unpack {
            let packed = FieldBlocks::packed(&incoming, copy.start * fields, copy.block);
            self.copies.record(recorder, fields, packed, after(copy.block))?;
        }
        Ok(())
    }

    fn check<T: DeviceElement>(
        &self,
        gpu: &Gpu,
        exchange: &Exchange,
        input: &Array<T>,
        output: &Array<T>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Reshape::run";
        let (have, want) = ([input.len(), output.len()], [self.input_len(), self.output_len()]);
        let why = || format!("arrays of {} and {} elements, not {} and {}", have[0], have[1], want[0], want[1]);
        DeviceError::ensure(have == want, WHAT, why)?;
        let (have, want) = ((exchange.comm().rank(), exchange.comm().size()), (self.plan.rank, self.plan.ranks));
        let why = || format!("rank {} of {} in the exchange, {} of {} in the plan", have.0, have.1, want.0, want.1);
        DeviceError::ensure(have == want, WHAT, why)?;
        gpu.supports(T::ELEMENT, WHAT)
    }
}
