//! Inner products of vectors of particles: how much the numbers of a run are worth.

use super::parameters::COUNT;
use crate::comm::Communicator;
use crate::exchange::{ExactSum, Terms};
use crate::gpu::{Array, Recorder};
use crate::pm::SimulationError;
use crate::pm::start::LatticeFields;

/// What a product is worth: the derivatives by all parameters of what it multiplies.
struct Worth {
    product: Array<f32>,
    by: [f64; COUNT],
}

/// Products that have been recorded, each with the derivatives of the number that it is the cotangent of. They are fetched together, at the end.
pub struct Dots {
    sum: ExactSum,
    /// The derivatives of each number of the run.
    jacobian: Vec<[f64; COUNT]>,
    recorded: Vec<Worth>,
    /// Terms of a product, of all ranks, of one axis.
    sites: u64,
}

impl Dots {
    /// None yet, for a run with these derivatives of its numbers and so many particles.
    pub fn new(jacobian: Vec<[f64; COUNT]>, sites: u64) -> Self {
        Dots { sum: ExactSum::default(), jacobian, recorded: Vec::new(), sites }
    }

    /// What adds without an order.
    pub fn sums(&self) -> &ExactSum {
        &self.sum
    }

    /// Forgets all products.
    pub fn clear(&mut self) {
        self.recorded.clear();
    }

    /// Records `x . y` of vectors over all ranks, the cotangent of number `number`. Numbers that no parameter changes cost nothing.
    pub fn vectors(
        &mut self,
        recorder: &mut Recorder,
        comm: &Communicator,
        number: usize,
        values: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let by = self.jacobian[number];
        self.record(recorder, comm, by, (values, 3 * self.sites))
    }

    /// The same of accelerations, which are proportional to the matter density `omega_m`.
    pub fn accelerations(
        &mut self,
        recorder: &mut Recorder,
        comm: &Communicator,
        omega_m: f64,
        values: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let mut by = [0.0; COUNT];
        by[0] = 1.0 / omega_m;
        self.record(recorder, comm, by, (values, 3 * self.sites))
    }

    /// The same of fields with one value per site.
    pub fn add(
        &mut self,
        fields: &mut LatticeFields<'_>,
        number: usize,
        values: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let by = self.jacobian[number];
        self.record(fields.recorder, fields.comms.world(), by, (values, self.sites))
    }

    /// The same where the product is the derivative by a parameter itself.
    pub fn parameter(
        &mut self,
        fields: &mut LatticeFields<'_>,
        which: usize,
        values: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let mut by = [0.0; COUNT];
        by[which] = 1.0;
        self.record(fields.recorder, fields.comms.world(), by, (values, self.sites))
    }

    fn record(
        &mut self,
        recorder: &mut Recorder,
        comm: &Communicator,
        by: [f64; COUNT],
        ([x, y], total): ([&Array<f32>; 2], u64),
    ) -> Result<(), SimulationError> {
        if by == [0.0; COUNT] {
            return Ok(());
        }
        let product = recorder.gpu().array("pm::product", 1)?;
        let terms = Terms { x, y: Some(y), index: None, sums: 1, batches: 1, total };
        self.sum.record(recorder, Some(comm), &terms, &product)?;
        self.recorded.push(Worth { product, by });
        Ok(())
    }

    /// The derivatives by the parameters. Waits for the device.
    pub fn fetch(&mut self, recorder: &mut Recorder) -> Result<[f64; COUNT], SimulationError> {
        let mut total = [0.0; COUNT];
        for Worth { product, by } in self.recorded.drain(..) {
            let value = f64::from(recorder.download(&product, 0, 1)?[0]);
            total.iter_mut().zip(by).for_each(|(total, by)| *total += value * by);
        }
        Ok(total)
    }
}
