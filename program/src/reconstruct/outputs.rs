//! The files of a reconstruction.

use std::ops::Range;
use std::path::{Path, PathBuf};

use meshloom::Rank;
use meshloom::comm::{CommError, Communicator};
use meshloom::grid::{Box3, extent};
use meshloom::host_memory;
use meshloom::inference::{IterationReport, SampleGroups};
use meshloom::io::collective::{self, seal_npy};
use meshloom::io::{Column, IoError, NpyFile, Sealed, csv_text, seal_whole};
use meshloom::mesh::Bin;
use meshloom::operators::Vector;
use meshloom::{Error, Mesh};
use meshloom_program::plots::{Blocks, ColorScale, MapFigure};
use serde_json::Value;

use super::spectra::Agreement;
use crate::described;
use crate::projection;

/// All files that a reconstruction may write, without the state; the description comes last.
pub const FILES: [&str; 10] = [
    "white_noise.npy",
    "white_noise_std.npy",
    "samples.npy",
    "density.npy",
    "density_std.npy",
    "density.png",
    "power_spectrum.csv",
    "cross_correlation.csv",
    "iterations.csv",
    described::DESCRIPTION,
];

/// First elements of this rank's rows of a cube of `n` cells, and how long a row is.
fn rows(own: &Box3, [_, n1, n2]: [u64; 3]) -> impl Iterator<Item = u64> {
    let [i, j, _] = own.clone();
    i.flat_map(move |i| j.clone().map(move |j| (i * n1 + j) * n2))
}

/// This rank's cells of an array that has the shape of `mesh`.
///
/// # Errors
/// [`IoError`] for another shape, or a value that is not finite.
pub fn read_cells(file: &NpyFile, mesh: &Mesh) -> Result<Vec<f32>, IoError> {
    file.expect_shape(&mesh.shape())?;
    let count = rows(mesh.own(), mesh.shape()).count() * mesh.shape()[2] as usize;
    let mut values = host_memory::reserve("cells", count)?;
    for row in rows(mesh.own(), mesh.shape()) {
        values.extend(file.read_finite_f32(row..row + mesh.shape()[2])?);
    }
    Ok(values)
}

/// A number of the values of all ranks of `comm` and of their places, whichever rank has which.
/// Collective.
pub fn fingerprint(comm: &Communicator, mesh: &Mesh, values: &[f32]) -> Result<u64, CommError> {
    collective::fingerprint(comm, rows(mesh.own(), mesh.shape()), mesh.shape()[2], &[values])
}

/// Returns this rank's numbers of the only leaf of a field. Waits for the device.
pub fn cells_of(rank: &mut Rank, field: &Vector) -> Result<Vec<f32>, Error> {
    let name = field.space().names().next().unwrap_or_default();
    let array = field.array(name)?;
    Ok(rank.recorder.download(array, 0, array.len())?)
}

/// The output directory, and all ranks of all groups.
pub struct Outputs<'a> {
    pub directory: &'a Path,
    pub all: Communicator,
}

impl Outputs<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a field of the cells of `mesh`, which each group has whole: the first one writes.
    /// Collective.
    pub fn cells(&self, name: &str, groups: &SampleGroups, mesh: &Mesh, field: &[f32]) -> Result<Sealed, Error> {
        seal_npy(&self.all, &self.path(name), &mesh.shape(), |writer| {
            let own = mesh.own();
            let lines = rows(own, mesh.shape()).zip(field.chunks(mesh.shape()[2] as usize));
            for (row, values) in lines.filter(|_| groups.index() == 0) {
                writer.write(row, values)?;
            }
            Ok::<_, Error>(())
        })
    }

    /// Writes `count` fields, one after the other as the first axis: those of its `own` numbers
    /// each group makes by `field` as it writes. Collective.
    pub fn many_cells(
        &self,
        name: &str,
        mesh: &Mesh,
        (count, own): (usize, Range<usize>),
        mut field: impl FnMut(usize) -> Result<Vec<f32>, Error>,
    ) -> Result<Sealed, Error> {
        let [n0, n1, n2] = mesh.shape();
        seal_npy(&self.all, &self.path(name), &[count as u64, n0, n1, n2], |writer| {
            for number in own {
                let first = number as u64 * n0 * n1 * n2;
                for (row, values) in rows(mesh.own(), mesh.shape()).zip(field(number)?.chunks(n2 as usize)) {
                    writer.write(first + row, values)?;
                }
            }
            Ok::<_, Error>(())
        })
    }

    /// Draws densities side by side, each projected along the last axis and with its name.
    /// Collective.
    pub fn picture(
        &self,
        group: &Communicator,
        mesh: &Mesh,
        fields: &[(&str, &[f32])],
    ) -> Result<Option<Sealed>, Error> {
        let [side, _, _] = mesh.shape();
        let blocks = Blocks::new([side; 2], MapFigure::most_cells(fields.len()));
        let depth = (extent(mesh.own())[2] as usize).max(1);
        let mean = |cells: &[f32]| (cells.iter().map(|&c| f64::from(c)).sum::<f64>() / side as f64) as f32;
        let mut maps = Vec::new();
        for (_, field) in fields {
            let columns = host_memory::collect("a picture", field.chunks(depth).map(mean))?;
            maps.extend(projection::gather(group, &mesh.grid(), side, blocks, &columns)?);
        }
        if self.all.rank() != 0 {
            return Ok(None);
        }
        // A noisy density may be negative where there is little.
        let colors = ColorScale::logarithmic(&maps.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        let named = fields.iter().zip(&maps);
        let panels = named.map(|((name, _), map)| projection::panel(name, map, blocks, mesh.size()[0], &colors));
        let mut panels: Vec<_> = panels.collect();
        if let Some((_, others)) = panels.split_last_mut() {
            others.iter_mut().for_each(|panel| panel.color_label = None);
        }
        let path = self.path("density.png");
        let picture = MapFigure { title: "Projected density", panels: &panels }.draw(&path)?;
        Ok(Some(seal_whole(&path, &picture.png_bytes(&path)?)?))
    }

    fn table(&self, name: &str, columns: &[(&str, Column<'_>)]) -> Result<Option<Sealed>, Error> {
        if self.all.rank() != 0 {
            return Ok(None);
        }
        let path = self.path(name);
        Ok(Some(seal_whole(&path, csv_text(&path, columns)?.as_bytes())?))
    }

    /// Writes the power of the density that was found beside that of the data, of their noise, and
    /// the linear one.
    pub fn spectrum(&self, [found, data]: [&[Bin]; 2], noise: f64, linear: &[f64]) -> Result<Option<Sealed>, Error> {
        let k: Vec<f64> = found.iter().map(|bin| bin.k).collect();
        let [power, of_data] = [found, data].map(|bins| bins.iter().map(|bin| bin.power).collect::<Vec<f64>>());
        let modes: Vec<u64> = found.iter().map(|bin| bin.modes).collect();
        let noise = vec![noise; k.len()];
        self.table(
            "power_spectrum.csv",
            &[
                ("k", Column::F64(&k)),
                ("P", Column::F64(&power)),
                ("P_data", Column::F64(&of_data)),
                ("P_noise", Column::F64(&noise)),
                ("modes", Column::U64(&modes)),
                ("P_linear", Column::F64(linear)),
            ],
        )
    }

    /// Writes how noise and density agree with the truth, by wavenumber, and `bound`, what a Wiener
    /// filter of the density reaches. Beyond what a coarser one of the two has, the column is 0.
    pub fn agreement(&self, noise: &Agreement, density: &Agreement, bound: Vec<f64>) -> Result<Option<Sealed>, Error> {
        let bins = noise.cross.len().max(density.cross.len());
        let longer = if noise.cross.len() == bins { noise } else { density };
        let k: Vec<f64> = longer.power[0].iter().map(|bin| bin.k).collect();
        let padded = |mut values: Vec<f64>| {
            values.resize(bins, 0.0);
            values
        };
        let [of_noise, of_density] = [noise, density].map(|one| padded(one.correlation()));
        let bound = padded(bound);
        let transfer = |one: &Agreement| {
            let ratio = |(a, b): (&Bin, &Bin)| if b.power > 0.0 { (a.power / b.power).sqrt() } else { 0.0 };
            padded(one.power[0].iter().zip(&one.power[1]).map(ratio).collect())
        };
        let [noise_transfer, density_transfer] = [noise, density].map(transfer);
        self.table(
            "cross_correlation.csv",
            &[
                ("k", Column::F64(&k)),
                ("r_white_noise", Column::F64(&of_noise)),
                ("r_density", Column::F64(&of_density)),
                ("r_wiener", Column::F64(&bound)),
                ("transfer_white_noise", Column::F64(&noise_transfer)),
                ("transfer_density", Column::F64(&density_transfer)),
            ],
        )
    }

    /// Writes a line for each iteration: those on the way to the most probable place by falling
    /// temperature, then means of samples.
    pub fn iterations(
        &self,
        history: &[IterationReport],
        temperature: impl Fn(u32) -> f64,
    ) -> Result<Option<Sealed>, Error> {
        let of = |value: &dyn Fn(&IterationReport) -> f64| history.iter().map(value).collect::<Vec<f64>>();
        let count = |value: &dyn Fn(&IterationReport) -> u64| history.iter().map(value).collect::<Vec<u64>>();
        let (energy, chi) = (of(&|it| it.energy), of(&|it| it.chi_squared[0].unwrap_or(f64::NAN)));
        let (numbers, samples) = (count(&|it| it.iteration.into()), count(&|it| it.samples as u64));
        let (metrics, steps) = (count(&|it| it.applications), count(&|it| it.steps));
        let (sample_steps, unconverged) = (count(&|it| it.sampling.steps), count(&|it| it.sampling.unconverged));
        let error_ratio = of(&|it| it.sampling.error_ratio);
        let (failed, limited) = (count(&|it| it.sampling.failed), count(&|it| it.sampling.limited));
        let temperature = of(&|it| temperature(it.iteration));
        self.table(
            "iterations.csv",
            &[
                ("iteration", Column::U64(&numbers)),
                ("temperature", Column::F64(&temperature)),
                ("energy", Column::F64(&energy)),
                ("reduced_chi_squared", Column::F64(&chi)),
                ("cg_steps", Column::U64(&metrics)),
                ("newton_steps", Column::U64(&steps)),
                ("samples", Column::U64(&samples)),
                ("sample_cg_steps", Column::U64(&sample_steps)),
                ("unconverged_samples", Column::U64(&unconverged)),
                ("sample_error_ratio", Column::F64(&error_ratio)),
                ("failed_samples", Column::U64(&failed)),
                ("limited_samples", Column::U64(&limited)),
            ],
        )
    }

    /// Gives all files their names, and the description last. What an older reconstruction has left
    /// and this one does not write is removed before; in a directory without its description
    /// nothing is. Collective.
    pub fn publish(&self, report: &Value, files: Vec<Sealed>) -> Result<(), Error> {
        let path = self.path(described::DESCRIPTION);
        described::publish(&self.all, &path, report, files, |unfinished| {
            let older = described::read(&path).ok().flatten();
            if unfinished || older.is_some_and(|older| older["command"] == "reconstruct") {
                FILES.iter().rev().try_for_each(|name| described::remove(&self.path(name)))?;
            }
            described::remove(&path)
        })
    }
}
