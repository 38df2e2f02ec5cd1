//! Lists of sites: which site of the lattice each particle of a rank belongs to, where particles
//! are not in the order of the rank's own sites.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::{Box3, extent};
use crate::mesh::{Lattice, parts_of_cells};
use crate::points::sort::{Route, route_to};
use crate::rank::Rank;

use super::Result;

crate::gpu::kernel_params! {
    struct BoxParams {
        /// First site of this rank, and number of particles.
        first: [u32; 4],
        /// Sites of this rank.
        local: [u32; 4],
    }
}

crate::gpu::kernel_params! {
    struct SiteOwnerParams {
        count: u32,
        /// Sites of the lattice along an axis.
        sites: u32,
        /// Parts of the lattice along axis 1.
        parts: u32,
    }
}

/// Returns the kernels: the list of a box, the owners of sites, the places of sites in a box.
pub(super) fn kernels() -> [KernelSource; 3] {
    [
        KernelSource::new("pm::list_sites", include_str!("../../shaders/pm/list_sites.wgsl")).params::<BoxParams>(),
        KernelSource::new("pm::site_owners", include_str!("../../shaders/pm/site_owners.wgsl"))
            .params::<SiteOwnerParams>(),
        KernelSource::new("pm::site_places", include_str!("../../shaders/pm/site_places.wgsl")).params::<BoxParams>(),
    ]
}

/// Returns the first site of `own`, before `count`, and the lengths of `own`, as kernels take them.
pub(super) fn box_words(own: &Box3, count: u64) -> [[u32; 4]; 2] {
    let [i, j, k] = own.each_ref().map(|range| range.start as u32);
    // An empty rank divides by no sites.
    let [x, y, z] = extent(own).map(|n| n.max(1) as u32);
    [[i, j, k, count as u32], [x, y, z, 0]]
}

fn box_params(lattice: &Lattice) -> BoxParams {
    let [first, local] = box_words(&lattice.own, lattice.len());
    BoxParams { first, local }
}

/// Records the list of this rank's own sites: `[x << 16 | y, z]` each.
pub(super) fn own_sites(recorder: &mut Recorder, lattice: &Lattice) -> Result<Array<[u32; 2]>, DeviceError> {
    let [list, ..] = kernels().map(Kernel::trusted);
    let sites = recorder.gpu().array("pm::site", lattice.len())?;
    recorder.each(&list, &[sites.raw()], &box_params(lattice), lattice.len())?;
    Ok(sites)
}

/// Returns the route of listed particles to the ranks that own their sites, where they lie in the
/// order of `lattice`. Sends 8 bytes of each particle of another rank. Collective; blocks.
pub(super) fn route_to_sites(
    rank: &mut Rank,
    lattice: &Lattice,
    grid: crate::grid::Grid,
    sites: &Array<[u32; 2]>,
) -> Result<Route> {
    let (gpu, comm, count) = (rank.gpu.clone(), rank.comm.clone(), sites.len());
    let [_, owners, places] = kernels().map(Kernel::trusted);
    let rank_of = parts_of_cells(&mut rank.recorder, lattice.sites, grid)?;
    let owner = gpu.array::<u32>("pm::site_owners", count)?;
    let params = SiteOwnerParams { count: count as u32, sites: lattice.sites[0] as u32, parts: grid.along(1) as u32 };
    rank.recorder.each(&owners, &[sites.raw(), rank_of.raw(), owner.raw()], &params, count)?;
    let unordered = route_to(rank, &owner)?;
    drop(owner);
    let arrived = unordered.forward(rank, sites, 1)?;
    let row = gpu.array::<u32>("pm::site_rows", lattice.len())?;
    rank.recorder.each(&places, &[arrived.raw(), row.raw()], &box_params(lattice), lattice.len())?;
    let [sends, receives] = unordered.counts().map(<[u64]>::to_vec);
    Ok(Route::new(&comm, unordered.order().clone(), sends, receives, Some(row))?)
}
