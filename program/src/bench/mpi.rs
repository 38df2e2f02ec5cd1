//! Pure MPI, without the library: the same messages and collectives through its own calls, in the
//! same process.

#[cfg(not(feature = "mpi"))]
pub use absent::Mpi;
#[cfg(feature = "mpi")]
pub use present::Mpi;

#[cfg(feature = "mpi")]
mod present {
    use ::mpi::collective::{CommunicatorCollectives, Root, SystemOperation};
    use ::mpi::point_to_point::{Destination, Source};
    use ::mpi::topology::{Communicator, SimpleCommunicator};
    use meshloom::comm::mpi_launched;

    /// MPI's world, which is that of the library's ranks.
    pub struct Mpi {
        world: SimpleCommunicator,
    }

    impl Mpi {
        /// MPI, where it runs the ranks.
        pub fn running() -> Option<Mpi> {
            mpi_launched().then(|| Mpi { world: SimpleCommunicator::world() })
        }

        /// Sends to one rank while it receives from another: `MPI_Isend`, `MPI_Irecv`.
        pub fn ring(&self, to: usize, outgoing: &[u8], from: usize, incoming: &mut [u8]) {
            ::mpi::request::scope(|scope| {
                let receiving = self.world.process_at_rank(from as i32).immediate_receive_into(scope, incoming);
                let sending = self.world.process_at_rank(to as i32).immediate_send(scope, outgoing);
                receiving.wait();
                sending.wait();
            });
        }

        /// `MPI_Barrier`.
        pub fn barrier(&self) {
            self.world.barrier();
        }

        /// `MPI_Bcast` from rank 0.
        pub fn broadcast(&self, data: &mut [u64]) {
            self.world.process_at_rank(0).broadcast_into(data);
        }

        /// `MPI_Gather` to rank 0.
        pub fn gather(&self, data: &[u64], all: &mut [u64]) {
            let root = self.world.process_at_rank(0);
            if self.world.rank() == 0 { root.gather_into_root(data, all) } else { root.gather_into(data) }
        }

        /// `MPI_Allgather`.
        pub fn all_gather(&self, data: &[u64], all: &mut [u64]) {
            self.world.all_gather_into(data, all);
        }

        /// `MPI_Allreduce` of sums.
        pub fn all_reduce(&self, data: &[u64], sums: &mut [u64]) {
            self.world.all_reduce_into(data, sums, SystemOperation::sum());
        }

        /// `MPI_Alltoall`.
        pub fn all_to_all(&self, data: &[u64], all: &mut [u64]) {
            self.world.all_to_all_into(data, all);
        }
    }
}

#[cfg(not(feature = "mpi"))]
mod absent {
    /// MPI, which this build lacks.
    pub enum Mpi {}

    impl Mpi {
        pub fn running() -> Option<Mpi> {
            None
        }

        pub fn ring(&self, _to: usize, _outgoing: &[u8], _from: usize, _incoming: &mut [u8]) {
            match *self {}
        }

        pub fn barrier(&self) {
            match *self {}
        }

        pub fn broadcast(&self, _data: &mut [u64]) {
            match *self {}
        }

        pub fn gather(&self, _data: &[u64], _all: &mut [u64]) {
            match *self {}
        }

        pub fn all_gather(&self, _data: &[u64], _all: &mut [u64]) {
            match *self {}
        }

        pub fn all_reduce(&self, _data: &[u64], _sums: &mut [u64]) {
            match *self {}
        }

        pub fn all_to_all(&self, _data: &[u64], _all: &mut [u64]) {
            match *self {}
        }
    }
}
