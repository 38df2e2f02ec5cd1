//! The members of groups as a catalog takes them, selected and sorted on the device.

use super::FofError;
use super::catalog::{Bad, Members, Selection};
use crate::gpu::primitives::{Count, Permute, Scan};
use crate::gpu::{Array, CountParams, DeviceError, Kernel, KernelSource, Recorder};
use crate::host_memory;
use crate::points::{LocalPoints, U64Array, upload_u32};

/// Points with their labels on a device.
pub(super) struct Labelled<'a> {
    pub points: &'a LocalPoints,
    /// One label per point, each less than `total`.
    pub labels: &'a U64Array,
    pub total: u64,
    /// The row of each point's component: that of its first point here.
    pub roots: &'a Array<u32>,
    /// Rows of components whose groups have points on other ranks.
    pub spanning: &'a Array<u32>,
    /// Masses, velocities and scale factors, where there are any.
    pub attributes: [Option<&'a Array<f32>>; 3],
}

/// Members of groups on the host: groups ascend by label, members of each by index.
pub(super) struct HostMembers {
    number: Vec<u64>,
    label: Vec<u64>,
    position: Vec<f32>,
    attributes: [Option<Vec<f32>>; 3],
    /// The first bad value of all points, also of those that are left out.
    pub bad: Bad,
}

crate::gpu::kernel_params! {
    struct KeepParams {
        count: u32,
        least: u32,
    }
}

crate::gpu::kernel_params! {
    struct BadParams {
        count: u32,
        negative: u32,
    }
}

/// Returns the kernels: sizes of groups, members to keep, their rows, and the first bad value.
pub(super) fn kernels() -> [KernelSource; 4] {
    [
        KernelSource::new("fof::count", include_str!("../../../shaders/points/fof/count.wgsl")).params::<CountParams>(),
        KernelSource::new("fof::keep", include_str!("../../../shaders/points/fof/keep.wgsl")).params::<KeepParams>(),
        KernelSource::new("fof::kept", include_str!("../../../shaders/points/fof/kept.wgsl")).params::<CountParams>(),
        KernelSource::new("fof::first_bad", include_str!("../../../shaders/points/fof/first_bad.wgsl"))
            .params::<BadParams>(),
    ]
}

impl Labelled<'_> {
    /// Downloads the members of groups that `selection` may have: those of as many members here as
    /// it wants, and those with members on other ranks. Submits and waits.
    pub fn download(&self, recorder: &mut Recorder, selection: &Selection) -> Result<HostMembers, FofError> {
        let rows = self.selected(recorder, selection.min_members)?;
        let (permute, cloud) = (Permute::new(), &self.points.cloud);
        let mut host = |array: &Array<f32>| {
            // Without points there is nothing to gather, and no width.
            let width = array.len() / cloud.len().max(1);
            if width == 0 {
                return Ok(Vec::new());
            }
            let gathered = permute.gathered(recorder, "fof::members", array, &rows, width)?;
            recorder.download(&gathered, 0, gathered.len())
        };
        let position = host(cloud.positions())?;
        let [mass, velocity, scale_factor] = self.attributes.map(|array| array.map(&mut host).transpose());
        Ok(HostMembers {
            number: self.points.ids_of(recorder, &rows)?.download(recorder)?,
            label: self.labels.select(recorder, &rows)?.download(recorder)?,
            position,
            attributes: [mass?, velocity?, scale_factor?],
            bad: self.first_bad(recorder)?,
        })
    }

    /// Returns the rows of members, by label and then by index, which ascends with rows. Waits for
    /// their number.
    fn selected(&self, recorder: &mut Recorder, min_members: u64) -> Result<Array<u32>, DeviceError> {
        let (permute, rows) = (Permute::new(), self.kept(recorder, min_members)?);
        let order = self.labels.select(recorder, &rows)?.order(recorder, self.total)?;
        permute.gathered(recorder, "fof::rows", &rows, &order, 1)
    }

    /// Returns the rows of members, ascending. Waits for their number.
    fn kept(&self, recorder: &mut Recorder, min_members: u64) -> Result<Array<u32>, DeviceError> {
        let (gpu, count) = (recorder.gpu().clone(), self.roots.len());
        let [count_members, keep_members, list_members, _] = kernels();
        let params = CountParams { count: count as u32 };
        let members = gpu.array::<u32>("fof::members", count)?;
        recorder.clear(&members);
        recorder.each(&Kernel::trusted(count_members), &[self.roots.raw(), members.raw()], &params, count)?;
        // A group that spans ranks may be of any size.
        let many =
            upload_u32(recorder, &host_memory::fill("sizes of groups", u32::MAX, self.spanning.len() as usize)?)?;
        Permute::new().scatter(recorder, &many, self.spanning, &members, 1, Count::All)?;
        let (keep, before) = (gpu.array::<u32>("fof::keep", count)?, gpu.array::<u32>("fof::before", count + 1)?);
        let least = min_members.clamp(1, u64::from(u32::MAX)) as u32;
        let arrays = [self.roots, &members, &keep].map(Array::raw);
        recorder.each(&Kernel::trusted(keep_members), &arrays, &KeepParams { count: params.count, least }, count)?;
        Scan::new().exclusive(recorder, &keep, &before, Count::All)?;
        let rows = gpu.array("fof::rows", recorder.download(&before, count, 1)?[0].into())?;
        recorder.each(&Kernel::trusted(list_members), &[before.raw(), rows.raw()], &params, count)?;
        Ok(rows)
    }

    /// Returns the value that no point may have of the point with the least index. Waits for a word
    /// per attribute.
    fn first_bad(&self, recorder: &mut Recorder) -> Result<Bad, DeviceError> {
        let [.., first_bad] = kernels();
        let (mut least, kernel) = (Bad::NONE, Kernel::trusted(first_bad));
        for (attribute, values) in (0..).zip(self.attributes) {
            let Some(values) = values else { continue };
            let first = recorder.uploaded("fof::first_bad", &[u32::MAX])?;
            // Only masses, the first, are never negative.
            let params = BadParams { count: values.len() as u32, negative: u32::from(attribute > 0) };
            let words = values.cast::<u32>()?;
            recorder.each(&kernel, &[words.raw(), first.raw()], &params, values.len())?;
            let at = recorder.download(&first, 0, 1)?[0];
            if at == u32::MAX {
                continue;
            }
            let width = values.len() / self.points.cloud.len();
            let row = upload_u32(recorder, &[at / width as u32])?;
            let number = self.points.ids_of(recorder, &row)?.download(recorder)?[0];
            let bits = recorder.download(&words, at.into(), 1)?[0];
            // Positions come before attributes, and are finite.
            least = least.min(Bad([number, attribute + 1, bits.into()]));
        }
        Ok(least)
    }
}

impl HostMembers {
    /// Slices of them, in the space of `points`.
    pub fn members<'a>(&'a self, points: &'a LocalPoints) -> Members<'a> {
        let [mass, velocity, scale_factor] = self.attributes.each_ref().map(Option::as_deref);
        Members {
            domain: points.cloud.domain(),
            number: &self.number,
            label: &self.label,
            position: &self.position,
            mass,
            velocity,
            scale_factor,
        }
    }
}
