//! The derivatives of the initial conditions.
//!
//! With `G_a = i k_a / k^2`, `H_ab = k_a k_b / k^2`, `h_ab = H_ab delta`, `s1_a = G_a delta`,
//! `s2_a = G_a L` and `C = c2r A r2c`:
//!
//! ```text
//! tangent  delta' = A w' + A' w        L' = sum_a h_aa' (tr h - h_aa) - 2 sum_{a<b} h_ab h_ab'        s1' = G delta'        s2' = G L'
//! adjoint  s_bar = position xi + momentum pi                       for each order
//!          L_bar = sum_a conj(G_a) s2_bar_a        h_aa_bar = L_bar (tr h - h_aa)        h_ab_bar = -2 L_bar h_ab
//!          delta_bar = sum_a conj(G_a) s1_bar_a + sum_{a<=b} H_ab h_ab_bar               w_bar = C delta_bar
//! ```
//!
//! The strains h are computed again. Order 1 takes 8 transforms of the particles' lattice, order 2
//! some 40, once a derivative; what each leaves behind is submitted, so that its fields are free
//! for the next.
//!
//! [`Dots`] are inner products of vectors of particles: how much the numbers of a run are worth.

use std::rc::Rc;

use super::parameters::Layout;
use super::{COUNT, Derivatives};
use crate::comm::Communicator;
use crate::cosmology::{LptFactors, LptOrder};
use crate::exchange::{ExactSum, Terms};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::pm::lattice_fields::{STRAINS, Sources, gradients};
use crate::pm::start::{THIRD_ORDER, add_sources, add_third_order, add_third_order_tangents, third_order_adjoint};
use crate::pm::{LatticeFields, Result, Source};
use crate::rank::Rank;

/// Tangent of the start of a run.
pub struct StartTangent<'a> {
    /// The change of the white noise.
    pub noise: &'a Array<f32>,
    /// Tangent of the amplitudes, if they change.
    pub amplitudes: Option<&'a Array<f32>>,
    /// Tangent of the factors.
    pub factors: LptFactors,
}

/// Records how displacements and momenta at the start change, by axis, as `[displacement,
/// momentum]`. Collective.
pub fn tangent(
    fields: &mut LatticeFields<'_>,
    at: Source<'_>,
    by: &StartTangent<'_>,
    out: [&[Array<f32>; 3]; 2],
) -> Result<()> {
    let delta = fields.scaled(at.noise, at.amplitudes)?;
    let change = fields.scaled(by.noise, at.amplitudes)?;
    if let Some(amplitudes) = by.amplitudes {
        let more = fields.scaled(at.noise, amplitudes)?;
        fields.add(1.0, &more.cast()?, 1.0, &change.cast()?)?;
    }
    let (mut sources, mut changes) = (vec![delta], vec![change]);
    if fields.lpt.order >= LptOrder::Second {
        let [second, change] = source_and_tangent(fields, [&sources[0], &changes[0]])?;
        sources.push(second);
        changes.push(change);
    }
    if fields.lpt.order == LptOrder::Third {
        add_third_order_tangents(fields, &sources, &mut changes)?;
        if by.factors != LptFactors::ZERO {
            add_third_order(fields, &mut sources)?;
        }
    }
    for axis in 0..3 {
        for number in 0..fields.lpt.order.displacements() {
            let keep = if number == 0 { 0.0 } else { 1.0 };
            let moved = fields.displacement(axis, number, &changes)?;
            fields.add(at.factors.position[number], &moved, keep, &out[0][axis])?;
            fields.add(at.factors.momentum[number], &moved, keep, &out[1][axis])?;
            let more = [by.factors.position[number], by.factors.momentum[number]];
            if more != [0.0; 2] {
                let s = fields.displacement(axis, number, &sources)?;
                fields.add(more[0], &s, 1.0, &out[0][axis])?;
                fields.add(more[1], &s, 1.0, &out[1][axis])?;
            }
            fields.recorder.submit()?;
        }
    }
    Ok(())
}

/// Returns the modes of the source of the second order, and of its change.
fn source_and_tangent(
    fields: &mut LatticeFields<'_>,
    [delta, change]: [&Array<[f32; 2]>; 2],
) -> Result<[Array<[f32; 2]>; 2]> {
    let (source, tangent) = (fields.zeros()?, fields.zeros()?);
    let diagonal = fields.strains(0..3, delta)?;
    for axis in 0..3 {
        let (next, last) = (&diagonal[(axis + 1) % 3], &diagonal[(axis + 2) % 3]);
        let changed = fields.strain(axis, change)?;
        fields.add_product(1.0, [&changed, next], 1.0, &tangent)?;
        fields.add_product(1.0, [&changed, last], 1.0, &tangent)?;
        fields.add_product(1.0, [&diagonal[axis], next], 1.0, &source)?;
        fields.recorder.submit()?;
    }
    drop(diagonal);
    for which in 3..STRAINS.len() {
        let (mixed, changed) = (fields.strain(which, delta)?, fields.strain(which, change)?);
        fields.add_product(-2.0, [&mixed, &changed], 1.0, &tangent)?;
        fields.add_product(-1.0, [&mixed, &mixed], 1.0, &source)?;
        fields.recorder.submit()?;
    }
    Ok([fields.spectrum(&source)?, fields.spectrum(&tangent)?])
}

/// Input of the adjoint of the start: fields of this rank's sites.
pub struct StartCotangents<'a> {
    /// Cotangents of the displacements, by axis.
    pub positions: &'a [Array<f32>; 3],
    /// Cotangents of the momenta.
    pub momenta: &'a [Array<f32>; 3],
    /// The derivatives of the amplitudes by the parameters, if these are asked for.
    pub amplitudes: &'a [Array<f32>],
}

/// Records the cotangent of the white noise, on this rank's sites, and adds to `dots` what the
/// factors of the start and the amplitudes are worth. Collective.
pub fn adjoint(
    fields: &mut LatticeFields<'_>,
    at: Source<'_>,
    bars: &StartCotangents<'_>,
    dots: (&mut Dots, &Layout),
) -> Result<Array<f32>> {
    let (dots, layout) = dots;
    let order = fields.lpt.order;
    let mut sources = vec![fields.scaled(at.noise, at.amplitudes)?];
    let mut source_bars = vec![fields.zeros()?];
    displacements(fields, (&at.factors, bars), (0, &sources), &source_bars, (dots, layout))?;
    if order >= LptOrder::Second {
        for _ in 1..source_count(order) {
            source_bars.push(fields.zeros()?);
        }
        if (1..order.displacements()).any(|number| layout.start_numbers(number).iter().any(|&at| dots.wants(at))) {
            add_sources(fields, &mut sources)?;
        }
        for number in 1..order.displacements() {
            displacements(fields, (&at.factors, bars), (number, &sources), &source_bars, (dots, layout))?;
        }
    }
    if order == LptOrder::Third {
        if sources.len() == 1 {
            sources.push(fields.second_order_source(&sources[0])?);
        }
        sources.truncate(2);
        third_order_adjoint(fields, &sources, &source_bars)?;
        source_bars.truncate(2);
    }
    if let [density, second] = &source_bars[..] {
        sources.truncate(1);
        second_order(fields, &sources[0], [density, second])?;
    }
    let density = source_bars.swap_remove(0);
    drop(source_bars);
    for (which, derivative) in bars.amplitudes.iter().enumerate() {
        let change = fields.filtered(at.noise, derivative)?;
        dots.parameter(fields.recorder, which, [&density, &change])?;
        fields.recorder.submit()?;
    }
    fields.filtered(&density, at.amplitudes)
}

/// Returns the number of sources of all displacements.
fn source_count(order: LptOrder) -> usize {
    if order == LptOrder::Third { THIRD_ORDER.end } else { order.displacements() }
}

/// Adds to the cotangents of sources, one field for each, what those of displacement `number` mean.
/// The modes of the sources are needed where its factors change with a parameter.
fn displacements(
    fields: &mut LatticeFields<'_>,
    (factors, bars): (&LptFactors, &StartCotangents<'_>),
    (number, sources): (usize, &Sources),
    source_bars: &[Array<f32>],
    (dots, layout): (&mut Dots, &Layout),
) -> Result<()> {
    let numbers = layout.start_numbers(number);
    for axis in 0..3 {
        if numbers.iter().any(|&number| dots.wants(number)) {
            // The displacement itself is what its factors count for.
            let displacement = fields.displacement(axis, number, sources)?;
            dots.fields(fields.recorder, numbers[0], [&bars.positions[axis], &displacement])?;
            dots.fields(fields.recorder, numbers[1], [&bars.momenta[axis], &displacement])?;
            fields.recorder.submit()?;
        }
        let bar = fields.field()?;
        fields.add(factors.position[number], &bars.positions[axis], 0.0, &bar)?;
        fields.add(factors.momentum[number], &bars.momenta[axis], 1.0, &bar)?;
        let modes = fields.spectrum(&bar)?;
        for (source, gradient, sign) in gradients(axis, number) {
            let part = fields.gradient(gradient, &modes)?;
            fields.add(-sign, &part, 1.0, &source_bars[source])?;
        }
        fields.recorder.submit()?;
    }
    Ok(())
}

/// Adds to the cotangent of the contrast what that of the source of the second order means.
fn second_order(
    fields: &mut LatticeFields<'_>,
    delta: &Array<[f32; 2]>,
    [density, source_bar]: [&Array<f32>; 2],
) -> Result<()> {
    let diagonal = fields.strains(0..3, delta)?;
    for axis in 0..3 {
        let bar = fields.field()?;
        fields.add_product(1.0, [source_bar, &diagonal[(axis + 1) % 3]], 0.0, &bar)?;
        fields.add_product(1.0, [source_bar, &diagonal[(axis + 2) % 3]], 1.0, &bar)?;
        fields.strain_adjoint(axis, &bar, density)?;
    }
    drop(diagonal);
    for which in 3..STRAINS.len() {
        let (mixed, bar) = (fields.strain(which, delta)?, fields.field()?);
        fields.add_product(-2.0, [source_bar, &mixed], 0.0, &bar)?;
        fields.recorder.submit()?;
        drop(mixed);
        fields.strain_adjoint(which, &bar, density)?;
    }
    Ok(())
}

/// Words that come along with the products at most.
const ALONG: u64 = 2;

/// Products that have been recorded, each with the derivatives of the number that it is the
/// cotangent of. They are fetched together, at the end.
pub struct Dots {
    pub sum: ExactSum,
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
