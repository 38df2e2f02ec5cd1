//! Matrices, dense and sparse, between leaves that each rank has as a whole.
//! Diagonal ones multiply by fixed values at each place: masks, weights, transfer functions.

use super::{Direction, Fingerprint, Leaf, Linear, OperatorError, Result, Signature, Space, Vector, refuse};
use crate::fft::Values;
use crate::gpu::{Array, Element, Kernel, KernelSource, RawArray, Recorder};
use crate::grid::Cost;
use crate::hash::{START, fnv1a};
use crate::host_memory;
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct MatrixParams {
        count: u32,
        columns: u32,
    }
}

/// Entries that one invocation adds. Longer rows are added in several segments, then the sums of
/// the segments: loops stay short, and rounding grows with the logarithm of the row.
const SEGMENT: u64 = 256;
const LABEL: &str = "operators::matrix";

fn source(sums: bool, sparse: bool) -> KernelSource {
    KernelSource::new(LABEL, include_str!("../../shaders/operators/matrix.wgsl"))
        .params::<MatrixParams>()
        .flag("sums", sums)
        .flag("sparse", sparse)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    use Values::{Complex, Real};
    let matrices = [(false, false), (false, true), (true, false)].map(|(sums, sparse)| source(sums, sparse));
    let diagonals = [(Real, Real, false), (Complex, Real, false), (Complex, Complex, false), (Complex, Complex, true)]
        .map(|(value, factor, conjugate)| diagonal_source(value, factor, conjugate));
    matrices.into_iter().chain(diagonals).collect()
}

/// The operator `y = A x` with a matrix, dense or in compressed rows (CSR). It is stored twice,
/// also transposed for the adjoint.
///
/// Sums are added in a fixed order: the same bits on any number of ranks. Cost: 8 bytes per entry
/// and direction, 12 if it is sparse.
///
/// ```
/// use meshloom::operators::{Leaf, Matrix, Model, Space, Vector};
///
/// meshloom::run(|rank| {
///     let (domain, target) = (Space::of("x", Leaf::vector(3))?, Space::of("y", Leaf::vector(2))?);
///     // [[1, 0, 2], [0, 3, 0]]
///     let matrix = Matrix::sparse(rank, &domain, &target, &[0, 2, 3], &[0, 2, 1], &[1.0, 2.0, 3.0])?;
///     let mut x = Vector::new(&rank.gpu, &domain)?;
///     x.set(&mut rank.recorder, "x", &[1.0, 10.0, 100.0])?;
///     let y = Model::new(matrix).value(rank, &x)?;
///     assert_eq!(y.get(&mut rank.recorder, "y")?, [201.0, 30.0]);
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct Matrix {
    signature: Signature,
    hash: u64,
    forward: Rows,
    adjoint: Rows,
}

/// A matrix on the device, row by row.
struct Rows {
    values: Array<f32>,
    /// The column of each entry; `None` for a dense matrix.
    columns: Option<Array<u32>>,
    row_len: u64,
    /// Offsets of the segments of rows, then those of the sums of segments, down to one per row.
    offsets: Vec<Array<u32>>,
    kernels: [Kernel; 2],
}

impl Rows {
    /// Copies a matrix to the device. `ends` has the end of each row among the entries.
    fn new(rank: &mut Rank, values: &[f32], columns: Option<&[u32]>, ends: &[u64], row_len: u64) -> Result<Self> {
        let recorder = &mut rank.recorder;
        let columns = columns.map(|columns| recorder.uploaded(LABEL, columns)).transpose()?;
        let mut offsets = Vec::new();
        let mut ends = host_memory::copy("rows of a matrix", ends)?;
        loop {
            let (mut level, mut next, mut begin) = (vec![0], Vec::new(), 0);
            let mut segments = 0;
            for &end in &ends {
                let count = (end - begin).div_ceil(SEGMENT).max(1);
                level.extend((1..=count).map(|segment| (begin + segment * SEGMENT).min(end) as u32));
                (begin, segments) = (end, segments + count);
                next.push(segments);
            }
            offsets.push(recorder.uploaded(LABEL, &level)?);
            if segments == ends.len() as u64 {
                break;
            }
            ends = next;
        }
        let kernels = [source(false, columns.is_some()), source(true, false)].map(Kernel::trusted);
        Ok(Rows { values: recorder.uploaded(LABEL, values)?, columns, row_len, offsets, kernels })
    }

    fn record(&self, recorder: &mut Recorder, x: &Array<f32>, out: &Array<f32>) -> Result<()> {
        let mut partial: Option<Array<f32>> = None;
        for (level, offsets) in (1..).zip(&self.offsets) {
            let count = offsets.len() - 1;
            let is_last = level == self.offsets.len();
            let sums = if is_last { out.clone() } else { recorder.gpu().array(LABEL, count)? };
            let (kernel, arrays): (_, Vec<&RawArray>) = match &partial {
                Some(partial) => (&self.kernels[1], vec![offsets.raw(), partial.raw(), sums.raw()]),
                None => {
                    let columns = self.columns.iter().map(Array::raw);
                    let matrix = [offsets.raw(), self.values.raw()].into_iter().chain(columns);
                    (&self.kernels[0], matrix.chain([x.raw(), sums.raw()]).collect())
                }
            };
            let params = MatrixParams { count: count as u32, columns: self.row_len as u32 };
            recorder.each(kernel, &arrays, &params, count)?;
            partial = Some(sums);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        let segments: u64 = self.offsets.iter().map(Array::len).sum();
        let entry = if self.columns.is_some() { 12 } else { 8 };
        Cost::kernels(self.offsets.len() as u64, entry * self.values.len() + 12 * segments)
    }
}

/// Returns the rows and columns of a matrix between two spaces. Errors name `operator`.
fn shape(rank: &Rank, operator: &str, domain: &Space, target: &Space) -> Result<[u64; 2]> {
    let len = |which: &str, space: &Space| {
        let fits = |leaf: &&Leaf| {
            leaf.values == Values::Real && !leaf.is_on_host() && (rank.size() == 1 || !leaf.is_distributed())
        };
        match space.only().map(|(_, leaf)| leaf).filter(fits) {
            Some(leaf) => Ok(leaf.len()),
            None => {
                let why = format!("the {which} is {space}: expected one real vector, or any real leaf on one rank");
                refuse(operator, why)
            }
        }
    };
    Ok([len("target", target)?, len("domain", domain)?])
}

/// Checks values and their number, and returns the hash of a matrix.
fn check(rank: &Rank, operator: &str, values: &[f32], places: &[&[u8]]) -> Result<u64> {
    let hash = places.iter().fold(fnv1a(START, bytemuck::cast_slice(values)), |hash, part| fnv1a(hash, part));
    rank.comm.agree(operator, &[("matrix", &hash)])?;
    if u32::try_from(values.len()).is_err() {
        let why = format!("{} entries: expected less than 2^32; split the matrix into several", values.len());
        return refuse(operator, why);
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => refuse(operator, format!("entry {at}: expected a finite number, got {}", values[at])),
        None => Ok(hash),
    }
}

impl Matrix {
    /// Creates the operator from `values` of shape `[rows, columns]`, where rows are the numbers of
    /// the only leaf of `target` and columns those of `domain`: real vectors, or any real leaves on
    /// the device of one rank. Collective.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces, another number of values, or values that are
    ///   not finite.
    /// - [`OperatorError::Comm`] if matrices of ranks differ.
    pub fn new(rank: &mut Rank, domain: &Space, target: &Space, values: &[f32]) -> Result<Self> {
        const NAME: &str = "matrix";
        let hash = check(rank, NAME, values, &[])?;
        let [rows, columns] = shape(rank, NAME, domain, target)?;
        if rows.checked_mul(columns) != Some(values.len() as u64) {
            return refuse(NAME, format!("expected {rows} x {columns} values, got {}", values.len()));
        }
        let mut turned = host_memory::zeros("a transposed matrix", values.len())?;
        for (row, values) in values.chunks(columns.max(1) as usize).enumerate() {
            for (column, value) in values.iter().enumerate() {
                turned[column * rows as usize + row] = *value;
            }
        }
        let ends = |rows: u64, len: u64| (1..=rows).map(|row| row * len).collect::<Vec<_>>();
        let forward = Rows::new(rank, values, None, &ends(rows, columns), columns)?;
        let adjoint = Rows::new(rank, &turned, None, &ends(columns, rows), rows)?;
        Ok(Matrix { signature: Signature::new(NAME, domain, target), hash, forward, adjoint })
    }

    /// Creates the operator from compressed rows: row `r` has the entries
    /// `offsets[r]..offsets[r + 1]` of `columns` and `values`. Entries at the same place are added.
    /// Spaces as for [`new`](Self::new). Collective.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces; offsets that are not one more than rows, do
    ///   not begin at 0, decrease, or do not end at the number of entries; columns out of range; or
    ///   values that are not finite.
    /// - [`OperatorError::Comm`] if matrices of ranks differ.
    pub fn sparse(
        rank: &mut Rank,
        domain: &Space,
        target: &Space,
        offsets: &[u64],
        columns: &[u32],
        values: &[f32],
    ) -> Result<Self> {
        const NAME: &str = "sparse matrix";
        let hash = check(rank, NAME, values, &[bytemuck::cast_slice(offsets), bytemuck::cast_slice(columns)])?;
        let [rows, width] = shape(rank, NAME, domain, target)?;
        let wrong = |why: String| refuse(NAME, why);
        if offsets.len() as u64 != rows + 1 {
            return wrong(format!("expected {} offsets for {rows} rows, got {}", rows + 1, offsets.len()));
        }
        if let Some(at) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
            return wrong(format!("row {at}: its offset {} is above the next one, {}", offsets[at], offsets[at + 1]));
        }
        let (first, last) = (offsets[0], offsets[rows as usize]);
        if first != 0 || last != values.len() as u64 || columns.len() != values.len() {
            return wrong(format!(
                "expected offsets from 0 to the number of values and as many columns, got {first} to {last}, {} values and {} columns",
                values.len(),
                columns.len()
            ));
        }
        if let Some(at) = columns.iter().position(|&column| u64::from(column) >= width) {
            return wrong(format!("entry {at}: expected a column below {width}, got {}", columns[at]));
        }
        // The transposed matrix, by a counting sort of the columns.
        let mut starts: Vec<u64> = host_memory::zeros("columns of a matrix", width as usize + 1)?;
        columns.iter().for_each(|&column| starts[column as usize + 1] += 1);
        (0..width as usize).for_each(|column| starts[column + 1] += starts[column]);
        let ends = host_memory::copy("columns of a matrix", &starts[1..])?;
        let mut turned = host_memory::zeros("a transposed matrix", values.len())?;
        let mut turned_rows: Vec<u32> = host_memory::zeros("a transposed matrix", values.len())?;
        for (row, pair) in offsets.windows(2).enumerate() {
            for entry in pair[0] as usize..pair[1] as usize {
                let place = &mut starts[columns[entry] as usize];
                (turned[*place as usize], turned_rows[*place as usize]) = (values[entry], row as u32);
                *place += 1;
            }
        }
        let forward = Rows::new(rank, values, Some(columns), &offsets[1..], 1)?;
        let adjoint = Rows::new(rank, &turned, Some(&turned_rows), &ends, 1)?;
        Ok(Matrix { signature: Signature::new(NAME, domain, target), hash, forward, adjoint })
    }
}

impl Linear for Matrix {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let rows = if direction == Direction::Forward { &self.forward } else { &self.adjoint };
        rows.record(&mut rank.recorder, v.single()?, out.single()?)
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.number(self.hash);
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        [self.forward.cost(), self.adjoint.cost()]
    }
}

crate::gpu::kernel_params! {
    struct DiagonalParams {
        count: u32,
        places: u32,
    }
}

/// Returns the kernel of a diagonal for real or complex values and factors.
fn diagonal_source(value: Values, factor: Values, conjugate: bool) -> KernelSource {
    let element = |values: Values| if values == Values::Complex { Element::Complex32 } else { Element::F32 };
    KernelSource::new("operators::diagonal", include_str!("../../shaders/operators/diagonal.wgsl"))
        .params::<DiagonalParams>()
        .element("Value", element(value))
        .element("Factor", element(factor))
        .flag("complex_factor", factor == Values::Complex)
        .flag("conjugate", conjugate)
}

/// `y = w x` with a fixed field `w`, which may be complex if `x` is. `w` has one value for each
/// place, for all components and all fields of a batch. Cost: one pass of 12 bytes per real number.
pub struct Diagonal {
    signature: Signature,
    factors: Array<f32>,
    complex: bool,
    kernels: [Kernel; 2],
}

impl Diagonal {
    /// Creates the multiplication of the only leaf of `space` by `factors`, a field of one leaf at
    /// the same places. The operator keeps a handle: later changes of the factors change the
    /// operator.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] for factors at other places, or complex factors of a real field.
    pub fn new(space: &Space, factors: &Vector) -> Result<Self> {
        const NAME: &str = "diagonal";
        let (Some((name, leaf)), Some((_, own))) = (space.only(), factors.space().only()) else {
            return refuse(NAME, format!("{space} by {}; both have one leaf", factors.space()));
        };
        let complex = own.values == Values::Complex;
        let fits = own.support == leaf.support
            && own.fields() == 1
            && (!complex || leaf.values == Values::Complex)
            && !leaf.is_on_host();
        if !fits {
            let why = format!(
                "it is {leaf}, the factors are {own}: one for each place is needed, complex ones for complex values only"
            );
            return Err(OperatorError::Fit { operator: NAME.into(), leaf: name.into(), why });
        }
        let kernels = [false, true]
            .map(|conjugate| Kernel::trusted(diagonal_source(leaf.values, own.values, conjugate && complex)));
        Ok(Diagonal {
            signature: Signature::new(NAME, space, space),
            factors: factors.single()?.clone(),
            complex,
            kernels,
        })
    }
}

impl Linear for Diagonal {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let Some((_, leaf)) = self.signature.domain.only() else { return Ok(()) };
        let seen = |array: &Array<f32>, complex: bool| -> RawArray {
            if complex { array.raw().seen_as(Element::Complex32) } else { array.raw().clone() }
        };
        let values = leaf.values == Values::Complex;
        let arrays = [seen(v.single()?, values), seen(&self.factors, self.complex), seen(out.single()?, values)];
        let count = leaf.places() * leaf.fields();
        let params = DiagonalParams { count: count as u32, places: leaf.places() as u32 };
        Ok(rank.recorder.each(&self.kernels[direction as usize], &arrays.each_ref(), &params, count)?)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        let Some((_, leaf)) = self.signature.domain.only() else { return Ok(()) };
        out.number(u64::from(self.complex));
        out.array(rank, leaf, &self.factors)
    }

    fn costs(&self) -> [Cost; 2] {
        [Cost::kernels(1, 8 * self.signature.domain.own_numbers() + 4 * self.factors.len()); 2]
    }
}
