//! Labels of the points of all ranks.

#[cfg(feature = "catalogue")]
use super::catalogue::{Catalogue, Members, Selection, catalogue};
use super::error::FofError;
use super::linking::Linking;
use super::{links, resolve::resolve};
use crate::exchange::Context;
use crate::gpu::{Array, Recorder};
use crate::grid::Cost;
use crate::points::neighbors::Components;
use crate::points::partition::{Decomposition, GlobalIds};
use crate::points::{AnyArray, Cloud};

/// Friends-of-friends groups of the points of all ranks: points are friends that lie within the linking length of each other,
/// and a group is all friends of friends (Davis, Efstathiou, Frenk & White 1985).
///
/// - The label of a group is the least index of a point in it, indices counting the rows of all ranks' clouds in rank order: it
///   depends neither on the number of ranks nor on the device or the order of anything.
/// - A group may span any number of ranks. Each rank links its own points; then ranks compare nodes of their trees, and those points
///   that are about the linking length from others, and the components that are found to be linked get the least label of any.
/// - Attributes of the cloud called `mass` (one `f32` per point), `velocity` (`dims`) and `scale_factor` (one) travel with the points and
///   enter the [`catalogue`](Self::catalogue).
///
/// Exchanges: those of the sort, and of the host one all-gather, two for each level of the tree, one for points, one for links and five
/// for each doubling of the number of ranks that a group spans in a row.
///
/// ```
/// use meshloom::{Error, Launch, gpu::Options, launch};
/// use meshloom::points::fof::{Groups, Linking, Selection};
/// use meshloom::points::{Cloud, Domain};
///
/// let labels = launch(Launch::Threads(2), &Options::from_env()?, |mut context| {
///     let domain = Domain::new(&[10.0, 10.0])?;
///     let points: &[f32] = if context.comm.rank() == 0 { &[9.5, 1.0, 4.0, 4.0] } else { &[7.0, 4.0, 0.5, 1.0] };
///     let cloud = Cloud::from_host(&mut context.recorder, &domain, points)?;
///     let groups = Groups::find(&mut context, &cloud, Linking::Length(1.5))?;
///     let catalogue = groups.catalogue(&mut context.recorder, &Selection { min_members: 2, ..Selection::default() })?;
///     assert_eq!(catalogue.total, 1);
///     Ok::<_, Error>(groups.labels()?)
/// })?;
/// assert_eq!(labels, [[0, 1], [2, 0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Groups {
    points: Decomposition,
    /// Of this rank's points in the order of their global indices.
    labels: Vec<u64>,
    length: f32,
    ghosts: u64,
    cost: Cost,
}

/// The attributes that a catalogue uses, and their widths: values per axis and values besides.
const ATTRIBUTES: [(&str, [u64; 2]); 3] = [("mass", [0, 1]), ("velocity", [1, 0]), ("scale_factor", [0, 1])];

/// An attribute as reals, if the cloud has it.
fn attribute<'a>(cloud: &'a Cloud, name: &'static str) -> Result<Option<&'a Array<f32>>, FofError> {
    let Some(attribute) = cloud.attribute(name) else { return Ok(None) };
    let [per_axis, alone] = ATTRIBUTES.iter().find(|(known, _)| *known == name).map_or([0, 1], |(_, widths)| *widths);
    let want = cloud.len() * (per_axis * cloud.domain().dims() as u64 + alone);
    match attribute.values() {
        AnyArray::F32(values) if values.len() == want => Ok(Some(values)),
        values => Err(FofError::WrongLength { what: name, have: values.len(), want }),
    }
}

impl Groups {
    /// Finds the groups of all ranks' points. Waits. All ranks call it, each with its own part of the input: any number of points, also
    /// none.
    ///
    /// # Errors
    /// [`FofError`] of the length, of attributes, the device or the ranks.
    pub fn find(context: &mut Context, cloud: &Cloud, linking: Linking) -> Result<Self, FofError> {
        linking.length(cloud.domain(), 1)?;
        for (name, _) in ATTRIBUTES {
            attribute(cloud, name)?;
        }
        let points = Decomposition::new(context, cloud)?;
        let length = linking.length(cloud.domain(), points.total)?;
        // All ranks find it, before any requests ghosts.
        if let Some(rank) = points.comm.first_to_differ(length)? {
            return Err(FofError::Differ { rank });
        }
        let own = &points.own;
        let found = Components::new(&context.gpu).labels(&mut context.recorder, &own.tree, length)?;
        // Rows ascend with indices, so the least row of a component has its least index.
        let roots = context.recorder.download(&found, 0, found.len())?;
        let mut groups = Groups { labels: Vec::new(), length, ghosts: 0, cost: Cost::default(), points };
        let own = &groups.points.own;
        let mut least: Vec<u64> = (0..own.cloud.len() as u32).map(|row| own.ids.of(row)).collect();
        if let Some(region) = &groups.points.region {
            let links = links::find(context, &groups.points, region, &roots, length)?;
            let (spanning, cost) = resolve(&groups.points.comm, |row| own.ids.of(row), &links.pairs)?;
            spanning.into_iter().for_each(|(row, label)| least[row as usize] = label);
            (groups.ghosts, groups.cost) = (links.ghosts, links.cost);
            groups.cost += cost;
        }
        groups.labels = roots.into_iter().map(|row| least[row as usize]).collect();
        Ok(groups)
    }

    /// The label of each of this rank's rows of the input, in its order. One exchange of the host. All ranks call it.
    ///
    /// # Errors
    /// [`FofError::Comm`] when another rank fails.
    pub fn labels(&self) -> Result<Vec<u64>, FofError> {
        let GlobalIds::List(ids) = &self.points.own.ids else { return Ok(self.labels.clone()) };
        let row_offsets = &self.points.row_offsets;
        // Indices ascend, so the rows of one rank lie together.
        let place = |first: u64| ids.partition_point(|&id| id < first);
        let bounds: Vec<usize> = row_offsets.iter().map(|&first| place(first)).chain([ids.len()]).collect();
        let counts: Vec<u64> = bounds.windows(2).map(|ends| (ends[1] - ends[0]) as u64).collect();
        let rank_of = |id: u64| row_offsets.partition_point(|&first| first <= id) - 1;
        let rows = ids.iter().zip(&self.labels).map(|(&id, &label)| [id - row_offsets[rank_of(id)], label]);
        let rows: Vec<[u64; 2]> = rows.collect();
        let received = self.points.comm.all_to_all_v(&rows, &counts)?;
        let mut labels = vec![0; received.data().len()];
        received.data().iter().for_each(|&[row, label]| labels[row as usize] = label);
        Ok(labels)
    }

    /// Measures the groups and lists their members (feature `catalogue`); see [`catalogue`](super::catalogue()). Waits for the points. All ranks call
    /// it.
    ///
    /// # Errors
    /// As [`catalogue`](super::catalogue()), and those of the device.
    #[cfg(feature = "catalogue")]
    pub fn catalogue(&self, recorder: &mut Recorder, selection: &Selection) -> Result<Catalogue, FofError> {
        let cloud = &self.points.own.cloud;
        let mut host = |array: &Array<f32>| recorder.download(array, 0, array.len());
        let position = host(cloud.positions())?;
        let [mass, velocity, scale_factor] = ["mass", "velocity", "scale_factor"]
            .map(|name| Ok::<_, FofError>(attribute(cloud, name)?.map(&mut host).transpose()?));
        let (mass, velocity, scale_factor) = (mass?, velocity?, scale_factor?);
        let rows;
        let number = match &self.points.own.ids {
            GlobalIds::List(ids) => ids,
            GlobalIds::Identity => {
                rows = (0..cloud.len()).collect();
                &rows
            }
        };
        let members = Members {
            domain: cloud.domain(),
            number,
            label: &self.labels,
            position: &position,
            mass: mass.as_deref(),
            velocity: velocity.as_deref(),
            scale_factor: scale_factor.as_deref(),
        };
        catalogue(&self.points.comm, &members, selection)
    }

    /// The linking length as it was used.
    pub fn length(&self) -> f32 {
        self.length
    }

    /// Points of all ranks.
    pub fn total(&self) -> u64 {
        self.points.total
    }

    /// Copies of other ranks' points that this rank got to compare with its own.
    pub fn ghosts(&self) -> u64 {
        self.ghosts
    }

    /// What finding ghosts cost this rank between ranks, besides what the exchange counts.
    pub fn cost(&self) -> Cost {
        self.cost
    }
}
