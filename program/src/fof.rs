//! `meshloom fof`: friends-of-friends groups of points.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use meshloom::comm::Op;
use meshloom::cosmology::Overdensity;
use meshloom::io::collective::seal_npy;
use meshloom::io::{IoError, is_hdf5_name, printable_path};
use meshloom::points::fof::{Catalog, Groups, Linking, Order, Selection};
use meshloom::points::{BoxUse, Cloud, Domain};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use crate::catalog::{self, About};
use crate::checked::length;
use crate::checked_files::{check_files, writable};
use crate::common::{Common, shares_value};
use crate::failure::{Ended, Failure};
use crate::output_name::check_name;
use crate::particle_type::ParticleType;
use crate::phases::Phases;
use crate::point_values::PointValues;
use crate::points::{PointFile, Sides, sides};
use crate::spheres::{self, Spheres};
use crate::terminal;

#[derive(Args)]
#[command(group = ArgGroup::new("linking").required(true), mut_arg("grid", |grid| grid.hide(true)))]
pub struct Arguments {
    /// Points: shape (N, 3) or (N, 2), f32 or f64, or a snapshot in HDF5, or the centers of a
    /// catalog of groups
    #[arg(value_name = "POINTS.npy")]
    points: PathBuf,
    /// Points up to this distance from each other are friends, in the unit of the points
    #[arg(long, value_name = "L", group = "linking", value_parser = length, allow_hyphen_values = true)]
    linking_length: Option<f64>,
    /// Linking length in units of the mean separation (V / N)^(1 / axes), which needs a box
    #[arg(long, value_name = "B", group = "linking", value_parser = length, allow_hyphen_values = true)]
    linking_parameter: Option<f64>,
    /// The catalog to write, one row per group; with a name in .hdf5 or .h5 in HDF5
    #[arg(short, long, value_name = "CATALOG.npz|CATALOG.hdf5")]
    output: PathBuf,
    /// File for int64 labels: for every point the smallest index in its group
    #[arg(long, value_name = "LABELS.npy")]
    labels: Option<PathBuf>,
    /// Sides of the periodic box; 0 or open leaves an axis open [default: a snapshot's own, else
    /// all open]
    #[arg(long = "box", value_name = "L|LX,LY,LZ", allow_hyphen_values = true)]
    size: Option<Sides>,
    /// Smaller groups are left out
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..))]
    min_members: u64,
    /// Masses: shape (N), or a snapshot that has some [default: 1 each]
    #[arg(long, value_name = "M.npy")]
    masses: Option<PathBuf>,
    /// Velocities: shape (N, 3) or (N, 2), or a snapshot that has some, which become peculiar if it
    /// says how they scale with a
    #[arg(long, value_name = "V.npy")]
    velocities: Option<PathBuf>,
    /// Scale factors of the points of a light cone: shape (N), or the light cone itself, as
    /// simulate writes it
    #[arg(long, value_name = "A.npy")]
    scale_factors: Option<PathBuf>,
    /// Position of the observer of radial velocities
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',', requires = "velocities", allow_hyphen_values = true)]
    observer: Option<Vec<f64>>,
    /// Masses and radii of spheres about the groups' centers with a multiple of the mean density of
    /// the box (200m), counting all points; of a snapshot that says its cosmology also as the
    /// critical density (500c), or vir
    #[arg(long, value_name = "200m,..", value_delimiter = ',', conflicts_with = "masses")]
    overdensity: Vec<String>,
    /// Order of the groups: most members first, heaviest first, or by label
    #[arg(long, value_enum, default_value_t = By::Count)]
    order: By,
    #[command(flatten)]
    particles: ParticleType,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    Count,
    Mass,
    Label,
}

impl Arguments {
    fn linking(&self) -> Linking {
        match (self.linking_length, self.linking_parameter) {
            (Some(length), _) => Linking::Length(length),
            (None, parameter) => Linking::Separations(parameter.unwrap_or(0.0)),
        }
    }

    fn box_use(&self) -> BoxUse {
        let is_absolute = self.linking_parameter.is_none() && self.overdensity.is_empty();
        if is_absolute { BoxUse::Images } else { BoxUse::Volume }
    }

    /// Attributes that were given: the name, whether it has a value for each axis, and the file.
    fn attributes(&self) -> impl Iterator<Item = (&'static str, bool, &Path)> + Clone {
        let given = [
            ("mass", false, &self.masses),
            ("velocity", true, &self.velocities),
            ("scale_factor", false, &self.scale_factors),
        ];
        given.into_iter().filter_map(|(name, per_axis, path)| Some((name, per_axis, path.as_deref()?)))
    }

    /// Returns the selection of groups among points in a domain.
    fn selection(&self, domain: &Domain) -> Result<Selection, Failure> {
        let open = (0..domain.dims()).any(|axis| domain.side(axis).is_none());
        if self.linking_parameter.is_some() && open {
            return Err(Failure::Usage(
                "--linking-parameter is in units of the mean separation, which needs a box: give --box a side for every axis, \
                 or an absolute --linking-length"
                    .into(),
            ));
        }
        let observer = match &self.observer {
            None => None,
            Some(at) if at.len() == domain.dims() && at.iter().all(|x| x.is_finite()) => {
                Some([at[0], at[1], at.get(2).copied().unwrap_or(0.0)])
            }
            Some(_) => {
                let axes = domain.dims();
                return Err(Failure::Usage(format!("--observer must have {axes} finite coordinates, one per axis")));
            }
        };
        let order = match self.order {
            By::Count => Order::Count,
            By::Mass => Order::Mass,
            By::Label => Order::Label,
        };
        Ok(Selection { min_members: self.min_members, order, observer })
    }
}

/// The input files, opened.
struct Inputs {
    points: PointFile,
    domain: Domain,
    selection: Selection,
    box_use: BoxUse,
    /// Spherical overdensities, each with what it is of the points' mean density.
    overdensities: Vec<(Overdensity, f64)>,
    /// Names of attributes, with their files.
    attributes: Vec<(&'static str, PointValues)>,
}

impl Inputs {
    fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let points = PointFile::open(&arguments.points, arguments.particles)?;
        let mut attributes = Vec::new();
        for (name, per_axis, path) in arguments.attributes() {
            let shape = [points.count(), points.dims() as u64];
            let shape = if per_axis { &shape[..] } else { &shape[..1] };
            attributes.push((name, PointValues::open(path, arguments.particles, name, shape)?));
        }
        let densities = spheres::overdensities(&arguments.overdensity).map_err(Failure::Usage)?;
        let asked = densities.iter().any(|density| !matches!(density, Overdensity::Mean(_)));
        let universe = if asked { points.file.universe()? } else { None };
        let domain = points.domain(arguments.size.as_ref())?;
        let selection = arguments.selection(&domain)?;
        let overdensities = spheres::in_box(densities, &domain, universe).map_err(Failure::Usage)?;
        Ok(Inputs { points, domain, selection, box_use: arguments.box_use(), overdensities, attributes })
    }

    /// Returns the file of velocities.
    fn velocity_file(&self) -> Option<&PointValues> {
        self.attributes.iter().find(|(name, _)| *name == "velocity").map(|(_, file)| file)
    }

    /// Returns the kind of velocities: those of the file, or peculiar ones of a snapshot.
    fn velocities(&self) -> Option<&'static str> {
        self.velocity_file().map(PointValues::velocity_words)
    }

    /// Returns `true` if velocities are peculiar and in km/s, as the file says it.
    fn peculiar_km_s(&self) -> bool {
        self.velocity_file().is_some_and(PointValues::is_peculiar_km_s)
    }

    /// Returns this rank's points with their attributes. Collective.
    fn read(&self, rank: &mut Rank) -> Result<Cloud, Error> {
        let rows = self.points.rows(&rank.comm);
        let mut cloud = self.points.read(rank, &self.domain, self.box_use)?;
        for (name, file) in &self.attributes {
            let values = file.read(&rank.comm, rows.clone())?;
            let array = rank.gpu.array::<f32>(name, values.len() as u64)?;
            rank.recorder.upload(&array, 0, &values)?;
            cloud.set(name, array, file.width())?;
        }
        Ok(cloud)
    }

    /// Spheres about the centers of groups, of points of mass 1. Collective.
    fn spheres(&self, rank: &mut Rank, cloud: &Cloud, groups: &Catalog) -> Result<Vec<Spheres>, Error> {
        let volume: f64 = (0..self.domain.dims()).filter_map(|axis| self.domain.side(axis)).map(f64::from).product();
        let mean = self.points.count() as f64 / volume;
        if self.points.count() == 0 {
            // No density is above 0 then, so no groups exist.
            return Ok(self.overdensities.iter().map(|&(density, _)| Spheres::none(density)).collect());
        }
        let wanted: Vec<_> = self.overdensities.iter().map(|&(density, times)| (density, times * mean)).collect();
        Spheres::measure(rank, cloud, groups, &wanted, 1.0)
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let inputs = [arguments.points.as_path()].into_iter().chain(arguments.attributes().map(|(_, _, path)| path));
    let outputs = [Some(arguments.output.as_path()), arguments.labels.as_deref()];
    let files = check_files(inputs.clone(), outputs.into_iter().flatten())?;
    check_name(&arguments.output, &["npz", "hdf5", "h5"])?;
    arguments.labels.as_deref().map_or(Ok(()), |labels| check_name(labels, &["npy"]))?;
    arguments.particles.check(inputs)?;
    if cfg!(not(feature = "hdf5")) && is_hdf5_name(&arguments.output) {
        return Err(Failure::Usage(format!("--output: {}; or name an .npz", IoError::no_hdf5(&arguments.output))));
    }
    arguments.common.refuse_grid()?;
    let report = arguments.common.launch(&files, |rank| fof(rank, arguments))?;
    arguments.common.print(report)
}

/// Warns if the file of velocities holds the canonical momenta of a simulation, as the description
/// beside it says: dispersions are 100 times smaller than in km/s then, at a = 1.
fn warn_of_momenta(path: &Path) {
    let description = path.with_file_name("run.json");
    let text = std::fs::metadata(&description)
        .ok()
        .filter(|about| about.is_file() && about.len() <= 1 << 20 && path.ends_with("velocities.npy"))
        .and_then(|_| std::fs::read_to_string(&description).ok());
    let about: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    if about.is_some_and(|about| about["command"] == "simulate" && about["velocities"]["kind"] == "canonical") {
        terminal::warn(&format!(
            "{}: these are canonical momenta a^2 dx/dt in 100 km/s, and so is the motion of the groups; run simulate \
             with --velocities peculiar for km/s",
            printable_path(path)
        ));
    }
}

/// One rank's work.
fn fof(rank: &mut Rank, arguments: &Arguments) -> Result<Value, Ended> {
    let comm = &rank.comm.clone();
    let mut phases = Phases::new(arguments.common.progress(comm.rank(), 4, "fof"));
    let files = comm.together(|| {
        let outputs = [Some(&arguments.output), arguments.labels.as_ref()];
        let inputs = Inputs::open(arguments)?;
        outputs.into_iter().flatten().try_for_each(|path| writable(comm, path))?;
        Ok::<_, Failure>(inputs)
    })?;
    if comm.rank() == 0 {
        arguments.velocities.iter().for_each(|path| warn_of_momenta(path));
    }
    let cloud = files.read(rank)?;
    phases.done("read");
    let groups = Groups::find(rank, &cloud, arguments.linking())?;
    phases.done("link");
    let catalog = groups.catalog(&mut rank.recorder, &files.selection)?;
    let spheres = files.spheres(rank, &cloud, &catalog)?;
    drop(cloud);
    let more: Vec<_> = spheres.iter().flat_map(Spheres::columns).collect();
    phases.done("measure");
    // All files are published at the end: a disk that fills up leaves none.
    let mut sealed = vec![if is_hdf5_name(&arguments.output) {
        let ids = files.points.ids(comm, &catalog.members)?;
        let about = About {
            space: files.points.file.space()?,
            domain: &files.domain,
            linking_length: groups.length(),
            min_members: arguments.min_members,
            km_s: files.peculiar_km_s(),
        };
        catalog::seal_hdf5(comm, &arguments.output, &catalog, (&more, ids.as_deref()), &about)?
    } else {
        catalog::seal(comm, &arguments.output, &catalog, &more)?
    }];
    if let Some(path) = &arguments.labels {
        let labels = groups.labels(rank)?;
        let first = files.points.rows(comm).start;
        sealed.push(seal_npy(comm, path, &[files.points.count()], |to| {
            Ok::<_, Error>(to.write(first, bytemuck::cast_slice::<u64, i64>(&labels))?)
        })?);
    }
    comm.together(|| Ok::<_, Error>(sealed.into_iter().try_for_each(|file| file.publish())?))?;
    phases.done("write");
    let mut cost = rank.exchange.cost();
    cost += groups.cost();
    let mut sums = [cost.sent_bytes, cost.messages, groups.ghosts()];
    comm.all_reduce(&mut sums, Op::Sum)?;
    Ok(json!({
        "command": "fof",
        "input": files.points.file.report(),
        "output": arguments.output.display().to_string(),
        "labels": arguments.labels.as_ref().map(|path| path.display().to_string()),
        "box": sides(&files.domain),
        "points": files.points.count(),
        "linking_length": groups.length(),
        "min_members": arguments.min_members,
        "velocities": files.velocities(),
        "overdensities": files.overdensities.iter().map(|(density, _)| density.to_string()).collect::<Vec<_>>(),
        "groups": catalog.total,
        "members": catalog.members_total,
        "ghosts": sums[2],
        "device": rank.gpu.info().name,
        "ranks": comm.size(), "shares": shares_value(comm.shares()),
        "host_seconds": phases.host_seconds(comm)?,
        "seconds": phases.finish(),
        "bytes": { "device": null, "between_ranks": sums[0] },
        "messages": sums[1],
    }))
}
