//! A visit of the neighbors of all queries by functions in WGSL, over ranks.

use std::fmt::Debug;

use super::search::{RankQueries, refuse_self_filter};
use super::{
    FoldedLists, FoldedPoints, Nearest, NeighborError, PairFilter, Queries, QueryPoints, Search, Within, callback,
    check_radius,
};
use crate::gpu::{Array, Callback, DeviceError, Element, KernelParams, WgslWords};
use crate::points::ghosts::Ghosts;
use crate::points::sort::forward_by;
use crate::points::{AnyArray, Attributes, Cloud, JointPoints, ParticleError, Particles, WithGhosts, iota};
use crate::rank::Rank;

/// Functions in WGSL that visit the neighbors of each query, with the attributes that they read and
/// write: an output of [`Rank::query`](crate::Rank::query).
///
/// The text defines a type and three functions, and may define a fourth:
///
/// ```wgsl
/// struct State { .. }                                     // or: alias State = f32;
/// fn begin(query: u32, reach: f32) -> State { .. }        // before the first neighbor
/// fn each(state: State, near: Neighbor) -> State { .. }   // for every neighbor
/// fn end(query: u32, state: State) { .. }                 // after the last; stores what is wanted
/// fn done(state: State) -> bool { .. }                    // ends a query within a radius if it returns true
/// ```
///
/// - `near` is `struct Neighbor { index: u32, distance: f32, offset: vec3<f32> }`; `offset` points
///   from the query to the nearest image of the neighbor. `reach` is the radius, or the distance of
///   the last of the nearest neighbors.
/// - An attribute that is [read](Self::read) is a function of its name: `mass(near.index)` is the
///   neighbor's value, and with [`Targets::Own`](crate::points::Targets::Own) `mass(query)` the
///   query's. Attributes of other targets are declared by [`read_target`](Self::read_target).
///   Values of width 2 to 4 are vectors; of other widths, `mass(i, c)` is value `c`.
/// - An attribute that is [written](Self::write) is a function `set_name(query, value)`, or
///   `set_name(query, c, value)` for widths above 4. What no query stores is 0.
/// - Parameters are fields of `params`. Names of other things begin with `user_` to avoid name
///   clashes.
/// - Each query is visited once. Nearest neighbors come nearest first, equal distances by index;
///   neighbors within a radius come in no particular order unless the visit is
///   [`ordered`](Self::ordered).
#[must_use = "a visit does nothing before a query"]
#[derive(Clone)]
pub struct Visit {
    text: String,
    read: Vec<String>,
    read_target: Vec<String>,
    write: Vec<(String, Element, u64)>,
    params: Option<Callback>,
    loop_rounds: u32,
    is_ordered: bool,
}

impl Visit {
    /// Creates a visit from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Visit {
            text: text.into(),
            read: Vec::new(),
            read_target: Vec::new(),
            write: Vec::new(),
            params: None,
            loop_rounds: 0,
            is_ordered: false,
        }
    }

    /// Reads an attribute of the points of the search, or `x`, their coordinates; copies on other
    /// ranks are fetched.
    pub fn read(mut self, name: &str) -> Self {
        self.read.push(name.into());
        self
    }

    /// Reads an attribute of targets that are not points of the search.
    pub fn read_target(mut self, name: &str) -> Self {
        self.read_target.push(name.into());
        self
    }

    /// Writes `width` values of `f32` per query.
    pub fn write(mut self, name: &str, width: u64) -> Self {
        self.write.push((name.into(), Element::F32, width));
        self
    }

    /// Writes `width` values of `u32` per query.
    pub fn write_u32(mut self, name: &str, width: u64) -> Self {
        self.write.push((name.into(), Element::U32, width));
        self
    }

    /// Sets the parameters, made with [`kernel_params!`](crate::kernel_params), of at most 96
    /// bytes.
    pub fn params<P: KernelParams>(mut self, values: &P) -> Self {
        self.params = Some(Callback::new("").params(values));
        self
    }

    /// Sets the rounds of loops that one call of `each` takes at most, on drivers that limit them
    /// ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)).
    pub fn loop_rounds(mut self, rounds: u32) -> Self {
        self.loop_rounds = rounds;
        self
    }

    /// Visits neighbors within a radius by ascending row, so that floating-point sums have the same
    /// bits on any number of ranks, on one driver. Nearest neighbors have a fixed order anyway.
    ///
    /// Costs nothing for particles that are [distributed](crate::Rank::distribute) and have not
    /// moved since. Otherwise neighbors are listed and sorted first: a second traversal and 8 bytes
    /// per neighbor.
    pub fn ordered(mut self) -> Self {
        self.is_ordered = true;
        self
    }

    /// Refuses calls of attributes that are not declared.
    fn check_reads(&self, input: &Particles, targets: Option<&Particles>) -> Result<(), NeighborError> {
        let words = WgslWords::new(&self.text);
        let declared = |name: &&str| self.read.iter().chain(&self.read_target).any(|one| one == name);
        for (particles, method) in [(Some(input), "read"), (targets, "read_target")] {
            let names = particles.into_iter().flat_map(Particles::names);
            for name in names.filter(|name| !declared(name)) {
                // A function of the text's own has parameters with types.
                let is_own = words.calls(name).any(|arguments| arguments.iter().any(|text| text.contains(':')));
                if !is_own && words.calls(name).next().is_some() {
                    let why = format!(
                        "the text calls `{name}`, an attribute that is not declared; add `.{method}(\"{name}\")`"
                    );
                    return Err(DeviceError::misuse("Visit", why).into());
                }
            }
        }
        Ok(())
    }

    /// Checks that all ranks visit alike. Collective.
    fn agree(
        &self,
        search: &Search,
        call: &str,
        queries: Option<&Cloud>,
        query: &dyn Debug,
    ) -> Result<(), NeighborError> {
        let parameters = self.params.as_ref().map(Callback::values);
        let arguments: [(&str, &dyn Debug); 8] = [
            ("query", query),
            ("text", &self.text),
            ("ordered", &self.is_ordered),
            ("rounds of loops", &self.loop_rounds),
            ("attributes read", &self.read),
            ("attributes read of targets", &self.read_target),
            ("attributes written", &self.write),
            ("parameters", &parameters),
        ];
        search.agree(call, queries, &arguments)
    }
}

/// Returns the name of the array of an attribute.
fn array_name(name: &str) -> String {
    format!("user_{name}")
}

/// Functions in WGSL that read the values of an attribute of this width.
fn reader(name: &str, element: Element, width: u64) -> String {
    let (array, scalar) = (array_name(name), element.wgsl());
    let value = |c: u64| format!("load_{array}({width}u * i + {c}u)");
    match width {
        1 => format!("fn {name}(i: u32) -> {scalar} {{ return load_{array}(i); }}\n"),
        2..=4 => {
            let values: Vec<String> = (0..width).map(value).collect();
            let vector = format!("vec{width}<{scalar}>");
            format!("fn {name}(i: u32) -> {vector} {{ return {vector}({}); }}\n", values.join(", "))
        }
        _ => format!("fn {name}(i: u32, c: u32) -> {scalar} {{ return load_{array}({width}u * i + c); }}\n"),
    }
}

/// Functions in WGSL that write the values of an attribute of this width.
fn writer(name: &str, element: Element, width: u64) -> String {
    let (array, scalar) = (array_name(name), element.wgsl());
    match width {
        1 => format!("fn set_{name}(i: u32, value: {scalar}) {{ store_{array}(i, value); }}\n"),
        2..=4 => {
            let component = |c: u64| format!("store_{array}({width}u * i + {c}u, value[{c}]);");
            let values: Vec<String> = (0..width).map(component).collect();
            format!("fn set_{name}(i: u32, value: vec{width}<{scalar}>) {{ {} }}\n", values.join(" "))
        }
        _ => format!("fn set_{name}(i: u32, c: u32, value: {scalar}) {{ store_{array}({width}u * i + c, value); }}\n"),
    }
}

/// A visit bound to arrays of this rank.
struct Bound {
    callback: Callback,
    written: Vec<(String, AnyArray, u64)>,
}

impl Search {
    /// Visits the nearest neighbors of the queries.
    pub(super) fn visit_nearest(
        &self,
        rank: &mut Rank,
        targets: Option<&Particles>,
        knn: &Nearest,
        visit: &Visit,
    ) -> Result<Attributes, NeighborError> {
        let queries = targets.map(Particles::cloud);
        visit.agree(self, "visit of the nearest neighbors", queries, knn)?;
        knn.check()?;
        self.check_visit(targets, knn.excludes_self, visit)?;
        let local = self.arrange_queries(rank, queries)?;
        if rank.comm.size() == 1 {
            let bound = self.bind(rank, (&local, targets), (None, None), visit)?;
            let tree = &self.points.own.tree;
            let queries = local.queries();
            self.nearest.visit(&mut rank.recorder, tree, queries, knn, &bound.callback)?;
            return self.written(rank, &local, None, bound);
        }
        let (lists, fetched) = self.nearest_rows(rank, &local, knn)?;
        let (joint, ghosts) = match &fetched {
            Some(WithGhosts { points, ghosts }) => (points.as_ref(), Some(ghosts)),
            None => (None, None),
        };
        let bound = self.bind(rank, (&local, targets), (joint, ghosts), visit)?;
        let recorder = &mut rank.recorder;
        let points = joint.map_or(&self.points.own, |joint| &joint.points);
        let rows = self.numbers(&local).len();
        let numbers = match joint {
            Some(joint) if local.targets.is_none() => joint.own_places().clone(),
            _ => iota(recorder, 0, rows)?,
        };
        let queries = local.queries();
        let units = queries.units(&points.tree, knn.within, f32::INFINITY);
        let folded = FoldedLists::of_nearest(&lists, knn, &numbers, 0..rows);
        let (domain, sources) = (*points.tree.domain(), Some(points.cloud.positions().clone()));
        let folded_points = FoldedPoints { domain, units, sources, queries: local.positions.clone() };
        self.nearest.folder.record(recorder, folded, &folded_points, &bound.callback)?;
        self.written(rank, &local, joint, bound)
    }

    /// Visits the neighbors within a radius of the queries.
    pub(super) fn visit_within(
        &self,
        rank: &mut Rank,
        targets: Option<&Particles>,
        within: &Within,
        visit: &Visit,
    ) -> Result<Attributes, NeighborError> {
        let queries = targets.map(Particles::cloud);
        visit.agree(self, "visit within a radius", queries, within)?;
        check_radius(within.radius)?;
        self.check_visit(targets, within.filter != PairFilter::All, visit)?;
        let local = self.arrange_queries(rank, queries)?;
        let (found, ghosts) = self.points_within(rank, &local, within.radius)?;
        let joint = found.as_ref().map(|(joint, _)| joint);
        let bound = self.bind(rank, (&local, targets), (joint, ghosts.as_ref()), visit)?;
        let (points, own) = (joint.map_or(&self.points.own, |joint| &joint.points), &self.points.own.tree);
        // Own points are given as targets even without ghosts: one kernel for any number of ranks.
        let targets = match (&found, &local.targets) {
            (Some((_, targets)), _) => targets.clone(),
            (None, Some(targets)) => targets.clone(),
            (None, None) => QueryPoints::arranged(own, own.positions().clone(), own.order().clone(), own.extent()),
        };
        let callback = (&bound.callback, visit.is_ordered);
        self.radius.visit_once(&mut rank.recorder, &points.tree, Queries::At(&targets), within, callback)?;
        self.written(rank, &local, joint, bound)
    }

    /// Refuses visits that the search or the targets cannot serve: the same on all ranks.
    fn check_visit(
        &self,
        targets: Option<&Particles>,
        excludes_self: bool,
        visit: &Visit,
    ) -> Result<(), NeighborError> {
        refuse_self_filter(targets.map(Particles::cloud), excludes_self)?;
        callback::check("Visit", &Callback::new(visit.text.as_str()))?;
        visit.check_reads(&self.input, targets)?;
        let read_target = visit.read_target.iter().map(|name| (targets.unwrap_or(&self.input), name));
        for (particles, name) in visit.read.iter().map(|name| (&self.input, name)).chain(read_target) {
            particles.known_column(name)?;
        }
        match visit.write.iter().find(|(_, _, width)| *width == 0) {
            Some((name, ..)) => Err(ParticleError::Shape { name: name.clone(), have: 0, want: 1 }.into()),
            None => Ok(()),
        }
    }

    /// Makes the callback of a visit: arrays of all rows that it may meet on this rank.
    fn bind(
        &self,
        rank: &mut Rank,
        (local, targets): (&RankQueries, Option<&Particles>),
        (joint, ghosts): (Option<&JointPoints>, Option<&Ghosts>),
        visit: &Visit,
    ) -> Result<Bound, NeighborError> {
        let mut text = String::new();
        let mut callback = Callback::new("");
        let mut arrays: Vec<(&str, AnyArray)> = Vec::new();
        for name in &visit.read {
            let (values, width) = self.input.known_column(name)?;
            text += &reader(name, values.element(), width);
            let words = self.source_rows(rank, (joint, ghosts), &values.words()?, width)?;
            arrays.push((name, values.like(&words)?));
        }
        for name in visit.read_target.iter().filter(|name| !visit.read.contains(name) || targets.is_some()) {
            let (values, width) = targets.unwrap_or(&self.input).known_column(name)?;
            text += &reader(name, values.element(), width);
            let words = match targets {
                None => self.source_rows(rank, (joint, ghosts), &values.words()?, width)?,
                Some(_) => forward_by(local.route.as_ref(), rank, &values.words()?, width)?,
            };
            arrays.push((name, values.like(&words)?));
        }
        for (name, values) in &arrays {
            callback = values.read_by(callback, &array_name(name));
        }
        let rows = match (&local.targets, joint) {
            (Some(targets), _) => targets.len(),
            (None, Some(joint)) => joint.points.cloud.len(),
            (None, None) => self.points.own.cloud.len(),
        };
        let mut written = Vec::new();
        for (name, element, width) in &visit.write {
            text += &writer(name, *element, *width);
            let words = rank.gpu.array::<u32>(name, rows * width)?;
            rank.recorder.clear(&words);
            let values = AnyArray::of_words(*element, &words)?;
            callback = values.written_by(callback, &array_name(name));
            written.push((name.clone(), values, *width));
        }
        let callback =
            callback.with_text(format!("{}\n{text}", visit.text), visit.params.as_ref()).loop_rounds(visit.loop_rounds);
        Ok(Bound { callback, written })
    }

    /// Values of the input for the points that this rank searches: its own and ghosts, in the order
    /// of their rows.
    fn source_rows(
        &self,
        rank: &mut Rank,
        (joint, ghosts): (Option<&JointPoints>, Option<&Ghosts>),
        values: &Array<u32>,
        width: u64,
    ) -> Result<Array<u32>, NeighborError> {
        let own = forward_by(self.points.route.as_ref(), rank, values, width)?;
        let Some(ghosts) = ghosts else { return Ok(own) };
        let copies = ghosts.refresh(rank, &own, width)?;
        match joint {
            Some(joint) => Ok(joint.joined(&mut rank.recorder, &own, &copies, width)?),
            None => Ok(own),
        }
    }

    /// Returns what a visit has written, in the rows of the queries' input.
    fn written(
        &self,
        rank: &mut Rank,
        local: &RankQueries,
        joint: Option<&JointPoints>,
        bound: Bound,
    ) -> Result<Attributes, NeighborError> {
        let own = self.points.own.cloud.len();
        let mut attributes = Attributes::default();
        for (name, values, width) in bound.written {
            let words = values.words()?;
            let rows = match joint.filter(|_| local.targets.is_none()) {
                Some(joint) => joint.own_rows(&mut rank.recorder, &words, (own, width))?,
                None => words,
            };
            let rows = self.home(rank, local, &rows, width)?;
            attributes.insert(&name, values.like(&rows)?, width);
        }
        Ok(attributes)
    }
}
