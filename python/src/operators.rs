//! Models of operators, which live on the thread of their session: they are handles there and numbers here.

use std::sync::Arc;

use meshloom::fft::Norm;
use meshloom::gpu::Array;
use meshloom::grid::Grid;
use meshloom::operators::{
    Adjoint, Contents, Diagonal, Field, Fourier, Hartley, Leaf, Linearisation, Model, OperatorError, PointwiseOperator,
    RegularGrid, Space, Support, Worker,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::comm::Comm;
use crate::device_array::{DeviceArray, Elements};
use crate::failure::Failure;
use crate::session::{Session, Work};

/// The leaves of a space: name, kind ("cells", "modes", "half_spectrum" or "vector"), cells along three axes, sides of the box, whether
/// values are complex, components.
type LeafTuple = (String, String, [u64; 3], [f64; 3], bool, u32);

/// Something that is kept on the thread of a session until nobody here knows its number.
struct Kept {
    session: Arc<Session>,
    number: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.session.release(self.number);
    }
}

/// Works with what was kept under a number.
fn kept<T: 'static>(work: &Work, number: u64) -> Result<&T, Failure> {
    let gone = || Failure::Panic("a model is gone".into());
    work.kept.get(&number).and_then(|kept| kept.downcast_ref::<T>()).ok_or_else(gone)
}

/// The process grid of models: cuts along the first axis.
fn grid(ranks: usize) -> Result<Grid, Failure> {
    Ok(Grid::new([ranks, 1], ranks)?)
}

/// The space of these leaves on one rank.
fn space(leaves: Vec<LeafTuple>, rank: usize, ranks: usize) -> Result<Space, Failure> {
    let mut named = Vec::new();
    for (name, kind, shape, size, complex, components) in leaves {
        let regular = RegularGrid { shape, size, grid: grid(ranks)?, rank };
        let leaf = match kind.as_str() {
            "cells" => Leaf::cells(&regular),
            "modes" => Leaf::modes(&regular),
            "half_spectrum" => Leaf::half_spectrum(&regular),
            "vector" => Leaf::vector(shape[2]),
            _ => return Err(Failure::Value(format!("there is no leaf `{kind}`"))),
        };
        let leaf = if complex { leaf.complex() } else { leaf };
        named.push((name, leaf.components(components)));
    }
    Ok(Space::new(named)?)
}

/// The shape of this rank's values of a leaf, and whether they are complex numbers.
fn shape(leaf: &Leaf) -> (Vec<u64>, bool) {
    let of = |part: &meshloom::grid::Box3| part.iter().map(|range| range.end - range.start).collect::<Vec<u64>>();
    let places = match &leaf.support {
        Support::Cells { regular, .. } => of(&regular.part()),
        Support::Modes { regular, half } => of(&regular.modes(*half)),
        _ => vec![leaf.places()],
    };
    let components = (leaf.components > 1).then_some(u64::from(leaf.components));
    (components.into_iter().chain(places).collect(), leaf.numbers() == 2)
}

/// What Python knows of a leaf: name, shape, whether complex.
type LeafShape = (String, Vec<u64>, bool);

fn described(space: &Space) -> Vec<LeafShape> {
    let leaf = |(name, leaf): (&str, &Leaf)| {
        let (shape, complex) = shape(leaf);
        (name.to_string(), shape, complex)
    };
    space.leaves().map(leaf).collect()
}

/// Arrays of the leaves of a space, in the order of the names.
type Values = Vec<Array<f32>>;

fn field(space: &Space, values: Values) -> Result<Field, OperatorError> {
    Field::over(space, values.into_iter().map(Contents::Device).collect())
}

fn values(field: &Field) -> Values {
    let array = |contents: &Contents| match contents {
        Contents::Device(array) => Some(array.clone()),
        Contents::Host(_) => None,
    };
    field.contents().iter().filter_map(array).collect()
}

/// The arrays that a caller gives, as real numbers.
fn given(session: &Arc<Session>, arrays: Vec<Bound<'_, DeviceArray>>) -> PyResult<Values> {
    let real = |array: &Bound<'_, DeviceArray>| {
        let array = array.get();
        array.belongs_to(session)?;
        match &array.elements {
            Elements::F32(array) => Ok(array.clone()),
            Elements::C64(array) => Ok(array.cast().map_err(Failure::from)?),
            _ => Err(PyValueError::new_err("models compute in single precision: give float32 and complex64")),
        }
    };
    arrays.iter().map(real).collect()
}

/// Arrays of a model as those of Python.
fn taken(session: &Arc<Session>, leaves: &[LeafShape], values: Values) -> PyResult<Vec<DeviceArray>> {
    let array = |((_, shape, complex), array): (&LeafShape, Array<f32>)| {
        let elements =
            if *complex { Elements::C64(array.cast().map_err(Failure::from)?) } else { Elements::F32(array) };
        DeviceArray::new(session, elements, shape.clone())
    };
    leaves.iter().zip(values).map(array).collect()
}

/// A model: a differentiable function of fields.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeModel {
    kept: Kept,
    /// What errors call it.
    #[pyo3(get)]
    name: String,
    /// The leaves that it takes.
    #[pyo3(get)]
    domain: Vec<LeafShape>,
    /// The leaves that it gives.
    #[pyo3(get)]
    target: Vec<LeafShape>,
}

impl NativeModel {
    /// Makes a model on the session's thread and keeps it there.
    fn make(
        py: Python<'_>,
        session: &Arc<Session>,
        make: impl FnOnce(&mut Work) -> Result<Model, Failure> + Send + 'static,
    ) -> PyResult<Self> {
        let (number, name, domain, target) = session.run(py, move |work| {
            let model = make(work)?;
            let about = (model.name(), described(model.domain()), described(model.target()));
            Ok((work.keep(model), about.0, about.1, about.2))
        })?;
        Ok(NativeModel { kept: Kept { session: session.clone(), number }, name, domain, target })
    }

    /// A model of this one and another.
    fn with(
        &self,
        py: Python<'_>,
        other: &NativeModel,
        join: fn(&Model, &Model) -> Result<Model, OperatorError>,
    ) -> PyResult<Self> {
        if !Arc::ptr_eq(&self.kept.session, &other.kept.session) {
            return Err(PyValueError::new_err("the models are on different ranks"));
        }
        let (a, b) = (self.kept.number, other.kept.number);
        Self::make(py, &self.kept.session, move |work| Ok(join(kept(work, a)?, kept(work, b)?)?))
    }
}

/// Runs `body` with what operators work with.
fn working<R>(work: &mut Work, body: impl FnOnce(&mut Worker<'_>) -> Result<R, Failure>) -> Result<R, Failure> {
    let grid = grid(work.context.comm.size())?;
    body(&mut Worker::new(&mut work.context, grid)?)
}

#[pymethods]
impl NativeModel {
    /// A function of the leaves of a space in WGSL, as a leaf `result`.
    #[staticmethod]
    fn pointwise(
        py: Python<'_>,
        comm: &Comm,
        leaves: Vec<LeafTuple>,
        text: String,
        function: String,
        result: String,
    ) -> PyResult<Self> {
        Self::make(py, &comm.session, move |work| {
            let domain = space(leaves, work.context.comm.rank(), work.context.comm.size())?;
            Ok(Model::new(PointwiseOperator::wgsl(&text, &function, &domain, &result)?))
        })
    }

    /// The transform of cells ("fourier", "hartley"), or the adjoint of one.
    #[staticmethod]
    fn transform(py: Python<'_>, comm: &Comm, leaves: Vec<LeafTuple>, kind: String, adjoint: bool) -> PyResult<Self> {
        Self::make(py, &comm.session, move |work| {
            let domain = space(leaves, work.context.comm.rank(), work.context.comm.size())?;
            working(work, |worker| {
                Ok(match (kind.as_str(), adjoint) {
                    ("fourier", false) => Model::new(Fourier::new(worker, &domain, Norm::Backward)?),
                    ("fourier", true) => Model::new(Adjoint(Fourier::new(worker, &domain, Norm::Backward)?)),
                    ("hartley", false) => Model::new(Hartley::new(worker, &domain)?),
                    (_, false) | (_, true) => Model::new(Adjoint(Hartley::new(worker, &domain)?)),
                })
            })
        })
    }

    /// Multiplication by the values of a field.
    #[staticmethod]
    fn diagonal(
        py: Python<'_>,
        comm: &Comm,
        leaves: Vec<LeafTuple>,
        factors: Vec<Bound<'_, DeviceArray>>,
    ) -> PyResult<Self> {
        let factors = given(&comm.session, factors)?;
        Self::make(py, &comm.session, move |work| {
            let domain = space(leaves, work.context.comm.rank(), work.context.comm.size())?;
            let factors = field(&domain, factors)?;
            Ok(Model::new(Diagonal::new(&domain, &factors)?))
        })
    }

    /// This model, and then another.
    fn then(&self, py: Python<'_>, next: &NativeModel) -> PyResult<Self> {
        self.with(py, next, Model::then)
    }

    /// Both side by side.
    fn zip(&self, py: Python<'_>, other: &NativeModel) -> PyResult<Self> {
        self.with(py, other, Model::zip)
    }

    /// The sum of both.
    fn plus(&self, py: Python<'_>, other: &NativeModel) -> PyResult<Self> {
        self.with(py, other, Model::plus)
    }

    /// The product of both.
    fn times(&self, py: Python<'_>, other: &NativeModel) -> PyResult<Self> {
        self.with(py, other, Model::times)
    }

    /// Its value.
    fn value(&self, py: Python<'_>, x: Vec<Bound<'_, DeviceArray>>) -> PyResult<Vec<DeviceArray>> {
        let (session, number, x) = (&self.kept.session, self.kept.number, given(&self.kept.session, x)?);
        let found = session.run(py, move |work| {
            let model = kept::<Model>(work, number)?.clone();
            let x = field(model.domain(), x)?;
            let y = working(work, |worker| Ok(model.value(worker, &x)?))?;
            work.context.recorder.submit()?;
            Ok(values(&y))
        })?;
        taken(session, &self.target, found)
    }

    /// Its value, and its derivative there.
    fn at(&self, py: Python<'_>, x: Vec<Bound<'_, DeviceArray>>) -> PyResult<(Vec<DeviceArray>, NativeLinearisation)> {
        let (session, number, x) = (&self.kept.session, self.kept.number, given(&self.kept.session, x)?);
        let (at, found) = session.run(py, move |work| {
            let model = kept::<Model>(work, number)?.clone();
            let x = field(model.domain(), x)?;
            let at = working(work, |worker| Ok(model.at(worker, &x)?))?;
            let found = values(&at.value);
            work.context.recorder.submit()?;
            Ok((work.keep(at), found))
        })?;
        let kept = Kept { session: session.clone(), number: at };
        let derivative = NativeLinearisation { kept, domain: self.domain.clone(), target: self.target.clone() };
        Ok((taken(session, &self.target, found)?, derivative))
    }
}

/// The derivative of a model at a point.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeLinearisation {
    kept: Kept,
    domain: Vec<LeafShape>,
    target: Vec<LeafShape>,
}

#[pymethods]
impl NativeLinearisation {
    /// The derivative times `dx`.
    fn jvp(&self, py: Python<'_>, dx: Vec<Bound<'_, DeviceArray>>) -> PyResult<Vec<DeviceArray>> {
        let found = self.product(py, dx, |at, worker, dx| {
            let mut dy = Field::new(worker.gpu(), at.model().target())?;
            at.jvp(worker, &field(at.model().domain(), dx)?, &mut dy)?;
            Ok(dy)
        })?;
        taken(&self.kept.session, &self.target, found)
    }

    /// `dy` times the derivative.
    fn vjp(&self, py: Python<'_>, dy: Vec<Bound<'_, DeviceArray>>) -> PyResult<Vec<DeviceArray>> {
        let found = self.product(py, dy, |at, worker, dy| {
            let mut dx = Field::new(worker.gpu(), at.model().domain())?;
            at.vjp(worker, &field(at.model().target(), dy)?, &mut dx)?;
            Ok(dx)
        })?;
        taken(&self.kept.session, &self.domain, found)
    }
}

impl NativeLinearisation {
    fn product(
        &self,
        py: Python<'_>,
        arrays: Vec<Bound<'_, DeviceArray>>,
        product: impl FnOnce(&Linearisation, &mut Worker<'_>, Values) -> Result<Field, Failure> + Send + 'static,
    ) -> PyResult<Values> {
        let (session, number, arrays) = (&self.kept.session, self.kept.number, given(&self.kept.session, arrays)?);
        session.run(py, move |work| {
            // Taken out meanwhile, since the work borrows the rest.
            let Some(at) = work.kept.remove(&number) else { return Err(Failure::Panic("a derivative is gone".into())) };
            let found = match at.downcast_ref::<Linearisation>() {
                Some(at) => working(work, |worker| product(at, worker, arrays)),
                None => Err(Failure::Panic("a derivative is something else".into())),
            };
            work.kept.insert(number, at);
            work.context.recorder.submit()?;
            Ok(values(&found?))
        })
    }
}
