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
    /// Replaces values that all ranks have by those of rank 0, so that all ranks continue with the same
    /// bits: devices round differently. [Collective](Self).
    pub(crate) fn take_from_first(&self, values: &mut [f64]) -> Result<(), CommError> {
        if self.size() == 1 { Ok(()) } else { self.comm.broadcast(0, values) }
    }

    /// Returns the collectives of device arrays among all ranks.
    pub(super) fn collectives(&mut self) -> Collectives {
        let make = |rank: &mut Rank| Ok::<_, Infallible>(Collectives::new(rank.exchange.clone()));
        let Ok(collectives) = self.plan(RankCollectives, make);
        Collectives::clone(&collectives)
    }

    /// `y = a x + b y` for all leaves of two fields of one space. With `b == 0`, `y` may be undefined before. Records only.
    ///
    /// # Errors
    /// [`OperatorError::Fit`] for fields of different spaces.
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

    /// `z = x y`, number by number, for fields of one leaf on the device.
    pub(crate) fn vector_product(&mut self, x: &Vector, y: &Vector, z: &Vector) -> Result<(), OperatorError> {
        let (arrays, z) = ([x.single()?, y.single()?], z.single()?);
        let updates = self.updates();
        Ok(updates.record_product(&mut self.recorder, 1.0, arrays, 0.0, z)?)
    }

    /// `y = a x z + b y`, number by number, for all leaves of three fields of one space; `x` and `z` may be one. With `b == 0`, `y` may be undefined
    /// before. Records only.
    ///
    /// # Errors
    /// [`OperatorError::Fit`] for fields of different spaces.
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

    /// `<x, y>`: the sum over all leaves, ranks and numbers of the products; a complex number is two. Products are rounded to f32, each
    /// is rounded to 2^-62 of the greatest times the number of all, and their sum is exact (small vectors that every rank has are summed in f64): the same
    /// for every number of ranks. All ranks call it. Waits for the
    /// device.
    ///
    /// # Errors
    /// [`OperatorError::Fit`] for fields of different spaces; [`OperatorError::NotFinite`] when a product is NaN or infinite.
    pub fn vector_dot(&mut self, x: &Vector, y: &Vector) -> Result<f64, OperatorError> {
        Ok(self.vector_sums(&[(x, Some(y))])?[0])
    }

    /// Several sums over all leaves, ranks and numbers: of products like [`dot`](Self::vector_dot), or, of a field alone, of magnitudes. All ranks call it, and get
    /// the same bits: of vectors that every rank has the sum is that of rank 0. The
    /// device is waited for once on one rank and twice on several, whatever the number of sums and leaves. Small vectors that every rank has come to the
    /// host with the sums and are summed there, in f64; they cost several ranks one broadcast more.
    ///
    /// # Errors
    /// As [`dot`](Self::vector_dot).
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

/// Numbers of a leaf at most that are summed on the host: 16 KiB, which come along sooner than two dispatches are made.
const SMALL: u64 = 4096;

/// Where a leaf's part of a sum comes from.
enum Term {
    /// Summed on the device.
    Large(usize),
    /// From numbers that come to the host.
    Small(usize, Option<usize>),
    /// Parameters.
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

    /// The place of an array among those that come along; each comes once.
    fn along(&mut self, x: &'a Array<f32>) -> usize {
        self.small.iter().position(|other| std::ptr::eq(*other, x)).unwrap_or_else(|| {
            self.small.push(x);
            self.small.len() - 1
        })
    }
}
