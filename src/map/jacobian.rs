//! Jacobians of operators by columns and rows.
//!
//! A model is linearized once; each column is one product with a tangent, each row one with a
//! cotangent. Several make a chunk: they are recorded together and handed on together, while the
//! device has the chunk before still to do.

use std::ops::Range;

use super::chunk::{ChunkSize, JointGauge, MapReport, Sizes};
use super::error::MapError;
use crate::gpu::Array;
use crate::operators::{Contents, Linearization, OperatorError, Space, Vector};
use crate::rank::Rank;

/// Returns the number of values of a space on all ranks: leaf by leaf, and for distributed leaves
/// rank by rank. Collective.
///
/// # Errors
/// [`OperatorError::Comm`].
pub fn numbers_of(rank: &Rank, space: &Space) -> Result<u64, OperatorError> {
    Ok(Numbers::new(rank, space)?.total)
}

/// Computes column `j` of a Jacobian for each `j` of `columns`: the derivative with respect to
/// number `j` of the domain, in the order of [`numbers_of`]. `each` gets the columns of a chunk as
/// vectors of the target, with the number of the first one. To split a Jacobian over groups of
/// ranks, give each group a block of a [`Deal`](super::Deal). Collective, with the same columns and
/// chunk.
///
/// Records one product for each column, submits each chunk, and waits for the chunk before the
/// last.
///
/// ```no_run
/// # fn body(rank: &mut meshloom::Rank, model: &meshloom::operators::Model, x: &meshloom::operators::Vector)
/// # -> Result<(), meshloom::Error> {
/// let at = model.at(rank, x)?;
/// let columns = meshloom::map::numbers_of(rank, model.domain())?;
/// let mut norms = Vec::new();
/// let chunk = meshloom::map::ChunkSize::Items(16);
/// meshloom::map::jacobian_columns(rank, &at, 0..columns, chunk, |rank, _, fields| {
///     for field in fields {
///         norms.push(rank.vector_dot(field, field)?);
///     }
///     Ok::<_, meshloom::Error>(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`MapError::Invalid`] on all ranks for columns out of range, empty chunks, and arguments that
/// differ between ranks; [`MapError::Budget`] on all ranks; errors of the operator and of `each`.
pub fn jacobian_columns<E: From<MapError> + From<OperatorError>>(
    rank: &mut Rank,
    at: &Linearization,
    columns: Range<u64>,
    chunk: ChunkSize,
    each: impl FnMut(&mut Rank, u64, &[Vector]) -> Result<(), E>,
) -> Result<MapReport, E> {
    let spaces = [at.model().domain().clone(), at.model().target().clone()];
    products(rank, spaces, columns, chunk, |rank, unit, result| at.jvp(rank, unit, result), each)
}

/// Row `i` of a Jacobian for each `i` of `rows`, the derivatives of number `i` of the target, as
/// [`jacobian_columns`] gives columns: `each` gets fields of the domain.
///
/// # Errors
/// Same as [`jacobian_columns`].
pub fn jacobian_rows<E: From<MapError> + From<OperatorError>>(
    rank: &mut Rank,
    at: &Linearization,
    rows: Range<u64>,
    chunk: ChunkSize,
    each: impl FnMut(&mut Rank, u64, &[Vector]) -> Result<(), E>,
) -> Result<MapReport, E> {
    let spaces = [at.model().target().clone(), at.model().domain().clone()];
    products(rank, spaces, rows, chunk, |rank, unit, result| at.vjp(rank, unit, result), each)
}

/// Computes the products of unit vectors of the first space, which are vectors of the second.
fn products<E: From<MapError> + From<OperatorError>>(
    rank: &mut Rank,
    [from, to]: [Space; 2],
    range: Range<u64>,
    chunk: ChunkSize,
    product: impl Fn(&mut Rank, &Vector, &mut Vector) -> Result<(), OperatorError>,
    mut each: impl FnMut(&mut Rank, u64, &[Vector]) -> Result<(), E>,
) -> Result<MapReport, E> {
    let numbers = Numbers::new(rank, &from)?;
    rank.comm.agree("products of a jacobian", &[("numbers", &range), ("chunk", &chunk)]).map_err(MapError::from)?;
    if range.end > numbers.total || chunk == ChunkSize::Items(0) {
        let why = format!("the numbers {range:?} in chunks of {chunk:?}; there are {}", numbers.total);
        return Err(MapError::Invalid(why).into());
    }
    let unit = |rank: &mut Rank| Ok::<_, E>(Unit::new(rank, &from, numbers)?);
    let (mut sizes, mut unit) = Sizes::new(rank, chunk, unit)?;
    let (mut in_flight, mut chunks) = (None, 0);
    let mut first = range.start;
    while first < range.end {
        let count = sizes.chunk.min(range.end - first);
        let gauge = sizes.measuring.then(|| JointGauge::begin(rank)).transpose()?;
        let mut fields = Vec::new();
        for number in first..first + count {
            unit.set(rank, number, true)?;
            let mut result = Vector::new(&rank.gpu, &to).map_err(OperatorError::from)?;
            product(rank, &unit.field, &mut result)?;
            unit.set(rank, number, false)?;
            fields.push(result);
        }
        each(rank, first, &fields)?;
        let recorder = &mut rank.recorder;
        recorder.submit().map_err(MapError::from)?;
        if let Some(before) = in_flight.replace(recorder.last_submission()) {
            recorder.wait_for(before).map_err(MapError::from)?;
        }
        first += count;
        chunks += 1;
        if let Some(gauge) = gauge {
            sizes.note(gauge.look(rank)?, range.end - first)?;
        }
    }
    Ok(MapReport { items: range, chunk: sizes.chunk, chunks, estimate: sizes.estimate })
}

/// Places of the numbers of a space.
struct Numbers {
    /// For each leaf, the numbers of this rank.
    leaves: Vec<Range<u64>>,
    total: u64,
}

impl Numbers {
    fn new(rank: &Rank, space: &Space) -> Result<Self, OperatorError> {
        let index = rank.index();
        let lens: Vec<u64> = space.leaves().map(|(_, leaf)| leaf.len()).collect();
        let all = rank.comm.all_gather(&lens)?;
        let (mut total, mut leaves) = (0, Vec::new());
        for (number, (_, leaf)) in space.leaves().enumerate() {
            let of = |rank: usize| all[rank * lens.len() + number];
            let (before, len) = match leaf.is_distributed() {
                true => ((0..index).map(of).sum(), (0..rank.comm.size()).map(of).sum()),
                false => (0, leaf.len()),
            };
            leaves.push(total + before..total + before + leaf.len());
            total += len;
        }
        Ok(Numbers { leaves, total })
    }
}

/// A vector of zeros except one number, which is 1.
struct Unit {
    field: Vector,
    numbers: Numbers,
    zero_and_one: Array<f32>,
}

impl Unit {
    fn new(rank: &mut Rank, space: &Space, numbers: Numbers) -> Result<Self, OperatorError> {
        let recorder = &mut rank.recorder;
        let zero_and_one = recorder.uploaded("map::unit", &[0.0, 1.0])?;
        Ok(Unit { field: Vector::zeros(recorder, space)?, numbers, zero_and_one })
    }

    /// Makes a number 1 or 0 again, where this rank has it. Records only.
    fn set(&mut self, rank: &mut Rank, number: u64, one: bool) -> Result<(), OperatorError> {
        let recorder = &mut rank.recorder;
        let Some(leaf) = self.numbers.leaves.iter().position(|own| own.contains(&number)) else { return Ok(()) };
        let at = number - self.numbers.leaves[leaf].start;
        let Some(name) = self.field.space().names().nth(leaf).map(String::from) else { return Ok(()) };
        match &self.field.contents()[leaf] {
            Contents::Device(array) => recorder.copy(&self.zero_and_one, u64::from(one), array, at, 1)?,
            Contents::Host(values) => {
                let mut values = values.clone();
                values[at as usize] = f64::from(u8::from(one));
                self.field.set(recorder, &name, &values)?;
            }
        }
        Ok(())
    }
}
