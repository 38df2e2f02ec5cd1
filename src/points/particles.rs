//! Particles: points of all ranks with attributes, and the verbs of a rank on them.

use std::collections::BTreeMap;

use super::sort::{CurveOrder, SortError, distribute_rows};
use super::{AnyArray, Attribute, Cloud, Curve, DeviceValue, Domain, ParticleError};
use crate::comm::{Op, Subject};
use crate::exchange::Terms;
use crate::gpu::Array;
use crate::rank::Rank;

/// The name by which positions are reached beside the attributes.
pub const POSITIONS: &str = "x";

/// Points of all ranks with attributes: each rank holds a part on its device.
///
/// - Positions are reached by the name `x`, attributes by theirs. A value of an attribute is 4
///   bytes (`f32`, `u32` or `i32`); an attribute has any number of values per particle, at least
///   one.
/// - The rows of all ranks, in rank order, are numbered from 0; searches tell neighbors by these
///   numbers.
/// - [`Rank::distribute`] puts particles in the order of a Hilbert curve, so that each rank has
///   neighboring ones and searches sort nothing.
/// - A clone is another handle on the same arrays; verbs that change particles write new arrays.
///
/// ```
/// use meshloom::points::{Domain, Particles};
///
/// meshloom::run(|rank| {
///     let domain = Domain::new(&[10.0, 10.0])?;
///     let x = rank.comm.rank() as f32; // one particle per rank
///     let mut p = Particles::from_host(rank, &domain, &[x, 5.0])?.with(rank, "mass", &[2.0f32], 1)?;
///     rank.each(&mut p, "x += params.step; mass *= 0.5;", &Drift { step: [0.5, 0.0] })?;
///     rank.distribute(&mut p)?;
///     assert_eq!(p.download::<f32>(rank, "mass")?, vec![1.0; p.len() as usize]);
///     Ok(())
/// })?;
/// meshloom::kernel_params! { struct Drift { step: [f32; 2] } }
/// # Ok::<(), meshloom::Error>(())
/// ```
#[derive(Clone)]
pub struct Particles {
    cloud: Cloud,
    /// `None` where rows are in no known order.
    pub(crate) order: Option<CurveOrder>,
}

/// Named values of particles on the device, such as those that a visit has written.
#[derive(Clone, Default)]
pub struct Attributes(BTreeMap<String, Attribute>);

impl Attributes {
    pub(crate) fn insert(&mut self, name: &str, values: AnyArray, width: u64) {
        self.0.insert(name.into(), Attribute { values, width });
    }

    /// Returns the values of `name`.
    ///
    /// # Errors
    /// - [`ParticleError::Missing`] if no attribute has this name.
    /// - [`ParticleError::Type`] if its values are of another type.
    pub fn get<T: DeviceValue>(&self, name: &str) -> Result<Array<T>, ParticleError> {
        match self.0.get(name) {
            Some(attribute) => typed(name, attribute.values()),
            None => Err(missing(name, &self.0.keys().map(String::as_str).collect::<Vec<_>>())),
        }
    }
}

/// Returns the values of an attribute as an array of their type.
fn typed<T: DeviceValue>(name: &str, values: &AnyArray) -> Result<Array<T>, ParticleError> {
    T::of(values).cloned().ok_or_else(|| ParticleError::Type {
        name: name.into(),
        found: values.element().wgsl(),
        asked: T::ELEMENT.wgsl(),
    })
}

/// Returns the error that `name` is none of the `known` names.
fn missing(name: &str, known: &[&str]) -> ParticleError {
    ParticleError::Missing { name: name.into(), known: known.join(", ") }
}

impl Particles {
    /// Creates particles from this rank's coordinates, `dims` per particle, wrapped along periodic
    /// axes.
    ///
    /// Collective; blocks. Copies 4 bytes per coordinate to the device.
    ///
    /// # Errors
    /// - [`ParticleError::NonFinite`] for the first coordinate of all ranks that is NaN or
    ///   infinite, on all ranks.
    /// - [`ParticleError::Coordinates`] if `positions` is not a whole number of points.
    /// - [`ParticleError::TooMany`] if a rank cannot hold them.
    pub fn from_host(rank: &mut Rank, domain: &Domain, positions: &[f32]) -> Result<Self, ParticleError> {
        let rows = positions.len() as u64 / domain.dims() as u64;
        let cloud = Cloud::from_host(&mut rank.recorder, domain, positions);
        Ok(Particles { cloud: Cloud::agreed(&rank.comm, rows, cloud)?, order: None })
    }

    /// Creates particles from this rank's coordinates on the device, which are wrapped in place.
    ///
    /// Collective; blocks. Reads 4 bytes per coordinate.
    ///
    /// # Errors
    /// Same as [`from_host`](Self::from_host).
    pub fn new(rank: &mut Rank, domain: &Domain, positions: Array<f32>) -> Result<Self, ParticleError> {
        let rows = positions.len() / domain.dims() as u64;
        let cloud = Cloud::new(&mut rank.recorder, domain, positions);
        Ok(Particles { cloud: Cloud::agreed(&rank.comm, rows, cloud)?, order: None })
    }

    /// Adds an attribute of `width` values per particle from the host, or replaces it.
    ///
    /// # Errors
    /// Same as [`set`](Self::set).
    pub fn with<T: DeviceValue>(
        mut self,
        rank: &mut Rank,
        name: &str,
        values: &[T],
        width: u64,
    ) -> Result<Self, ParticleError> {
        let array = rank.recorder.uploaded(name, values)?;
        self.set(name, T::any(array), width)?;
        Ok(self)
    }

    /// Adds an attribute of `width` values per particle, or replaces it.
    ///
    /// # Errors
    /// - [`ParticleError::Shape`] if `values` has not `width` values for each particle, or `width`
    ///   is 0.
    /// - [`ParticleError::Reserved`] for the name `x`, which is that of positions.
    pub fn set(&mut self, name: &str, values: impl Into<AnyArray>, width: u64) -> Result<(), ParticleError> {
        match name {
            POSITIONS => Err(ParticleError::Reserved { name: name.into() }),
            _ => self.cloud.set(name, values, width),
        }
    }

    /// Adds all of `attributes`, replacing existing ones of the same names.
    ///
    /// # Errors
    /// Same as [`set`](Self::set).
    pub fn put(&mut self, attributes: Attributes) -> Result<(), ParticleError> {
        attributes.0.into_iter().try_for_each(|(name, one)| self.set(&name, one.values().clone(), one.width()))
    }

    /// Removes an attribute if there is one of this name.
    pub fn remove(&mut self, name: &str) {
        self.cloud.remove(name);
    }

    /// Returns the values of an attribute, or the coordinates for `x`.
    ///
    /// # Errors
    /// - [`ParticleError::Missing`] if no attribute has this name.
    /// - [`ParticleError::Type`] if its values are of another type.
    pub fn get<T: DeviceValue>(&self, name: &str) -> Result<Array<T>, ParticleError> {
        typed(name, &self.known_column(name)?.0)
    }

    /// Returns the values of an attribute, or the coordinates for `x`, and how many there are per
    /// particle, or the error that there is none of this name.
    pub(crate) fn known_column(&self, name: &str) -> Result<(AnyArray, u64), ParticleError> {
        if name == POSITIONS {
            return Ok((self.cloud.positions().clone().into(), self.cloud.domain().dims() as u64));
        }
        let attribute = self.cloud.attribute(name).ok_or_else(|| missing(name, &self.names()))?;
        Ok((attribute.values().clone(), attribute.width()))
    }

    /// Names of the attributes and of positions.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.cloud.attributes().map(|(name, _)| name).chain([POSITIONS]).collect()
    }

    /// Downloads the values of an attribute, or the coordinates for `x`. Blocks.
    ///
    /// # Errors
    /// - Same as [`get`](Self::get).
    /// - [`ParticleError::Device`] if the device fails.
    pub fn download<T: DeviceValue>(&self, rank: &mut Rank, name: &str) -> Result<Vec<T>, ParticleError> {
        let values = self.get::<T>(name)?;
        Ok(rank.recorder.download(&values, 0, values.len())?)
    }

    /// Returns the sum of the values of an `f32` attribute, or of the coordinates for `x`, over the
    /// particles of all ranks; NaN if a value is not finite.
    ///
    /// Collective; blocks. The same bits on any number of ranks and in any order of particles:
    /// values are added as integers, as [`Rank::sum`] does.
    ///
    /// ```
    /// use meshloom::points::{Domain, Particles};
    ///
    /// meshloom::run(|rank| {
    ///     let p = Particles::from_host(rank, &Domain::open(2)?, &[0.0, 1.0])?.with(rank, "v", &[3.0f32, 4.0], 2)?;
    ///     assert_eq!(p.dot(rank, "v", "v")?, 25.0 * rank.size() as f64); // one particle per rank
    ///     assert_eq!(p.sum(rank, "v")?, 7.0 * rank.size() as f64);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - Same as [`get`](Self::get), on all ranks.
    /// - [`ParticleError::Device`] if the device fails.
    pub fn sum(&self, rank: &mut Rank, name: &str) -> Result<f64, ParticleError> {
        let values = rank.comm.clone().together(|| self.get::<f32>(name))?;
        self.exact_sum(rank, &format!("Particles::sum of {name}"), &values, None)
    }

    /// Returns the sum of the products of two `f32` attributes of the same width over the particles
    /// of all ranks. Products are rounded to `f32`; otherwise as [`sum`](Self::sum).
    ///
    /// # Errors
    /// - [`ParticleError::Shape`] if the attributes have different widths, on all ranks.
    /// - Same as [`sum`](Self::sum).
    pub fn dot(&self, rank: &mut Rank, one: &str, other: &str) -> Result<f64, ParticleError> {
        let (x, y) = rank.comm.clone().together(|| {
            let (x, y) = (self.get::<f32>(one)?, self.get::<f32>(other)?);
            match x.len() == y.len() {
                true => Ok((x, y)),
                false => Err(ParticleError::Shape { name: other.into(), have: y.len(), want: x.len() }),
            }
        })?;
        self.exact_sum(rank, &format!("Particles::dot of {one} and {other}"), &x, Some(&y))
    }

    fn exact_sum(
        &self,
        rank: &mut Rank,
        call: &str,
        x: &Array<f32>,
        y: Option<&Array<f32>>,
    ) -> Result<f64, ParticleError> {
        let comm = rank.comm.within(Subject::new(call));
        let [total] = comm.reduced([x.len()], Op::Sum)?;
        let sums = rank.exact_sums();
        let terms = Terms { x, y, index: None, sums: 1, batches: 1, total };
        Ok(sums.totals(&mut rank.recorder, Some(&comm), &terms)?[0])
    }

    /// Returns the particles at new positions, with the same attributes and rows. `positions` are
    /// wrapped in place.
    ///
    /// Collective; blocks. Reads 4 bytes per coordinate.
    ///
    /// # Errors
    /// - [`ParticleError::Shape`] if `positions` has not as many coordinates as before.
    /// - Otherwise same as [`from_host`](Self::from_host).
    pub fn moved(&self, rank: &mut Rank, positions: Array<f32>) -> Result<Self, ParticleError> {
        let (have, want) = (positions.len(), self.cloud.positions().len());
        if have != want {
            return Err(ParticleError::Shape { name: POSITIONS.into(), have, want });
        }
        let cloud = Cloud::new(&mut rank.recorder, self.cloud.domain(), positions);
        let mut cloud = Cloud::agreed(&rank.comm, self.len(), cloud)?;
        for (name, attribute) in self.cloud.attributes() {
            cloud.set(name, attribute.values().clone(), attribute.width())?;
        }
        Ok(Particles { cloud, order: None })
    }

    /// Returns the number of particles on this rank.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.cloud.len()
    }

    /// Returns `true` if this rank has no particles.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cloud.is_empty()
    }

    /// Box in which the particles lie.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        self.cloud.domain()
    }

    /// Returns this rank's positions and attributes.
    #[must_use]
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }
}

impl From<Cloud> for Particles {
    fn from(cloud: Cloud) -> Self {
        Particles { cloud, order: None }
    }
}

impl Rank {
    /// Moves particles with all attributes so that they follow a Hilbert curve over all ranks, each
    /// of which gets an equal part.
    ///
    /// Collective; blocks. Particles with equal keys keep their order, so that the rows of all
    /// ranks are the same on any number of ranks. One sort of this rank's keys and one merge of
    /// what arrives; each attribute is moved in one exchange.
    ///
    /// # Errors
    /// - [`CommError::Differ`](crate::comm::CommError::Differ) if attributes or domains differ
    ///   between ranks, on all ranks.
    /// - [`SortError::Device`] if device memory is short.
    pub fn distribute(&mut self, particles: &mut Particles) -> Result<(), SortError> {
        let sorted = distribute_rows(self, &particles.cloud, Curve::Hilbert)?;
        *particles = Particles { order: Some(sorted.curve_order), cloud: sorted.cloud };
        Ok(())
    }
}
