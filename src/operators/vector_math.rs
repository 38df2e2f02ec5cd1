//! Updates, products and sums of vectors, as methods of [`Rank`].

use std::convert::Infallible;

use crate::comm::CommError;
use crate::exchange::collectives::Collectives;
use crate::exchange::{SeveralSums, Summed};
use crate::gpu::Array;
use crate::rank::{PlanKey, Rank};

use super::error::OperatorError;
use super::leaf::Leaf;
use super::vector::{Contents, Vector};

#[derive(PartialEq)]
struct VectorSums;

impl PlanKey for VectorSums {
    type Plan = SeveralSums;
}

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
    pub fn vector_axpby(&mut self, a: f64, x: &Vector, b: f64, y: &mut Vector) -> Result<(), OperatorError> {
        y.space().admits(x.space(), "axpby")?;
        let mut pairs = Vec::new();
        for (x, y) in x.contents().iter().zip(y.contents_mut()) {
            match (x, y) {
                (Contents::Device(x), Contents::Device(y)) if x.raw().shares(y.raw()) => {
                    return Err(OperatorError::invalid("axpby", "x and y are one field; give two"));
                }
                (Contents::Device(x), Contents::Device(y)) => pairs.push([x, &*y]),
                (Contents::Host(x), Contents::Host(y)) => {
                    let update = |(y, x): (&mut f64, &f64)| *y = if b == 0.0 { a * x } else { a * x + b * *y };
                    y.iter_mut().zip(x).for_each(update);
                }
                _ => {}
            }
        }
        let updates = self.updates();
        Ok(updates.record_pairs(&mut self.recorder, a, &pairs, b)?)
    }

    /// Computes `y = y + a x` for each of `terms` in order. Records only.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the spaces differ.
    pub(crate) fn vector_add(&mut self, terms: &[(f64, Vector)], y: &mut Vector) -> Result<(), OperatorError> {
        terms.iter().try_for_each(|(_, x)| y.space().admits(x.space(), "add"))?;
        let updates = self.updates();
        for (place, own) in y.contents_mut().iter_mut().enumerate() {
            match own {
                Contents::Device(y) => {
                    let array = |(a, x): &'_ (f64, Vector)| match &x.contents()[place] {
                        Contents::Device(x) => Some((*a, x.clone())),
                        Contents::Host(_) => None,
                    };
                    let arrays: Vec<(f64, Array<f32>)> = terms.iter().filter_map(array).collect();
                    let arrays: Vec<_> = arrays.iter().map(|(a, x)| (*a, x)).collect();
                    updates.record_terms(&mut self.recorder, &arrays, y)?;
                }
                Contents::Host(y) => {
                    for (a, x) in terms {
                        if let Contents::Host(x) = &x.contents()[place] {
                            y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Computes `z = x y`, number by number, for one leaf on the device.
    pub(crate) fn vector_product(&mut self, x: &Vector, y: &Vector, z: &Vector) -> Result<(), OperatorError> {
        let (arrays, z) = ([x.single()?, y.single()?], z.single()?);
        let updates = self.updates();
        Ok(updates.record_product(&mut self.recorder, 1.0, arrays, 0.0, z)?)
    }

    /// Computes `y = a x z + b y`, number by number; `x` and `z` may be equal. With `b == 0` the
    /// values of `y` do not matter. Records only.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the spaces differ.
    /// - [`OperatorError::Invalid`] if `y` shares an array with a factor.
    pub fn vector_multiply(
        &mut self,
        a: f64,
        [x, z]: [&Vector; 2],
        b: f64,
        y: &mut Vector,
    ) -> Result<(), OperatorError> {
        y.space().admits(x.space(), "multiply")?;
        y.space().admits(z.space(), "multiply")?;
        let updates = self.updates();
        for ((x, z), y) in x.contents().iter().zip(z.contents()).zip(y.contents_mut()) {
            match (x, z, y) {
                (Contents::Device(x), Contents::Device(z), Contents::Device(y)) => {
                    if x.raw().shares(y.raw()) || z.raw().shares(y.raw()) {
                        return Err(OperatorError::invalid("multiply", "y is one of the factors; give another field"));
                    }
                    updates.record_product(&mut self.recorder, a, [x, z], b, y)?;
                }
                (Contents::Host(x), Contents::Host(z), Contents::Host(y)) => {
                    let update = |(y, (x, z)): (&mut f64, (&f64, &f64))| {
                        *y = a * x * z + if b == 0.0 { 0.0 } else { b * *y };
                    };
                    y.iter_mut().zip(x.iter().zip(z)).for_each(update);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the sum of the products of all numbers over all leaves and ranks; a complex number
    /// counts as two. [Collective](Self); blocks.
    ///
    /// Products are rounded to f32 and then to 2^-62 of the largest product times their number, and
    /// added exactly: the same bits on any number of ranks. Small replicated leaves are summed in
    /// f64.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the spaces differ.
    /// - [`OperatorError::NotFinite`] if a product is NaN or infinite.
    pub fn vector_dot(&mut self, x: &Vector, y: &Vector) -> Result<f64, OperatorError> {
        Ok(self.vector_sums(&[(x, Some(y))])?[0])
    }

    /// Returns several sums at once: of products as [`vector_dot`](Self::vector_dot), or of the
    /// magnitudes of a single vector. [Collective](Self); all ranks get the same bits.
    ///
    /// Blocks once on one rank and twice on several, for any number of sums and leaves. Small
    /// replicated leaves are summed on the host in f64, which costs several ranks one broadcast.
    ///
    /// # Errors
    /// Same as [`vector_dot`](Self::vector_dot).
    pub fn vector_sums(&mut self, fields: &[(&Vector, Option<&Vector>)]) -> Result<Vec<f64>, OperatorError> {
        let mut sums = Sums::default();
        for (x, y) in fields {
            if let Some(y) = y {
                y.space().admits(x.space(), "dot")?;
            }
            for (place, ((name, leaf), x)) in x.space().leaves().zip(x.contents()).enumerate() {
                sums.add(name, leaf, x, y.map(|y| &y.contents()[place]));
            }
            sums.ends.push(sums.terms.len());
        }
        let Ok(several) = self.plan(VectorSums, |_| Ok::<_, Infallible>(SeveralSums::default()));
        let (large, small) = several.make(&mut self.recorder, &self.comm, &sums.large, &sums.small)?;
        let value = |(_, term): &(&str, Term)| match term {
            Term::Large(at) => large[*at],
            Term::Small(x, None) => small[*x].iter().map(|x| f64::from(x.abs())).sum(),
            Term::Small(x, Some(y)) => {
                small[*x].iter().zip(&small[*y]).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
            }
            Term::Host(value) => *value,
        };
        let mut values: Vec<f64> = sums.terms.iter().map(value).collect();
        if sums.terms.iter().any(|(_, term)| !matches!(term, Term::Large(_))) {
            self.take_from_first(&mut values)?;
        }
        let mut found = vec![0.0; fields.len()];
        for (number, ((name, _), value)) in sums.terms.iter().zip(values).enumerate() {
            if !value.is_finite() {
                let what = format!("the sum over leaf `{name}`");
                return Err(OperatorError::NotFinite { operator: "dot".into(), what, value });
            }
            found[sums.ends.partition_point(|&end| end <= number)] += value;
        }
        Ok(found)
    }
}

/// Largest leaf that is summed on the host: downloading 16 KiB is faster than two dispatches.
const SMALL: u64 = 4096;

/// The source of a leaf's part of a sum.
enum Term {
    /// A sum on the device, by index.
    Large(usize),
    /// Arrays that are downloaded, by index.
    Small(usize, Option<usize>),
    /// The sum of parameters.
    Host(f64),
}

/// Several sums, leaf by leaf.
#[derive(Default)]
struct Sums<'a> {
    large: Vec<Summed<'a>>,
    small: Vec<&'a Array<f32>>,
    terms: Vec<(&'a str, Term)>,
    /// The end of each sum's terms.
    ends: Vec<usize>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, name: &'a str, leaf: &Leaf, x: &'a Contents, y: Option<&'a Contents>) {
        let term = match (x, y) {
            (Contents::Host(x), Some(Contents::Host(y))) => Term::Host(x.iter().zip(y).map(|(x, y)| x * y).sum()),
            (Contents::Host(x), _) => Term::Host(x.iter().map(|x| x.abs()).sum()),
            (Contents::Device(x), y) => {
                let y = y.and_then(|y| if let Contents::Device(y) = y { Some(y) } else { None });
                let is_distributed = leaf.is_distributed();
                if is_distributed || leaf.len() > SMALL {
                    self.large.push(Summed { x, y, total: leaf.total(), is_distributed });
                    Term::Large(self.large.len() - 1)
                } else {
                    Term::Small(self.along(x), y.map(|y| self.along(y)))
                }
            }
        };
        self.terms.push((name, term));
    }

    /// Returns the index of an array among those that are downloaded; each is downloaded once.
    fn along(&mut self, x: &'a Array<f32>) -> usize {
        self.small.iter().position(|other| std::ptr::eq(*other, x)).unwrap_or_else(|| {
            self.small.push(x);
            self.small.len() - 1
        })
    }
}
