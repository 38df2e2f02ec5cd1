//! Labels of the points of all ranks, linking lengths, and the device memory of the search.

#[cfg(feature = "catalog")]
use super::catalog::{Catalog, Selection, catalog_of_some};
#[cfg(feature = "catalog")]
use super::device_members::Labelled;
use super::{FofError, links};
#[cfg(feature = "catalog")]
use crate::gpu::Recorder;
use crate::gpu::{Array, pooled};
use crate::grid::Cost;
use crate::points::neighbors::Components;
use crate::points::sort::back_by;
use crate::points::tree::Levels;
use crate::points::{AnyArray, Cloud, Decomposition, Domain, U64Array, upload_u32};
use crate::rank::Rank;
use crate::timeline;

/// Friends-of-friends groups of the points of all ranks: points within the linking length of each
/// other are friends, and a group consists of all friends of friends (Davis, Efstathiou, Frenk &
/// White 1985).
///
/// - The label of a group is the smallest index of its points, where indices count the rows of all
///   ranks' clouds in rank order: it depends neither on the number of ranks nor on the device or
///   any order of execution.
/// - A group may span any number of ranks. Each rank links its own points; then ranks compare nodes
///   of their trees, and points whose distances are close to the linking length, and linked
///   components get their smallest label.
/// - Attributes of the cloud called `mass` (one `f32` per point), `velocity` (`dims`) and
///   `scale_factor` (one) travel with the points and enter the `catalog` (feature `catalog`).
///
/// Exchanges: the sort, and on the host one all-gather, two for each level of the tree and
/// one below, one each for points and links, and five for about each doubling of the number of
/// components in the longest chain of a group.
///
/// ```
/// use meshloom::{Error, Launch, gpu::Options, launch};
/// use meshloom::points::fof::{Groups, Linking, Selection};
/// use meshloom::points::{Cloud, Domain};
///
/// let labels = launch(Launch::Threads(2), &Options::from_env()?, |rank| {
///     let domain = Domain::new(&[10.0, 10.0])?;
///     let points: &[f32] = if rank.index() == 0 { &[9.5, 1.0, 4.0, 4.0] } else { &[7.0, 4.0, 0.5, 1.0] };
///     let cloud = Cloud::from_host(&mut rank.recorder, &domain, points)?;
///     let groups = Groups::find(rank, &cloud, Linking::Length(1.5))?;
///     let catalog = groups.catalog(&mut rank.recorder, &Selection { min_members: 2, ..Selection::default() })?;
///     assert_eq!(catalog.total, 1);
///     Ok::<_, Error>(groups.labels(rank)?)
/// })?;
/// assert_eq!(labels, [[0, 1], [2, 0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Groups {
    points: Decomposition,
    /// Labels of this rank's points, in the order of their global indices.
    labels: U64Array,
    /// The row of each own point's component: that of its first point here.
    #[cfg_attr(not(feature = "catalog"), expect(dead_code, reason = "for catalogs"))]
    roots: Array<u32>,
    /// Rows of components that are linked with those of other ranks.
    #[cfg_attr(not(feature = "catalog"), expect(dead_code, reason = "for catalogs"))]
    spanning: Array<u32>,
    length: f32,
    ghosts: u64,
    cost: Cost,
}

/// The attributes that a catalog uses, and their widths: values per axis and values besides.
const ATTRIBUTES: [(&str, [u64; 2]); 3] = [("mass", [0, 1]), ("velocity", [1, 0]), ("scale_factor", [0, 1])];

/// An attribute as reals, if the cloud has it.
fn attribute<'a>(cloud: &'a Cloud, name: &'static str) -> Result<Option<&'a Array<f32>>, FofError> {
    let Some(attribute) = cloud.attribute(name) else { return Ok(None) };
    let [per_axis, alone] = ATTRIBUTES.iter().find(|(known, _)| *known == name).map_or([0, 1], |(_, widths)| *widths);
    let width = per_axis * cloud.domain().dims() as u64 + alone;
    match attribute.values() {
        AnyArray::F32(values) if attribute.width() == width => Ok(Some(values)),
        // Also on ranks without points, which would wait for the others.
        values => {
            let wanted = width;
            Err(FofError::Attribute { what: name, found: values.element(), width: attribute.width(), wanted })
        }
    }
}

impl Groups {
    /// Finds the groups of all ranks' points. Waits. Collective, each with its own part of
    /// the input: any number of points, also none.
    ///
    /// # Errors
    /// [`FofError`] of the length, of attributes, the device or the ranks.
    pub fn find(rank: &mut Rank, cloud: &Cloud, linking: Linking) -> Result<Self, FofError> {
        let _activity = timeline::activity!("find groups");
        rank.comm.together::<_, FofError>(|| {
            linking.length(cloud.domain(), 1)?;
            ATTRIBUTES.iter().try_for_each(|(name, _)| attribute(cloud, name).map(drop))
        })?;
        let points = Decomposition::new(rank, cloud)?;
        let length = linking.length(cloud.domain(), points.total)?;
        points.comm.agree("friends of friends", &[("linking length", &length)])?;
        let roots = Components::new(&rank.gpu).labels(&mut rank.recorder, &points.own.tree, length)?;
        // Rows ascend with indices, so the least row of a component has its least index.
        let (Some(region), Some(ids)) = (&points.region, &points.own.ids) else {
            let labels = points.own.ids_of(&mut rank.recorder, &roots)?;
            let spanning = rank.gpu.array("fof::spanning", 0)?;
            return Ok(Groups { labels, roots, spanning, length, ghosts: 0, cost: Cost::default(), points });
        };
        let links = links::find(rank, &points, region, &roots, length)?;
        let recorder = &mut rank.recorder;
        let indices_of = |rows: &[u32]| {
            let rows = upload_u32(recorder, rows)?;
            Ok::<_, FofError>(ids.select(recorder, &rows)?.download(recorder)?)
        };
        let (spanning, mut cost) = links::resolve(&points.comm, indices_of, &links.pairs)?;
        cost += links.cost;
        let (rows, least): (Vec<u32>, Vec<u64>) = spanning.into_iter().unzip();
        let (spanning, least) = (upload_u32(recorder, &rows)?, U64Array::upload(recorder, &least, points.total)?);
        let labels = ids.replaced(recorder, &spanning, &least)?.select(recorder, &roots)?;
        Ok(Groups { labels, roots, spanning, length, ghosts: links.ghosts, cost, points })
    }

    /// Returns the label of each of this rank's rows of the input, in its order. Submits and waits;
    /// with several ranks one exchange. Collective.
    ///
    /// # Errors
    /// Errors of the device and the ranks.
    pub fn labels(&self, rank: &mut Rank) -> Result<Vec<u64>, FofError> {
        let labels = self.labels.map(|words| back_by(self.points.route.as_ref(), rank, words, 1))?;
        Ok(labels.download(&mut rank.recorder)?)
    }

    /// Measures the groups and lists their members (feature `catalog`); see
    /// [`catalog`](super::catalog()). Waits for the points. Collective.
    ///
    /// # Errors
    /// Same as [`catalog`](super::catalog()), and errors of the device.
    #[cfg(feature = "catalog")]
    pub fn catalog(&self, recorder: &mut Recorder, selection: &Selection) -> Result<Catalog, FofError> {
        let own = &self.points.own;
        let [mass, velocity, scale_factor] = ATTRIBUTES.map(|(name, _)| attribute(&own.cloud, name));
        let attributes = [mass?, velocity?, scale_factor?];
        let Groups { labels, roots, spanning, .. } = self;
        let labelled = Labelled { points: own, labels, total: self.points.total, roots, spanning, attributes };
        let host = labelled.download(recorder, selection)?;
        catalog_of_some(&self.points.comm, &host.members(own), selection, host.bad)
    }

    /// Returns the linking length in use.
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

    /// Returns what finding ghosts cost this rank between ranks, besides what the exchange counts.
    pub fn cost(&self) -> Cost {
        self.cost
    }
}

/// Bytes of a point's place and velocity, in three dimensions.
const POINT: u64 = 24;

/// Bytes a point of the tree's own places and of its order.
const TREE: u64 = 16;

/// Bytes a point of what lives for a while beside points and tree: the build sorts keys (16 and up
/// to 3 for tables), and a catalog counts, marks and numbers the members of components, of which
/// it then sorts those that it keeps: half of the points, as is usual for groups today.
const WORK: u64 = 20;

/// Returns the bytes of device memory that finding groups of `points` points with velocities on a
/// rank, in three dimensions, and their catalog take at one time, the cloud included; `total` are
/// those of all ranks. Where there are others, a rank has the cloud that it gave and the points
/// that it got, the way between them, and the indices and labels of what it got; copies of other
/// ranks' points near its own come on top.
#[must_use]
pub fn device_memory(points: u64, total: u64) -> u64 {
    let each = |bytes: u64| pooled(bytes * points);
    let alone = each(POINT) + each(TREE) + each(WORK) + pooled(32 * Levels::new(points).total());
    if points == total {
        return alone;
    }
    let index = if total <= u64::from(u32::MAX) { 4 } else { 8 };
    alone + each(POINT) + each(4) + 2 * each(index)
}

/// The linking length: absolute, or in units of the mean separation.
///
/// ```
/// use meshloom::points::fof::Linking;
/// use meshloom::points::Domain;
///
/// let domain = Domain::new(&[10.0, 10.0, 10.0])?;
/// assert_eq!(Linking::Separations(0.2).length(&domain, 1000)?, 0.2);
/// assert_eq!(Linking::Length(0.5).length(&domain, 1000)?, 0.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Linking {
    /// A length, in the units of the coordinates: 0 or more.
    Length(f64),
    /// The linking parameter b: a length in units of the mean separation `(V / N)^(1 / dims)`,
    /// which needs all axes to be periodic.
    Separations(f64),
}

impl Linking {
    /// Returns the length among `total` points, rounded to `f32`: points up to that distance,
    /// inclusive, are linked.
    ///
    /// # Errors
    /// [`FofError::Length`] unless it is a number from 0 on, [`FofError::Volume`] for separations
    /// where an axis is open.
    pub fn length(&self, domain: &Domain, total: u64) -> Result<f32, FofError> {
        let (Linking::Length(value) | Linking::Separations(value)) = *self;
        if value.is_nan() || value < 0.0 {
            return Err(FofError::Length { value });
        }
        let Linking::Separations(parameter) = *self else { return Ok(value as f32) };
        let sides = (0..domain.dims()).map(|axis| domain.side(axis).map(f64::from));
        let Some(volume) = sides.product::<Option<f64>>() else { return Err(FofError::Volume) };
        Ok((parameter * (volume / total.max(1) as f64).powf(1.0 / domain.dims() as f64)) as f32)
    }
}
