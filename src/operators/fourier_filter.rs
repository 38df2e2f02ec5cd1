//! Multiplication in Fourier space, from cells to cells.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::fourier::{cells_of, route_cost};
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::fft::{Filter, FilterOptions, Operator, OperatorTables, Spec, Spectral, Value, Values};
use crate::grid::{Cost, FieldLayout, Grid};
use crate::rank::{Parts, Rank};

/// `inverse(multiplier * forward(x))`: smoothing, derivatives, inverse Laplacians and convolutions
/// whose multiplier is a product of one factor for each axis. It takes five passes instead of
/// seven. Its adjoint has the conjugate multiplier.
///
/// A multiplier of real fields must be Hermitian: the table of an axis is even with a real
/// constant, or odd with an imaginary one.
pub struct FourierFilter {
    filters: AnyFilter,
    layout: FieldLayout,
    signature: Signature,
    cost: Cost,
    /// The fingerprint of the multiplier over all modes.
    multiplier: u64,
}

/// The filter and its adjoint, of real or complex fields.
enum AnyFilter {
    Real([Filter<f32>; 2]),
    Complex([Filter<[f32; 2]>; 2]),
}

impl FourierFilter {
    /// Creates the filter of the only leaf of `space`, cells without ghost cells. Wavenumbers have
    /// the unit of the size of the grid. Submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    /// - [`OperatorError::Fft`] for shapes that this device cannot transform.
    pub fn new(rank: &mut Rank, space: &Space, multiplier: &Operator<'_>) -> Result<Self> {
        Self::padded(rank, space, multiplier, None)
    }

    /// Creates a filter without periodic images: fields are padded with zeros to `points` along
    /// each axis. Wavenumbers belong to the padded box.
    ///
    /// # Errors
    /// - Same as [`new`](Self::new).
    pub fn padded(rank: &mut Rank, space: &Space, multiplier: &Operator<'_>, points: Option<[u64; 3]>) -> Result<Self> {
        const NAME: &str = "Fourier filter";
        let (_, leaf, mesh) = cells_of(rank, space, NAME)?;
        let spec = Spec { values: leaf.values, ..Spec::of::<f32>(mesh.shape()) }.fields(leaf.fields());
        let spec = points.map_or(spec.clone(), |points| spec.points(points));
        let distances = mesh.cell_size();
        let size = [0, 1, 2].map(|a| distances[a] * spec.points[a] as f64);
        let layout = mesh.layout().clone();
        let whole = multiplier.tables(spec.points, size, &spec.points.map(|n| 0..n));
        let mut mark = Fingerprint::new();
        spec.points.iter().for_each(|n| mark.number(*n));
        whole.constant.iter().chain(&whole.values).for_each(|value| mark.number(u64::from(value.to_bits())));
        let (filters, cost) = match leaf.values {
            Values::Real => {
                let (filters, cost) = pair::<f32>(rank, mesh.grid(), &spec, size, multiplier)?;
                (AnyFilter::Real(filters), cost)
            }
            Values::Complex => {
                let (filters, cost) = pair::<[f32; 2]>(rank, mesh.grid(), &spec, size, multiplier)?;
                (AnyFilter::Complex(filters), cost)
            }
        };
        Ok(FourierFilter {
            filters,
            layout,
            signature: Signature::new(NAME, space, space),
            cost,
            multiplier: mark.value(),
        })
    }
}

/// Creates the filter and its adjoint.
fn pair<T: Value>(
    rank: &mut Rank,
    grid: Grid,
    spec: &Spec,
    size: [f64; 3],
    multiplier: &Operator<'_>,
) -> Result<([Filter<T>; 2], Cost)> {
    let gpu = rank.gpu.clone();
    let options = FilterOptions::default();
    let Parts { recorder, comms, .. } = rank.parts(grid)?;
    let part = Filter::<T>::part_of(&gpu, spec, comms, &options)?;
    let tables = multiplier.tables(spec.points, size, &part);
    let [x, y] = tables.constant;
    let conjugate = OperatorTables { constant: [x, -y], ..tables.clone() };
    let mut filter = |tables: OperatorTables| {
        let spectral = Spectral::new(recorder, &[tables], &part)?;
        Ok::<_, OperatorError>(Filter::<T>::new(&gpu, spec, comms, &spectral.trusted_callback(), &options)?)
    };
    let filters = [filter(tables)?, filter(conjugate)?];
    let cost = filters[0].routes().into_iter().fold(Cost::default(), |cost, route| cost + route_cost(route));
    Ok((filters, cost))
}

impl Linear for FourierFilter {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let (v, out, layout) = (v.single()?, out.single()?, &self.layout);
        match &self.filters {
            AnyFilter::Real(filters) => filters[direction as usize].apply(recorder, comms, v, layout, out, layout)?,
            AnyFilter::Complex(filters) => {
                filters[direction as usize].apply(recorder, comms, &v.cast()?, layout, &out.cast()?, layout)?;
            }
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.number(self.multiplier);
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        [self.cost; 2]
    }
}
