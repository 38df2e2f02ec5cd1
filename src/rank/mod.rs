//! One rank: its communicator, its device, and what it keeps for later calls.

mod plan_cache;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use crate::cluster::Machine;
use crate::comm::{Communicator, Op};
use crate::exchange::{self, Exchange, ExchangeError, GridComms};
use crate::gpu::{CommonLimits, Gpu, Options, Recorder, unstacked};
use crate::grid::{Cost, Grid, Shares};
use crate::hash::fnv1a;
use crate::timeline;
pub(crate) use plan_cache::PlanKey;
use plan_cache::{PlanCache, Shared};

/// One rank of a program: its communicator, its device, and the methods of all modules.
///
/// [`run`](crate::run) and [`launch`](crate::launch()) create the ranks of a program.
/// [`new`](Self::new) creates a rank with a caller's communicator and device.
///
/// | methods | module |
/// |---|---|
/// | [`mesh`](Self::mesh), [`zeros`](Self::zeros), [`fill`](Self::fill), [`gather`](Self::gather), [`write_npy`](Self::write_npy), [`sum`](Self::sum), [`stencil`](Self::stencil), .. | [`field`](crate::field) |
/// | [`fft`](Self::fft), [`inverse`](Self::inverse), [`filter`](Self::filter), .. | [`fft`](crate::fft) |
/// | [`search`](Self::search), [`query`](Self::query), [`each`](Self::each), [`distribute`](Self::distribute), .. | [`points`](crate::points) |
/// | [`paint`](Self::paint), [`paint_attribute`](Self::paint_attribute), [`readout`](Self::readout) | [`mesh`](crate::mesh) |
///
/// A method that is *collective* must be called by every rank, in the same order and with agreeing
/// arguments; otherwise it fails on all ranks.
///
/// A rank keeps the plans of transforms, exchanges and the like for later calls, at most 64 of them
/// with at most 256 MiB of device memory; [`release`](Self::release) drops them.
#[derive(Debug)]
pub struct Rank {
    /// All ranks.
    pub comm: Communicator,
    /// The device of this rank. Ranks that are threads of one process and use the same adapter
    /// share it.
    pub gpu: Gpu,
    /// Records and submits work for the device.
    pub recorder: Recorder,
    /// Exchanges among all ranks.
    pub exchange: Exchange,
    /// Number of ranks that use this rank's adapter; each may use an equal part of its memory.
    pub sharing: usize,
    /// Communicators of process grids, in the order of their creation.
    grids: Vec<GridComms>,
    plans: PlanCache,
}

/// The parts of a rank that work on a process grid takes, for authors of kernels.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The device.
    pub gpu: &'a Gpu,
    /// Records and submits work for the device.
    pub recorder: &'a mut Recorder,
    /// The exchanges along the axes of the process grid.
    pub comms: &'a mut GridComms,
}

impl Rank {
    /// Creates a rank of `comm` on a device chosen by `options`. The ranks of one host take
    /// suitable adapters in turn. [Collective](Self).
    ///
    /// # Errors
    /// - [`ExchangeError::Device`] if no adapter is suitable or it cannot be opened.
    /// - As [`new`](Self::new).
    pub fn open(comm: Communicator, options: &Options) -> Result<Self, ExchangeError> {
        let hosts = comm.all_gather(&[crate::host::id()])?;
        let _activity = timeline::activity!("open device");
        let gpu = Gpu::open(options, earlier_equals(&hosts, comm.rank()))?;
        Self::new(comm, gpu)
    }

    /// Creates a rank of `comm` that works on `gpu`. [Collective](Self): ranks plan their common
    /// work for the limits that all devices have ([`Gpu::common`]).
    ///
    /// # Errors
    /// - [`ExchangeError::Device`] if the device is out of memory.
    /// - [`DeviceError::SharedPages`](crate::gpu::DeviceError::SharedPages) or
    ///   [`DeviceError::PeerMemory`](crate::gpu::DeviceError::PeerMemory), on all ranks, if the
    ///   options of a device force a path and its host cannot use it.
    /// - [`ExchangeError::Comm`] if another rank fails.
    pub fn new(comm: Communicator, gpu: Gpu) -> Result<Self, ExchangeError> {
        let devices = comm.all_gather(&[DeviceOfRank::of(&gpu, crate::host::id())])?;
        // Equal on all ranks, so that all take the same decision about memory.
        let sharing = most_equal(devices.iter().map(|rank| rank.adapter).collect());
        if !saves_kernels(&devices, comm.rank()) {
            gpu.leave_pipelines_to_others();
        }
        let common = comm.reduced(gpu.common().numbers(), Op::Min)?;
        let gpu = gpu.among(CommonLimits::from_numbers(common));
        exchange::establish(&comm, &gpu)?;
        let (recorder, exchange) = (Recorder::new(&gpu)?, Exchange::new(comm.clone()));
        let (grids, plans) = (Vec::new(), PlanCache::default());
        Ok(Rank { comm, gpu, recorder, exchange, sharing, grids, plans })
    }

    /// Returns the number of this rank, from 0 on.
    #[must_use]
    pub fn index(&self) -> usize {
        self.comm.rank()
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.comm.size()
    }

    /// Sets the share of each rank in meshes and points created from now on, and drops all plans
    /// kept for later calls. [Collective](Self). Results have the same bits for any shares.
    ///
    /// # Errors
    /// - [`CommError::Differ`](crate::comm::CommError::Differ) if ranks pass different shares.
    /// - [`CommError::Shares`](crate::comm::CommError::Shares) if there is not one share for each rank.
    pub fn set_shares(&mut self, shares: Shares) -> Result<(), ExchangeError> {
        self.comm.agree("Rank::set_shares", &[("shares", &shares)])?;
        self.comm = self.comm.with_shares(shares)?;
        self.release();
        Ok(())
    }

    /// Returns `base` with what ranks know of their machine: the ranks and devices of a node, its
    /// cores and whether devices compute on them, the path of device data. [Collective](Self).
    ///
    /// # Errors
    /// [`ExchangeError::Comm`] if another rank fails.
    pub fn machine(&self, base: Machine) -> Result<Machine, ExchangeError> {
        let ranks_per_node = most_equal(self.comm.all_gather(&[crate::host::id()])?);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let is_software = self.gpu.info().device_type == wgpu::DeviceType::Cpu;
        let numbers = [self.sharing, cores, usize::from(is_software)].map(|number| number as u64);
        let [sharing, cores, software] = self.comm.reduced(numbers, Op::Max)?.map(|number| number as usize);
        let (devices, path) = (ranks_per_node.div_ceil(sharing.max(1)), self.exchange.path(&self.gpu));
        let (nics, path) = (base.nics.min(ranks_per_node), path.unwrap_or(base.path));
        Ok(Machine { ranks_per_node, devices, cores, nics, path, devices_use_cores: software > 0, ..base })
    }

    /// Borrows the parts of the rank that work on `grid` takes. [Collective](Self) when a grid is
    /// used for the first time: that splits the communicator.
    ///
    /// # Errors
    /// - [`ExchangeError::Comm`] if the communicator cannot be split or the ranks pass different
    ///   grids.
    /// - [`ExchangeError::Device`] if `grid` has another number of ranks, on all ranks.
    pub fn parts(&mut self, grid: Grid) -> Result<Parts<'_>, ExchangeError> {
        let at = match self.grids.iter().position(|comms| comms.grid() == grid) {
            Some(at) => at,
            None => {
                tracing::debug!(rank = self.comm.rank(), %grid, "process grid created");
                self.grids.push(GridComms::new(&self.comm, grid)?);
                self.grids.len() - 1
            }
        };
        Ok(Parts { gpu: &self.gpu, recorder: &mut self.recorder, comms: &mut self.grids[at] })
    }

    /// Returns `true` if ranks have called different collectives, among all ranks or along a
    /// process grid.
    pub fn is_out_of_step(&mut self) -> bool {
        let along_grid = |comms: &mut GridComms| (0..3).any(|axis| comms.along(axis).comm().is_out_of_step());
        self.comm.is_out_of_step() || self.grids.iter_mut().any(along_grid)
    }

    /// Returns the cost of all exchanges along process grids so far, for this rank.
    #[must_use]
    pub fn exchange_cost(&self) -> Cost {
        self.grids.iter().map(GridComms::cost).sum()
    }

    /// Returns the plan of `key`, created by `make` unless the rank has one.
    pub(crate) fn plan<K: PlanKey, E>(
        &mut self,
        key: K,
        make: impl FnOnce(&mut Self) -> Result<K::Plan, E>,
    ) -> Result<Arc<K::Plan>, E> {
        if let Some(plan) = self.plans.get(&key) {
            return Ok(plan);
        }
        let start = Instant::now();
        let activity = timeline::activity!("plan", key = std::any::type_name::<K>());
        let plan = unstacked(|| make(self))?;
        drop(activity);
        let (key_type, seconds) = (std::any::type_name::<K>(), start.elapsed().as_secs_f64());
        tracing::debug!(rank = self.index(), key = key_type, seconds, "plan created");
        Ok(self.plans.insert(key, plan))
    }

    /// Returns the default `T` that all uses on this rank share, such as a set of kernels.
    pub(crate) fn shared<T: Default + Send + Sync + 'static>(&mut self) -> Arc<T> {
        let Ok(shared) = self.plan(Shared::<T>::default(), |_| Ok::<_, Infallible>(T::default()));
        shared
    }

    /// Returns the device memory that plans kept for later calls hold, in bytes.
    #[must_use]
    pub fn plan_memory_bytes(&self) -> u64 {
        self.plans.memory_bytes()
    }

    /// Drops all plans kept for later calls, and returns unused memory to the driver.
    pub fn release(&mut self) {
        self.plans.clear();
        self.gpu.trim();
    }

    /// Returns a number of the open device, which threads of a process share.
    pub(crate) fn device_number(&self) -> u64 {
        device_number(&self.gpu, crate::host::id())
    }

    /// Returns the device memory that this rank may use, in bytes: an equal part for each rank on
    /// the adapter. `None` if the driver does not report it. Equal on all ranks if their devices
    /// are equal.
    #[must_use]
    pub fn memory_share(&self) -> Option<u64> {
        self.gpu.capabilities().memory.map(|all| all / self.sharing as u64)
    }
}

/// Returns how many elements before number `at` are equal to it: with hosts of ranks, the number of
/// a rank among those of its host.
fn earlier_equals(all: &[u64], at: usize) -> usize {
    all[..at].iter().filter(|&&other| other == all[at]).count()
}

/// Hashes by which ranks know whether they share a device or a file of compiled kernels.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct DeviceOfRank {
    /// The adapter and its host.
    adapter: u64,
    /// The file of compiled kernels and its host; 0 without a file.
    kernels: u64,
    /// The open device, which threads of a process share.
    device: u64,
}

impl DeviceOfRank {
    fn of(gpu: &Gpu, host: u64) -> Self {
        let info = gpu.info();
        // A card has one PCI address, whatever the backend; software renderers have none.
        let adapter = match info.device_pci_bus_id.as_str() {
            "" => format!("{} {:?}", info.name, info.backend),
            place => place.to_string(),
        };
        let on_host = |bytes: &[u8]| fnv1a(host, bytes);
        DeviceOfRank {
            adapter: on_host(adapter.as_bytes()),
            kernels: gpu.pipeline_file().map_or(0, |file| on_host(file.as_os_str().as_encoded_bytes())),
            device: device_number(gpu, host),
        }
    }
}

/// Returns a number of the open device, which threads of a process share.
fn device_number(gpu: &Gpu, host: u64) -> u64 {
    fnv1a(fnv1a(host, &std::process::id().to_le_bytes()), &gpu.number().to_le_bytes())
}

/// Returns the number of times that the most frequent of `numbers` occurs.
fn most_equal(mut numbers: Vec<u64>) -> usize {
    numbers.sort_unstable();
    numbers.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(1)
}

/// Returns `true` if `rank` saves compiled kernels: one device of each host and driver does.
fn saves_kernels(all: &[DeviceOfRank], rank: usize) -> bool {
    let own = all[rank];
    all.iter().find(|other| other.kernels == own.kernels).is_none_or(|first| first.device == own.device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rank(adapter: u64, kernels: u64, device: u64) -> DeviceOfRank {
        DeviceOfRank { adapter, kernels, device }
    }

    #[test]
    fn ranks_count_those_of_their_host_and_adapter() {
        let hosts = [7, 7, 9, 7, 9];
        assert_eq!([0, 1, 2, 3, 4].map(|rank| earlier_equals(&hosts, rank)), [0, 1, 0, 2, 1]);
        assert_eq!(most_equal(vec![1, 2, 1, 1]), 3);
        assert_eq!(most_equal(vec![2]), 1);
    }

    #[test]
    fn one_device_of_each_host_and_driver_saves_kernels() {
        // Two threads on one device, another process on the same host, another host, another driver
        // there.
        let ranks = [rank(1, 5, 1), rank(1, 5, 1), rank(1, 5, 2), rank(2, 6, 3), rank(2, 6, 4), rank(3, 8, 5)];
        let saving: Vec<bool> = (0..ranks.len()).map(|rank| saves_kernels(&ranks, rank)).collect();
        assert_eq!(saving, [true, true, false, true, false, true]);
    }
}
