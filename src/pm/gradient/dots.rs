//! Inner products of vectors of particles: how much the numbers of a run are worth.

use std::rc::Rc;

use super::parameters::{COUNT, Derivatives};
use crate::comm::Communicator;
use crate::cosmology::LptFactors;
use crate::exchange::{ExactSum, Terms};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::pm::Result;
use crate::rank::Rank;

/// Words that come along with the products at most.
const ALONG: u64 = 2;

/// Products that have been recorded, each with the derivatives of the number that it is the
/// cotangent of. They are fetched together, at the end.
pub struct Dots {
    sum: ExactSum,
    comm: Communicator,
    derivatives: Rc<Derivatives>,
    /// Recorded products.
    products: Array<f32>,
    /// The derivatives by all parameters of what each product multiplies.
    worth: Vec<[f64; COUNT]>,
    /// Terms of a product, of all ranks, of one axis.
    sites: u64,
}

impl Dots {
    /// Creates an empty sum, for a run with `numbers` numbers and `sites` particles.
    pub fn new(rank: &Rank, numbers: usize, sites: u64) -> Result<Self, DeviceError> {
        // Numbers of the start have a product for each axis; a few words come along.
        let start = 2 * (2 * LptFactors::COUNT);
        let products = rank.gpu.array("pm::products", (numbers + start + COUNT) as u64 + ALONG)?;
        let derivatives = Rc::new(Derivatives::none(numbers));
        let comm = rank.comm.clone();
        Ok(Dots { sum: ExactSum::default(), comm, derivatives, products, worth: Vec::new(), sites })
    }

    /// Returns what adds without an order.
    pub fn sums(&self) -> &ExactSum {
        &self.sum
    }

    /// Forgets all products; the next are of a run with these derivatives.
    pub fn begin(&mut self, derivatives: &Rc<Derivatives>) {
        self.worth.clear();
        self.derivatives = derivatives.clone();
    }

    /// Returns `true` if anything but 0 is asked for: that `number` changes with a parameter.
    pub fn wants(&self, number: usize) -> bool {
        self.derivatives.numbers[number] != [0.0; COUNT]
    }

    /// Records `x . y` of vectors over all ranks, the cotangent of number `number`. Numbers that no
    /// parameter changes cost nothing.
    pub fn vectors(&mut self, recorder: &mut Recorder, number: usize, xy: [&Array<f32>; 2]) -> Result<()> {
        self.record(recorder, self.derivatives.numbers[number], 3 * self.sites, xy)
    }

    /// Same as above, for fields with one value per site.
    pub fn fields(&mut self, recorder: &mut Recorder, number: usize, xy: [&Array<f32>; 2]) -> Result<()> {
        self.record(recorder, self.derivatives.numbers[number], self.sites, xy)
    }

    /// Same as above, if the product is the derivative with respect to a parameter itself.
    pub fn parameter(&mut self, recorder: &mut Recorder, which: usize, xy: [&Array<f32>; 2]) -> Result<()> {
        let mut by = [0.0; COUNT];
        by[which] = 1.0;
        self.record(recorder, by, self.sites, xy)
    }

    fn record(
        &mut self,
        recorder: &mut Recorder,
        by: [f64; COUNT],
        total: u64,
        [x, y]: [&Array<f32>; 2],
    ) -> Result<()> {
        if by == [0.0; COUNT] {
            return Ok(());
        }
        let product = recorder.gpu().array("pm::product", 1)?;
        let terms = Terms { x, y: Some(y), index: None, sums: 1, batches: 1, total };
        self.sum.record(recorder, Some(&self.comm), &terms, &product)?;
        recorder.copy(&product, 0, &self.products, self.worth.len() as u64, 1)?;
        self.worth.push(by);
        Ok(())
    }

    /// Returns the derivatives by the parameters, and the first word of each array of `along`. One
    /// wait for the device, where there is anything.
    pub fn fetch(&mut self, recorder: &mut Recorder, along: &[&Array<u32>]) -> Result<([f64; COUNT], Vec<u32>)> {
        let (mut total, made) = ([0.0; COUNT], self.worth.len());
        if made + along.len() == 0 {
            return Ok((total, Vec::new()));
        }
        let words = self.products.cast::<u32>()?;
        for (number, word) in along.iter().enumerate() {
            recorder.copy(word, 0, &words, (made + number) as u64, 1)?;
        }
        let mut words = recorder.download(&words, 0, (made + along.len()) as u64)?;
        let along = words.split_off(made);
        for (product, by) in words.into_iter().zip(self.worth.drain(..)) {
            total.iter_mut().zip(by).for_each(|(total, by)| *total += f64::from(f32::from_bits(product)) * by);
        }
        Ok((total, along))
    }
}
