//! What one rank works with.

use super::{Exchange, ExchangeError};
use crate::comm::{CommError, Communicator, Op};
use crate::gpu::{CommonLimits, Gpu, Options, Recorder};
use crate::hash::{START, fnv1a};

/// What one rank works with: a communicator, a device, a recorder of its work and an exchange of device data.
///
/// [`launch`](crate::launch) makes one for each rank; [`new`](Self::new) makes one of a caller's communicator and device. A function that needs only
/// a part borrows that: `&mut context.recorder`.
#[derive(Debug)]
pub struct Context {
    /// All ranks.
    pub comm: Communicator,
    /// The device of this rank, and what it has in common with those of the others. Ranks that are threads and use the same adapter share it.
    pub gpu: Gpu,
    /// The work of this rank on `gpu`.
    pub recorder: Recorder,
    /// Exchanges among all ranks.
    pub exchange: Exchange,
    /// How many ranks use this rank's adapter: each may take that part of its memory.
    pub sharing: usize,
}

impl Context {
    /// The context of a rank of `comm` on a device that `options` choose; ranks of one host take suitable adapters in turn. All ranks of
    /// `comm` call it.
    ///
    /// # Errors
    /// [`ExchangeError`] as [`Gpu::open`] and [`new`](Self::new).
    pub fn open(comm: Communicator, options: &Options) -> Result<Self, ExchangeError> {
        let gpu = Gpu::open(options, local_rank(&comm)?)?;
        Self::new(comm, gpu)
    }

    /// The context of a rank of `comm` that works on `gpu`. All ranks of `comm` call it, and plan their common work for what all devices have
    /// ([`Gpu::common`]).
    ///
    /// # Errors
    /// [`ExchangeError`] when the device has no memory left or another rank fails.
    pub fn new(comm: Communicator, gpu: Gpu) -> Result<Self, ExchangeError> {
        let sharing = sharing(&comm, &gpu)?;
        let mut common = gpu.common().numbers();
        comm.all_reduce(&mut common, Op::Min)?;
        let gpu = gpu.among(CommonLimits::from_numbers(common));
        let (recorder, exchange) = (Recorder::new(&gpu)?, Exchange::new(comm.clone()));
        Ok(Context { comm, gpu, recorder, exchange, sharing })
    }

    /// Bytes of the device's memory that this rank may take, of as many as use it; none where the driver does not tell. The same on all ranks where devices
    /// are alike.
    pub fn memory_share(&self) -> Option<u64> {
        self.gpu.capabilities().memory.map(|all| all / self.sharing as u64)
    }
}

/// The number of this rank among those on its host, from 0 on.
fn local_rank(comm: &Communicator) -> Result<usize, CommError> {
    // Hosts without names count as one.
    let host = crate::host::number().unwrap_or(START);
    let hosts = comm.all_gather(&[host])?;
    Ok(hosts[..comm.rank()].iter().filter(|&&other| other == host).count())
}

/// How many ranks use the adapter of `gpu`.
fn sharing(comm: &Communicator, gpu: &Gpu) -> Result<usize, CommError> {
    let info = gpu.info();
    // A card has one place on the bus and perhaps two backends; software renderers have none.
    let adapter = match info.device_pci_bus_id.as_str() {
        "" => format!("{} {:?}", info.name, info.backend),
        place => place.to_string(),
    };
    // Where hosts have no names they count as one.
    let adapter = fnv1a(crate::host::number().unwrap_or(START), adapter.as_bytes());
    let all = comm.all_gather(&[adapter])?;
    let mut most = [all.iter().filter(|&&other| other == adapter).count() as u64];
    // The same on every rank, so that all decide alike whether memory suffices.
    comm.all_reduce(&mut most, Op::Max)?;
    Ok(most[0] as usize)
}
