//! Models of operators, which live on the thread of their session: they are handles there and numbers here.

use std::sync::Arc;

use meshloom::Error;
use meshloom::map::{ChunkSize, Items, Mapping, Placement, jacobian_columns, jacobian_rows, numbers_of};
use meshloom::operators::{Contents, Field, Linearisation, Model, OperatorError, Space, Worker};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::device_array::{DeviceArray, Elements};
use crate::failure::Failure;
use crate::fields::{Cut, Kept, LeafShape, Values, described, field, given, kept, taken, working};
use crate::host_array::to_numpy;
use crate::session::{Session, Work};

/// A model: a differentiable function of fields.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeModel {
    pub kept: Kept,
    pub cut: Cut,
    /// What errors call it.
    #[pyo3(get)]
    name: String,
    /// The leaves that it takes.
    #[pyo3(get)]
    pub domain: Vec<LeafShape>,
    /// The leaves that it gives.
    #[pyo3(get)]
    pub target: Vec<LeafShape>,
}

impl NativeModel {
    /// Makes a model on the session's thread and keeps it there.
    pub fn make(
        py: Python<'_>,
        session: &Arc<Session>,
        cut: Cut,
        make: impl FnOnce(&mut Work) -> Result<Model, Failure> + Send + 'static,
    ) -> PyResult<Self> {
        let made = session.run(py, move |work| {
            let model = make(work)?;
            Ok(Noted::of(work, model))
        })?;
        Ok(Self::of(session, cut, made))
    }

    /// A model that was noted on the session's thread.
    pub fn of(session: &Arc<Session>, cut: Cut, Noted { number, name, domain, target }: Noted) -> Self {
        NativeModel { kept: Kept { session: session.clone(), number }, cut, name, domain, target }
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
        let (a, b, cut) = (self.kept.number, other.kept.number, self.cut.or(other.cut));
        Self::make(py, &self.kept.session, cut, move |work| Ok(join(kept(work, a)?, kept(work, b)?)?))
    }
}

/// A model that is kept: its number, and what is known of it elsewhere.
pub struct Noted {
    number: u64,
    name: String,
    domain: Vec<LeafShape>,
    target: Vec<LeafShape>,
}

impl Noted {
    /// Keeps a model.
    pub fn of(work: &mut Work, model: Model) -> Self {
        let (name, domain, target) = (model.name(), described(model.domain()), described(model.target()));
        Noted { number: work.keep(model), name, domain, target }
    }
}

#[pymethods]
impl NativeModel {
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
    fn value(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let (session, cut) = (&self.kept.session, self.cut);
        let (number, x) = (self.kept.number, given(session, x)?);
        let found = session.run(py, move |work| {
            let model = kept::<Model>(work, number)?.clone();
            let x = field(model.domain(), x)?;
            let y = working(work, cut, |worker| Ok(model.value(worker, &x)?))?;
            work.context.recorder.submit()?;
            Ok(y.contents().to_vec())
        })?;
        taken(py, session, &self.target, found)
    }

    /// Its value, and its derivative there.
    fn at(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<(Vec<Py<PyAny>>, NativeLinearisation)> {
        let (session, cut) = (&self.kept.session, self.cut);
        let (number, x) = (self.kept.number, given(session, x)?);
        let (at, found) = session.run(py, move |work| {
            let model = kept::<Model>(work, number)?.clone();
            let x = field(model.domain(), x)?;
            let at = working(work, cut, |worker| Ok(model.at(worker, &x)?))?;
            let found = at.value.contents().to_vec();
            work.context.recorder.submit()?;
            Ok((work.keep(at), found))
        })?;
        let kept = Kept { session: session.clone(), number: at };
        let derivative = NativeLinearisation { kept, cut, domain: self.domain.clone(), target: self.target.clone() };
        Ok((taken(py, session, &self.target, found)?, derivative))
    }

    /// Its values at so many items, of each of which `rows` has the numbers of its only leaf; the numbers of its only target for each. Of a model on one rank.
    fn map(&self, rows: &Bound<'_, DeviceArray>, items: u64, chunk: u64) -> PyResult<DeviceArray> {
        let (py, session, number, cut) = (rows.py(), &self.kept.session, self.kept.number, self.cut);
        let rows = given(session, vec![rows.as_any().clone()])?;
        let found = session.run(py, move |work| {
            let model = kept::<Model>(work, number)?.clone();
            working(work, cut, |worker| mapped(worker, &model, &rows[0], items, chunk))
        })?;
        let shape = vec![found.len()];
        DeviceArray::new(session, Elements::F32(found), shape)
    }
}

/// The values of a model of one leaf each at so many items.
fn mapped(
    worker: &mut Worker<'_>,
    model: &Model,
    rows: &Contents,
    items: u64,
    chunk: u64,
) -> Result<meshloom::gpu::Array<f32>, Failure> {
    let only = |space: &Space| match space.only() {
        Some((_, leaf)) => Ok(leaf.len()),
        None => Err(Failure::Value(format!("a map is of models with one leaf, not {space}"))),
    };
    let (from, to) = (only(model.domain())?, only(model.target())?);
    let Contents::Device(rows) = rows else { return Err(Failure::Value("rows must be on the device".into())) };
    let mapping = Mapping::new(items).chunk(ChunkSize::Items(chunk)).output("values", to, Placement::Sharded);
    let grid = worker.comms.grid();
    let mapped = meshloom::map::map(worker.context, &mapping, &[Items::Device(rows)], |context, chunk| {
        let mut worker = Worker::new(context, grid)?;
        let (mut x, mut y) = (Field::new(worker.gpu(), model.domain())?, Field::new(worker.gpu(), model.target())?);
        for item in 0..chunk.count() {
            let [Contents::Device(own), Contents::Device(given)] = [&x.contents()[0], &y.contents()[0]] else { break };
            let (own, given) = (own.clone(), given.clone());
            worker.context.recorder.copy(&chunk.inputs[0], item * from, &own, 0, from)?;
            x = Field::over(model.domain(), vec![Contents::Device(own)])?;
            model.apply(&mut worker, &x, &mut y)?;
            worker.context.recorder.copy(&given, 0, &chunk.outputs[0], item * to, to)?;
        }
        Ok::<_, Error>(())
    })?;
    let found = mapped.output("values").cloned();
    found.ok_or_else(|| Failure::Panic("a map without its output".into()))
}

/// The derivative of a model at a point.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeLinearisation {
    kept: Kept,
    cut: Cut,
    domain: Vec<LeafShape>,
    target: Vec<LeafShape>,
}

#[pymethods]
impl NativeLinearisation {
    /// The derivative times `dx`.
    fn jvp(&self, py: Python<'_>, dx: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let dx = given(&self.kept.session, dx)?;
        let found = self.with(py, move |worker, at| {
            let mut dy = Field::new(worker.gpu(), at.model().target())?;
            at.jvp(worker, &field(at.model().domain(), dx)?, &mut dy)?;
            Ok(dy.contents().to_vec())
        })?;
        taken(py, &self.kept.session, &self.target, found)
    }

    /// `dy` times the derivative.
    fn vjp(&self, py: Python<'_>, dy: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let dy = given(&self.kept.session, dy)?;
        let found: Values = self.with(py, move |worker, at| {
            let mut dx = Field::new(worker.gpu(), at.model().domain())?;
            at.vjp(worker, &field(at.model().target(), dy)?, &mut dx)?;
            Ok(dx.contents().to_vec())
        })?;
        taken(py, &self.kept.session, &self.domain, found)
    }

    /// The matrix of the derivative, one row after the other, and its rows and columns; by the products that are fewer.
    fn jacobian<'py>(&self, py: Python<'py>, chunk: u64) -> PyResult<(Bound<'py, PyArray1<f64>>, u64, u64)> {
        let (matrix, rows, columns) = self.with(py, move |worker, at| matrix(worker, at, chunk))?;
        Ok((to_numpy(py, matrix), rows, columns))
    }
}

impl NativeLinearisation {
    fn with<R: Send + 'static>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Worker<'_>, &Linearisation) -> Result<R, Failure> + Send + 'static,
    ) -> PyResult<R> {
        let (number, cut) = (self.kept.number, self.cut);
        self.kept.session.run(py, move |work| {
            // Taken out meanwhile, since the work borrows the rest.
            let Some(at) = work.kept.remove(&number) else { return Err(Failure::Panic("a derivative is gone".into())) };
            let found = match at.downcast_ref::<Linearisation>() {
                Some(at) => working(work, cut, |worker| body(worker, at)),
                None => Err(Failure::Panic("a derivative is something else".into())),
            };
            work.kept.insert(number, at);
            work.context.recorder.submit()?;
            found
        })
    }
}

/// The numbers of a field of one rank, leaf by leaf.
fn numbers(worker: &mut Worker<'_>, field: &Field) -> Result<Vec<f64>, OperatorError> {
    let mut all = Vec::new();
    for name in field.space().names() {
        all.extend(field.get(&mut worker.context.recorder, name)?);
    }
    Ok(all)
}

/// The matrix of a derivative of a model on one rank, with its rows and columns.
fn matrix(worker: &mut Worker<'_>, at: &Linearisation, chunk: u64) -> Result<(Vec<f64>, u64, u64), Failure> {
    if worker.comm().size() > 1 {
        return Err(Failure::Value("a matrix is of a model on one rank; take jvp and vjp of this one".into()));
    }
    let rows = numbers_of(worker, at.model().target())?;
    let columns = numbers_of(worker, at.model().domain())?;
    let mut matrix = vec![0.0; (rows * columns) as usize];
    if rows <= columns {
        jacobian_rows(worker, at, 0..rows, ChunkSize::Items(chunk), |worker, first, fields| {
            for (row, field) in (first..).zip(fields) {
                let start = (row * columns) as usize;
                matrix[start..start + columns as usize].copy_from_slice(&numbers(worker, field)?);
            }
            Ok::<_, Error>(())
        })?;
    } else {
        jacobian_columns(worker, at, 0..columns, ChunkSize::Items(chunk), |worker, first, fields| {
            for (column, field) in (first..).zip(fields) {
                for (row, value) in numbers(worker, field)?.into_iter().enumerate() {
                    matrix[row * columns as usize + column as usize] = value;
                }
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok((matrix, rows, columns))
}
