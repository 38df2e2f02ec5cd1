//! Models of operators, which live on the thread of their session: they are handles there and
//! numbers here.

use meshloom::Error;
use meshloom::Rank;
use meshloom::map::{ChunkSize, Items, Mapping, Placement};
use meshloom::operators::{
    AdjointCheck, Contents, Linearization, Model, OperatorError, Space, TaylorCheck, Vector, check_adjoint,
    check_derivative, random_field,
};
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::device_array::{DeviceArray, Elements};
use crate::failure::Failure;
use crate::fields::{LeafShape, Values, described, field, given, taken};
use crate::handle::Handle;
use crate::host_array::to_numpy;
use crate::jacobian::{Rows, extents, matrix};

/// A model: a differentiable function of fields. Python notes the call that made it.
#[pyclass(frozen, dict, module = "meshloom._native")]
pub struct NativeModel {
    pub handle: Handle<Model>,
    /// Name in errors.
    #[pyo3(get)]
    name: String,
    /// The leaves that it takes.
    #[pyo3(get)]
    pub domain: Vec<LeafShape>,
    /// The leaves that it gives.
    #[pyo3(get)]
    pub target: Vec<LeafShape>,
}

/// Description of a model: its name, and the leaves of its domain and target.
pub type About = (String, Vec<LeafShape>, Vec<LeafShape>);

/// Returns a model with its description.
pub fn told(model: Model) -> (Model, About) {
    let about = (model.name().to_string(), described(model.domain()), described(model.target()));
    (model, about)
}

/// Steps with remainders, the rounding of these, and their order.
type Remainders = (Vec<[f64; 2]>, f64, Option<f64>);

impl From<(Handle<Model>, About)> for NativeModel {
    fn from((handle, (name, domain, target)): (Handle<Model>, About)) -> Self {
        NativeModel { handle, name, domain, target }
    }
}

impl NativeModel {
    /// Returns a model of this one and another.
    fn with(
        &self,
        py: Python<'_>,
        other: &NativeModel,
        join: fn(&Model, &Model) -> Result<Model, OperatorError>,
    ) -> PyResult<Self> {
        Ok(self.handle.join(py, &other.handle, move |own, other| Ok(told(join(own, other)?)))?.into())
    }
}

#[pymethods]
impl NativeModel {
    /// Returns this model, and then another.
    fn then(&self, py: Python<'_>, next: &NativeModel) -> PyResult<Self> {
        self.with(py, next, Model::then)
    }

    /// Both side by side.
    fn zip(&self, py: Python<'_>, other: &NativeModel) -> PyResult<Self> {
        self.with(py, other, Model::zip)
    }

    /// Returns this model with the results of another in place of its arguments.
    fn substitute(&self, py: Python<'_>, inner: &NativeModel) -> PyResult<Self> {
        self.with(py, inner, Model::substitute)
    }

    /// Returns the model with only these leaves of its target.
    fn giving(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Self> {
        let made = self.handle.derive(py, move |_, model| {
            let leaves = model.target().leaves().filter(|(name, _)| names.iter().any(|wanted| wanted == name));
            let target = Space::new(leaves.map(|(name, leaf)| (name, leaf.clone())))?;
            Ok(told(model.giving(&target)?))
        })?;
        Ok(made.into())
    }

    /// Returns the model of both by the name of a method: "plus", "minus", "times", "over" or
    /// "to_power".
    fn combined(&self, py: Python<'_>, name: &str, other: &NativeModel) -> PyResult<Self> {
        let join = match name {
            "plus" => Model::plus,
            "minus" => Model::minus,
            "times" => Model::times,
            "over" => Model::over,
            "to_power" => Model::to_power,
            _ => return Err(Failure::Value(format!("there is no operation `{name}`")).into()),
        };
        self.with(py, other, join)
    }

    /// Returns a function of the values with one number, by the name of a method: "shifted",
    /// "scaled" or "power".
    fn with_number(&self, py: Python<'_>, name: &str, number: f64) -> PyResult<Self> {
        let make = match name {
            "shifted" => Model::shifted,
            "scaled" => Model::scaled,
            "power" => Model::power,
            _ => return Err(Failure::Value(format!("there is no operation `{name}`")).into()),
        };
        Ok(self.handle.derive(py, move |_, model| Ok(told(make(model, number)?)))?.into())
    }

    /// Returns a function of the values by its name.
    fn function(&self, py: Python<'_>, name: String) -> PyResult<Self> {
        Ok(self.handle.derive(py, move |_, model| Ok(told(model.function(&name)?)))?.into())
    }

    /// Renames leaves of the domain and the target: pairs of a present and a new name.
    fn renamed(&self, py: Python<'_>, domain: Vec<(String, String)>, target: Vec<(String, String)>) -> PyResult<Self> {
        let made = self.handle.derive(py, move |_, model| {
            let [domain, target] = [&domain, &target]
                .map(|pairs| pairs.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect::<Vec<_>>());
            Ok(told(model.renamed(&domain, &target)?))
        })?;
        Ok(made.into())
    }

    /// Returns its value.
    fn value(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let session = &self.handle.session;
        let x = given(session, x)?;
        let found = self.handle.with(py, move |rank, model| {
            let y = model.value(rank, &field(model.domain(), x)?)?;
            Ok(y.contents().to_vec())
        })?;
        taken(py, session, &self.target, found)
    }

    /// Returns its value, and its derivative there.
    fn at(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<(Vec<Py<PyAny>>, NativeLinearization)> {
        let session = &self.handle.session;
        let x = given(session, x)?;
        let (handle, found) = self.handle.derive(py, move |work, model| {
            let x = field(model.domain(), x)?;
            let at = model.at(&mut work.context, &x)?;
            let found = at.value.contents().to_vec();
            Ok((at, found))
        })?;
        let derivative = NativeLinearization { handle, domain: self.domain.clone(), target: self.target.clone() };
        Ok((taken(py, session, &self.target, found)?, derivative))
    }

    /// Compares the jvp with the value, along a random direction of `seed`.
    fn check_derivative(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>, seed: u64) -> PyResult<Remainders> {
        let x = given(&self.handle.session, x)?;
        self.handle.with(py, move |rank, model| {
            let dx = random_field(rank, model.domain(), seed)?;
            let found = check_derivative(rank, model, &field(model.domain(), x)?, &dx)?;
            let TaylorCheck { remainders, rounding, order } = found;
            Ok((remainders, rounding, order))
        })
    }

    /// Compares the vjp with the jvp.
    fn check_adjoint(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<(f64, f64, f64)> {
        let x = given(&self.handle.session, x)?;
        self.handle.with(py, move |rank, model| {
            let AdjointCheck { forward, reverse, tolerance } = check_adjoint(rank, model, &field(model.domain(), x)?)?;
            Ok((forward, reverse, tolerance))
        })
    }

    /// Returns the values at `items` items; `rows` has the numbers of the only leaf for each item.
    /// For models on one rank.
    fn map(&self, rows: &Bound<'_, DeviceArray>, items: u64, chunk: u64) -> PyResult<DeviceArray> {
        let (py, session) = (rows.py(), &self.handle.session);
        let rows = given(session, vec![rows.as_any().clone()])?;
        let found = self.handle.with(py, move |rank, model| mapped(rank, model, &rows[0], items, chunk))?;
        let shape = vec![found.len()];
        DeviceArray::new(session, Elements::F32(found), shape)
    }
}

/// Returns the values of a model with one leaf in domain and target, at `items` items.
fn mapped(
    rank: &mut Rank,
    model: &Model,
    rows: &Contents,
    items: u64,
    chunk: u64,
) -> Result<meshloom::gpu::Array<f32>, Failure> {
    let only = |space: &Space| match space.only() {
        Some((_, leaf)) => Ok(leaf.len()),
        None => Err(Failure::Value(format!("expected a model with one leaf, got {space}"))),
    };
    let (from, to) = (only(model.domain())?, only(model.target())?);
    let Contents::Device(rows) = rows else { return Err(Failure::Value("rows must be on the device".into())) };
    let mapping = Mapping::new(items).chunk(ChunkSize::Items(chunk)).output("values", to, Placement::Sharded);
    let mapped = meshloom::map::map(rank, &mapping, &[Items::Device(rows)], |rank, chunk| {
        let (mut x, mut y) = (Vector::new(&rank.gpu, model.domain())?, Vector::new(&rank.gpu, model.target())?);
        for item in 0..chunk.count() {
            let [Contents::Device(own), Contents::Device(given)] = [&x.contents()[0], &y.contents()[0]] else { break };
            let (own, given) = (own.clone(), given.clone());
            rank.recorder.copy(&chunk.inputs[0], item * from, &own, 0, from)?;
            x = Vector::over(model.domain(), vec![Contents::Device(own)])?;
            model.apply(rank, &x, &mut y)?;
            rank.recorder.copy(&given, 0, &chunk.outputs[0], item * to, to)?;
        }
        Ok::<_, Error>(())
    })?;
    let found = mapped.output("values").cloned();
    found.ok_or_else(|| Failure::Panic("a map without its output".into()))
}

/// The derivative of a model at a point.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeLinearization {
    handle: Handle<Linearization>,
    domain: Vec<LeafShape>,
    target: Vec<LeafShape>,
}

#[pymethods]
impl NativeLinearization {
    /// Returns the derivative times `dx`.
    fn jvp(&self, py: Python<'_>, dx: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let dx = given(&self.handle.session, dx)?;
        let found = self.handle.with(py, move |rank, at| {
            let mut dy = Vector::new(&rank.gpu, at.model().target())?;
            at.jvp(rank, &field(at.model().domain(), dx)?, &mut dy)?;
            Ok(dy.contents().to_vec())
        })?;
        taken(py, &self.handle.session, &self.target, found)
    }

    /// `dy` times the derivative.
    fn vjp(&self, py: Python<'_>, dy: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let dy = given(&self.handle.session, dy)?;
        let found: Values = self.handle.with(py, move |rank, at| {
            let mut dx = Vector::new(&rank.gpu, at.model().domain())?;
            at.vjp(rank, &field(at.model().target(), dy)?, &mut dx)?;
            Ok(dx.contents().to_vec())
        })?;
        taken(py, &self.handle.session, &self.domain, found)
    }

    /// Returns the matrix of the derivative, one row after the other, and its rows and columns; by
    /// the products that are fewer. `chunk` is a number of products, or a budget in bytes. All rows
    /// are gathered on all ranks, or each rank has those of its own part of the target.
    fn jacobian<'py>(
        &self,
        py: Python<'py>,
        chunk: (u64, bool),
        block: Option<(u64, u64)>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, usize, usize)> {
        let chunk = if chunk.1 { ChunkSize::Memory(chunk.0) } else { ChunkSize::Items(chunk.0) };
        let rows = block.map_or(Rows::Own, |(first, end)| Rows::Block(first..end));
        let (matrix, rows, columns) = self.handle.with(py, move |rank, at| matrix(rank, at, chunk, rows))?;
        Ok((to_numpy(py, matrix), rows, columns))
    }

    /// Returns the numbers of rows and columns of the derivative.
    fn extents(&self, py: Python<'_>) -> PyResult<[u64; 2]> {
        self.handle.with(py, |rank, at| extents(rank, at))
    }
}
