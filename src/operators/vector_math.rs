//! Updates, products and sums of vectors, as methods of [`Rank`].

use std::convert::Infallible;

use crate::comm::CommError;
use crate::exchange::collectives::Collectives;
use crate::exchange::{SeveralSums, Summed, SummedTerms, Terms};
use crate::gpu::Array;
use crate::rank::{PlanKey, Rank};

use super::{Contents, Leaf, OperatorError, Result, Vector, refuse};

#[derive(PartialEq)]
struct RankCollectives;

impl PlanKey for RankCollectives {
    type Plan = Collectives;
}

impl Rank {
    /// Replaces values that all ranks have by those of rank 0, so that all ranks continue with the
    /// same bits: devices round differently. [Collective](Self).
    pub(crate) fn take_from_first(&self, values: &mut [f64]) -> Result<(), CommError> {
        if self.size() == 1 { Ok(()) } else { self.comm.broadcast(0, values) }
    }

    /// Records exact sums of `terms` into `out`: over all ranks if the terms are distributed.
    pub(super) fn record_sum(&mut self, is_distributed: bool, terms: &Terms<'_>, out: &Array<f32>) -> Result<()> {
        let sums = self.exact_sums();
        Ok(sums.record(&mut self.recorder, is_distributed.then_some(&self.comm), terms, out)?)
    }

    /// Returns the exact sum of the values `x`, of which all ranks have `total`: over all ranks if
    /// the values are distributed.
    pub(crate) fn exact_total(&mut self, is_distributed: bool, x: &Array<f32>, total: u64) -> Result<f64> {
        let (sums, terms) = (self.exact_sums(), Terms { x, y: None, index: None, sums: 1, batches: 1, total });
        Ok(sums.value(&mut self.recorder, is_distributed.then_some(&self.comm), &terms)?)
    }

    /// Returns the collectives of device arrays among all ranks.
    pub(super) fn collectives(&mut self) -> Collectives {
        let make = |rank: &mut Rank| Ok::<_, Infallible>(Collectives::new(rank.exchange.clone()));
        let Ok(collectives) = self.plan(RankCollectives, make);
        Collectives::clone(&collectives)
    }

    /// Computes `y = a x + b y`. With `b == 0` the values of `y` do not matter. Records only.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the spaces differ.
    /// - [`OperatorError::Invalid`] if `x` and `y` share an array.
    pub fn vector_axpby(&mut self, a: f64, x: &Vector, b: f64, y: &mut Vector) -> Result<()> {
        y.space().admits(x.space(), "axpby")?;
        let updates = self.updates();
        for run in x.runs(&[y], |_| true) {
            if run[0].raw().overlaps(run[1].raw()) {
                return refuse("axpby", "x and y are one field; give two");
            }
            updates.record(&mut self.recorder, a, &run[0], b, &run[1])?;
        }
        for (x, y) in x.contents().iter().zip(y.contents_mut()) {
            if let (Contents::Host(x), Contents::Host(y)) = (x, y) {
                let update = |(y, x): (&mut f64, &f64)| *y = if b == 0.0 { a * x } else { a * x + b * *y };
                y.iter_mut().zip(x).for_each(update);
            }
        }
        Ok(())
    }

    /// Computes `y = y + a x` for each of `terms` in order. Records only.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the spaces differ.
    pub(crate) fn vector_add(&mut self, terms: &[(f64, Vector)], y: &mut Vector) -> Result<()> {
        terms.iter().try_for_each(|(_, x)| y.space().admits(x.space(), "add"))?;
        let updates = self.updates();
        let arrays: Vec<&Vector> = terms.iter().map(|(_, x)| x).collect();
        for run in y.runs(&arrays, |_| true) {
            let terms: Vec<_> = terms.iter().map(|(a, _)| *a).zip(&run[1..]).collect();
            updates.record_terms(&mut self.recorder, &terms, &run[0])?;
        }
        for (place, own) in y.contents_mut().iter_mut().enumerate() {
            let Contents::Host(y) = own else { continue };
            for (a, x) in terms {
                if let Contents::Host(x) = &x.contents()[place] {
                    y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
                }
            }
        }
        Ok(())
    }

    /// Computes `y = a x z + b y`, number by number; `x` and `z` may be equal. With `b == 0` the
    /// values of `y` do not matter. Records only.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the spaces differ.
    /// - [`OperatorError::Invalid`] if `y` shares an array with a factor.
    pub fn vector_multiply(&mut self, a: f64, [x, z]: [&Vector; 2], b: f64, y: &mut Vector) -> Result<()> {
        y.space().admits(x.space(), "multiply")?;
        y.space().admits(z.space(), "multiply")?;
        let updates = self.updates();
        for run in x.runs(&[z, y], |_| true) {
            if run[..2].iter().any(|factor| factor.raw().overlaps(run[2].raw())) {
                return refuse("multiply", "y is one of the factors; give another field");
            }
            updates.record_product(&mut self.recorder, a, [&run[0], &run[1]], b, &run[2])?;
        }
        for ((x, z), y) in x.contents().iter().zip(z.contents()).zip(y.contents_mut()) {
            if let (Contents::Host(x), Contents::Host(z), Contents::Host(y)) = (x, z, y) {
                let update = |(y, (x, z)): (&mut f64, (&f64, &f64))| {
                    *y = a * x * z + if b == 0.0 { 0.0 } else { b * *y };
                };
                y.iter_mut().zip(x.iter().zip(z)).for_each(update);
            }
        }
        Ok(())
    }

    /// Returns the sum of the products of all numbers over all leaves and ranks; a complex number
    /// counts as two. [Collective](Self); blocks.
    ///
    /// Products are rounded to f32 and then to 2^-62 of the largest product times their number, and
    /// added exactly: the same bits on any number of ranks. Values that all ranks have count once.
    /// Parameters are summed in f64.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the spaces differ.
    /// - [`OperatorError::NotFinite`] if a product is NaN or infinite.
    pub fn vector_dot(&mut self, x: &Vector, y: &Vector) -> Result<f64> {
        Ok(self.vector_sums(&[(x, Some(y))])?[0])
    }

    /// Returns several sums at once: of products as [`vector_dot`](Self::vector_dot), or of the
    /// magnitudes of a single vector. [Collective](Self); all ranks get the same bits.
    ///
    /// Blocks once on one rank and twice on several, for any number of sums and leaves. Parameters
    /// cost several ranks one broadcast.
    ///
    /// # Errors
    /// Same as [`vector_dot`](Self::vector_dot).
    pub fn vector_sums(&mut self, fields: &[(&Vector, Option<&Vector>)]) -> Result<Vec<f64>> {
        let sums = fields.iter().map(|&(x, y)| match y {
            Some(y) => VectorSum::Products([x, y]),
            None => VectorSum::Magnitudes(x),
        });
        self.vector_reductions(&sums.collect::<Vec<_>>())
    }

    /// Returns several sums at once, as [`vector_sums`](Self::vector_sums).
    ///
    /// # Errors
    /// Same as [`vector_sums`](Self::vector_sums).
    pub(crate) fn vector_reductions(&mut self, fields: &[VectorSum<'_>]) -> Result<Vec<f64>> {
        let is_first = self.index() == 0;
        let counts = |leaf: &Leaf| leaf.is_distributed() || is_first;
        let (mut sums, mut on_host) = (Vec::new(), Vec::new());
        for field in fields {
            let (x, y) = field.vectors();
            if let Some(y) = y {
                y.space().admits(x.space(), "dot")?;
            }
            let terms = x.runs(y.as_slice(), counts).into_iter().map(|run| field.terms(run));
            let leaves = x.space().leaves().map(|(_, leaf)| leaf);
            let on_device = leaves.filter(|leaf| !leaf.is_on_host());
            let total = on_device.map(Leaf::total).fold(0, u64::saturating_add);
            sums.push(Summed { terms: terms.collect(), total });
            on_host.push(host_sum(*field));
        }
        let mut found = self.shared::<SeveralSums>().make(&mut self.recorder, &self.comm, &sums)?;
        if on_host.iter().any(Option::is_some) {
            let mut values: Vec<f64> = on_host.into_iter().map(Option::unwrap_or_default).collect();
            self.take_from_first(&mut values)?;
            found.iter_mut().zip(values).for_each(|(found, value)| *found += value);
        }
        match found.iter().zip(fields).find(|(found, _)| !found.is_finite()) {
            None => Ok(found),
            Some((&value, field)) => {
                let (x, _) = field.vectors();
                let names: Vec<&str> = x.space().names().collect();
                let leaves = if names.len() == 1 { "leaf" } else { "leaves" };
                let what = format!("the sum over {leaves} `{}`", names.join("`, `"));
                Err(OperatorError::NotFinite { operator: "dot".into(), what, value })
            }
        }
    }
}

/// The terms of a sum over vectors.
#[derive(Clone, Copy)]
pub(crate) enum VectorSum<'a> {
    /// Products of the numbers of two vectors.
    Products([&'a Vector; 2]),
    /// Magnitudes of the numbers of a vector.
    Magnitudes(&'a Vector),
    /// The numbers of a vector.
    Values(&'a Vector),
}

impl<'a> VectorSum<'a> {
    fn vectors(self) -> (&'a Vector, Option<&'a Vector>) {
        match self {
            VectorSum::Products([x, y]) => (x, Some(y)),
            VectorSum::Magnitudes(x) | VectorSum::Values(x) => (x, None),
        }
    }

    /// Returns the terms of arrays of the vectors.
    fn terms(self, mut arrays: Vec<Array<f32>>) -> SummedTerms {
        let x = arrays.swap_remove(0);
        match self {
            VectorSum::Products(_) => SummedTerms::Products([x, arrays.swap_remove(0)]),
            VectorSum::Magnitudes(_) => SummedTerms::Magnitudes(x),
            VectorSum::Values(_) => SummedTerms::Values(x),
        }
    }
}

/// Returns the sum over parameters; `None` without parameters.
fn host_sum(field: VectorSum<'_>) -> Option<f64> {
    let (x, y) = field.vectors();
    let mut sum = None;
    for (place, x) in x.contents().iter().enumerate() {
        let Contents::Host(x) = x else { continue };
        let own: f64 = match (field, y.map(|y| &y.contents()[place])) {
            (_, Some(Contents::Host(y))) => x.iter().zip(y).map(|(x, y)| x * y).sum(),
            (VectorSum::Values(_), _) => x.iter().sum(),
            _ => x.iter().map(|x| x.abs()).sum(),
        };
        sum = Some(sum.unwrap_or(0.0) + own);
    }
    sum
}
