//! Neighbors of points.

use std::sync::{Arc, Mutex, PoisonError};

use meshloom::points::neighbors::{PairWeights, Within};
use meshloom::points::{self, Bins, Fixed, Particles, Predicate, Ragged, Targets};
use meshloom::points::{BoxUse, Domain};
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::host_array::{indices, to_numpy};
use crate::points::{Rows, domain};
use crate::session::{Session, Work};

/// Points of all ranks, arranged for searches.
#[pyclass(frozen, module = "meshloom._native")]
pub struct Search {
    session: Arc<Session>,
    search: Arc<Mutex<points::Search>>,
    domain: Domain,
}

impl Search {
    /// Runs a search for `queries`, or for the points themselves.
    fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        queries: Option<&Bound<'_, PyAny>>,
        body: impl FnOnce(&mut Work, &points::Search, Targets<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        let queries = queries.map(|rows| Rows::new(rows, &self.session)).transpose()?;
        let (search, domain) = (self.search.clone(), self.domain);
        self.session.run(py, move |work| {
            let queries = queries.map(|rows| rows.cloud(work, &domain, ("queries", BoxUse::Images))).transpose()?;
            let search = search.lock().unwrap_or_else(PoisonError::into_inner);
            let queries = queries.map(Particles::from);
            body(work, &search, queries.as_ref().into())
        })
    }
}

/// Selects all pairs of two different points, or of a query and a point.
fn all_pairs(queries: Targets<'_>) -> Within {
    let all = Predicate::within(f32::INFINITY);
    if matches!(queries, Targets::Own) { all.exclude_self() } else { all }
}

/// Lists of any length: where each begins, indices, distances.
type Lists<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f32>>);

#[pymethods]
impl Search {
    /// Arranges the points of all ranks in a box with these sides.
    #[new]
    fn new(py: Python<'_>, comm: &Comm, points: &Bound<'_, PyAny>, sides: Vec<f64>) -> PyResult<Self> {
        let (domain, rows, session) = (domain(&sides)?, Rows::new(points, &comm.session)?, comm.session.clone());
        let search = session.run(py, move |work| {
            let cloud = rows.cloud(work, &domain, ("points", BoxUse::Images))?;
            Ok(Arc::new(Mutex::new(work.context.search(&cloud.into())?)))
        })?;
        Ok(Search { session, search, domain })
    }

    /// Returns the `k` nearest of all points within `within`, inclusive: indices (`missing` where
    /// there are fewer) and distances.
    #[pyo3(signature = (queries, k, within, missing, without_self=false))]
    fn nearest<'py>(
        &self,
        py: Python<'py>,
        queries: Option<&Bound<'py, PyAny>>,
        k: u32,
        within: f32,
        missing: u64,
        without_self: bool,
    ) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f32>>)> {
        let Fixed { index, distance, .. } = self.run(py, queries, move |work, search, queries| {
            let all = Predicate::nearest(k).within(within);
            let knn = if without_self { all.exclude_self() } else { all };
            let mut found = work.context.query(search, queries, knn, points::HostLists)?;
            found.index.iter_mut().filter(|index| **index == u64::MAX).for_each(|index| *index = missing);
            Ok(found)
        })?;
        Ok((indices(py, index), to_numpy(py, distance)))
    }

    /// Returns how many points lie within a radius, inclusive.
    fn counts<'py>(
        &self,
        py: Python<'py>,
        queries: Option<&Bound<'py, PyAny>>,
        radius: f32,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let counts = self.run(py, queries, move |work, search, queries| {
            let counts = work.context.query(search, queries, Predicate::within(radius), points::Counts)?;
            let counts = work.context.recorder.download(&counts, 0, counts.len())?;
            Ok(counts.into_iter().map(u64::from).collect())
        })?;
        Ok(indices(py, counts))
    }

    /// Returns the points within a radius, inclusive; with `above` only those of a higher index.
    #[pyo3(signature = (queries, radius, above=false))]
    fn within<'py>(
        &self,
        py: Python<'py>,
        queries: Option<&Bound<'py, PyAny>>,
        radius: f32,
        above: bool,
    ) -> PyResult<Lists<'py>> {
        let Ragged { offsets, index, distance } = self.run(py, queries, move |work, search, queries| {
            let within = if above { Predicate::within(radius).half() } else { Predicate::within(radius) };
            Ok(work.context.query(search, queries, within, points::HostLists)?)
        })?;
        Ok((indices(py, offsets), indices(py, index), to_numpy(py, distance)))
    }

    /// Returns a warning if a bin reaches beyond half of the shortest periodic side.
    fn doubt_of_pairs(&self, edges: Vec<f64>) -> PyResult<Option<String>> {
        Ok(Bins::new(&edges).map_err(Failure::from)?.doubt(&self.domain))
    }

    /// Returns how many ordered pairs of all ranks have a distance in `edges[i] <= r < edges[i +
    /// 1]`.
    fn pairs<'py>(
        &self,
        py: Python<'py>,
        queries: Option<&Bound<'py, PyAny>>,
        edges: Vec<f64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let bins = Bins::new(&edges).map_err(Failure::from)?;
        let counts = self.run(py, queries, move |work, search, queries| {
            Ok(work.context.query(search, queries, all_pairs(queries), points::Histogram(&bins))?)
        })?;
        Ok(indices(py, counts))
    }

    /// Returns the sums of the products of the weights of ordered pairs with a distance in
    /// `edges[i] <= r < edges[i + 1]`. The weights are those of the points and of the queries.
    fn weighted_pairs<'py>(
        &self,
        py: Python<'py>,
        queries: Option<&Bound<'py, PyAny>>,
        edges: Vec<f64>,
        weights: [Option<Bound<'py, PyAny>>; 2],
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let bins = Bins::new(&edges).map_err(Failure::from)?;
        let [of_points, of_queries] = weights.map(|rows| rows.map(|rows| Rows::new(&rows, &self.session)).transpose());
        let (of_points, of_queries) = (of_points?, of_queries?);
        let sums = self.run(py, queries, move |work, search, queries| {
            let mut narrow = |rows: Option<Rows>| rows.map(|rows| rows.to_f32(&mut work.context.recorder)).transpose();
            let (of_points, of_queries) = (narrow(of_points)?, narrow(of_queries)?);
            let weights = PairWeights { points: of_points.as_deref(), queries: of_queries.as_deref() };
            let output = points::WeightedHistogram { bins: &bins, weights };
            Ok(work.context.query(search, queries, all_pairs(queries), output)?.sums)
        })?;
        Ok(to_numpy(py, sums))
    }
}
