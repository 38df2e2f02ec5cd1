//! Labels of the points of all ranks.

#[cfg(feature = "catalogue")]
use super::catalogue::{Catalogue, Members, Selection, catalogue};
use super::error::FofError;
use super::linking::Linking;
use super::links::resolve;
use crate::exchange::Context;
use crate::gpu::{Array, Recorder};
use crate::grid::Cost;
use crate::points::neighbors::Components;
use crate::points::partition::{Decomposition, GlobalIds, Part};
use crate::points::{AnyArray, Cloud};

/// Friends-of-friends groups of the points of all ranks: points are friends that lie within the linking length of each other,
/// and a group is all friends of friends (Davis, Efstathiou, Frenk & White 1985).
///
/// - The label of a group is the least number of a point in it, numbers counting the rows of all ranks' clouds in rank order: it
///   depends neither on the number of ranks nor on the device or the order of anything.
/// - A group may span any number of ranks. Each rank links its own points and copies of those within reach on other ranks, then
///   the ranks tell each other which labels mean the same group.
/// - Attributes of the cloud called `mass` (one `f32` a point), `velocity` (`dims`) and `scale_factor` (one) travel with the points and
///   enter the [`catalogue`](Self::catalogue).
///
/// Exchanges: the sort's, three of the host and two of devices for ghosts, one each for labels of ghosts and for links.
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
    /// Of this rank's points in the order of their numbers.
    labels: Vec<u64>,
    length: f32,
    ghosts: u64,
    cost: Cost,
}

/// The attributes that a catalogue has a use for, and their widths in coordinates and values.
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
    /// Finds the groups of all ranks' points. All ranks call it, each with its own part of the input: any number of points, none
    /// too.
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
        // All ranks find it, before any asks for ghosts.
        if let Some(rank) = points.comm.first_to_differ(length)? {
            return Err(FofError::Differ { rank });
        }
        let components = Components::new(&context.gpu);
        let labels_of = |recorder: &mut Recorder, part: &Part| -> Result<Vec<u64>, FofError> {
            let labels = components.labels(recorder, &part.tree, length)?;
            let labels = recorder.download(&labels, 0, labels.len())?;
            Ok(labels.into_iter().map(|row| part.numbers.of(row)).collect())
        };
        let requests = points.region.as_ref().map_or_else(Vec::new, |region| region.requests(length));
        let Some(joint) = points.joint(context, &requests)? else {
            let labels = labels_of(&mut context.recorder, &points.own)?;
            return Ok(Groups { points, labels, length, ghosts: 0, cost: Cost::default() });
        };
        // Rows ascend with numbers, so the least row of a component has its least number.
        let seen = labels_of(&mut context.recorder, joint.part.as_ref().unwrap_or(&points.own))?;
        let label_of = |number: u64| match joint.part.as_ref().map(|part| &part.numbers) {
            Some(GlobalIds::These(numbers)) => seen[numbers.partition_point(|&other| other < number)],
            _ => number,
        };
        let mut labels: Vec<u64> = match (&joint.part, &points.own.numbers) {
            (Some(_), GlobalIds::These(own)) => own.iter().map(|&number| label_of(number)).collect(),
            _ => seen.clone(),
        };
        // A point here and its copy there are in the same group.
        let theirs = points.of_ghosts(context, &joint.ghosts, &labels)?;
        let links = joint.numbers.iter().zip(theirs).map(|(&number, theirs)| [label_of(number), theirs]);
        let links: Vec<[u64; 2]> = links.filter(|[ours, theirs]| ours != theirs).collect();
        let same = resolve(&points.comm, &links)?;
        labels.iter_mut().for_each(|label| *label = *same.get(label).unwrap_or(label));
        let (ghosts, cost) = (joint.ghosts.len(), joint.ghosts.cost());
        Ok(Groups { points, labels, length, ghosts, cost })
    }

    /// The label of each of this rank's rows of the input, in its order. One exchange of the host. All ranks call it.
    ///
    /// # Errors
    /// [`FofError::Comm`] when another rank fails.
    pub fn labels(&self) -> Result<Vec<u64>, FofError> {
        let GlobalIds::These(numbers) = &self.points.own.numbers else { return Ok(self.labels.clone()) };
        let row_offsets = &self.points.row_offsets;
        // Numbers ascend, so the rows of one rank lie together.
        let place = |first: u64| numbers.partition_point(|&number| number < first);
        let bounds: Vec<usize> = row_offsets.iter().map(|&first| place(first)).chain([numbers.len()]).collect();
        let counts: Vec<u64> = bounds.windows(2).map(|ends| (ends[1] - ends[0]) as u64).collect();
        let rank_of = |number: u64| row_offsets.partition_point(|&first| first <= number) - 1;
        let rows =
            numbers.iter().zip(&self.labels).map(|(&number, &label)| [number - row_offsets[rank_of(number)], label]);
        let rows: Vec<[u64; 2]> = rows.collect();
        let came = self.points.comm.all_to_all_v(&rows, &counts)?;
        let mut labels = vec![0; came.data().len()];
        came.data().iter().for_each(|&[row, label]| labels[row as usize] = label);
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
        let number = match &self.points.own.numbers {
            GlobalIds::These(numbers) => numbers,
            GlobalIds::Rows => {
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

    /// Copies of other ranks' points that this rank fetched.
    pub fn ghosts(&self) -> u64 {
        self.ghosts
    }

    /// What finding ghosts cost this rank between ranks, besides what stands in the exchange.
    pub fn cost(&self) -> Cost {
        self.cost
    }
}
