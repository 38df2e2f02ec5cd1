//! Particles that have crossed a light cone, as rows of words.

use std::path::Path;

use super::cone::image_of;
use crate::comm::{Communicator, Op};
use crate::host_memory;
use crate::io::collective::{fingerprint, seal_npy};
use crate::io::{IoError, NpyFile, Sealed};
use crate::pm::Result;

/// Words of a row.
pub(super) const ROW: usize = 9;

/// A particle where it crossed the light cone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConeParticle {
    /// Place from the observer, comoving, not wrapped, in Mpc/h.
    pub position: [f32; 3],
    /// Peculiar velocity in km/s.
    pub velocity: [f32; 3],
    /// Scale factor at the crossing.
    pub scale_factor: f32,
    /// The particle's Lagrangian index `(i n + j) n + k`.
    pub id: u64,
    /// In which replica of the box the particle's site lies: numbers of sides from the box that
    /// holds the observer.
    pub image: [i32; 3],
}

/// This rank's share of the particles that have crossed, ascending by id and then by image over all
/// ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct ConeParticles {
    /// Nine words a particle: position, velocity and scale factor as bits of f32, and the number
    /// `id 2^21 + image`, low word first.
    pub(super) words: Vec<u32>,
    first: u64,
    total: u64,
}

impl ConeParticles {
    /// Returns this rank's rows. Collective.
    pub(super) fn new(comm: &Communicator, words: Vec<u32>) -> Result<Self> {
        let count = (words.len() / ROW) as u64;
        let mut first = [count];
        comm.scan_exclusive(&mut first, Op::Sum)?;
        let [total] = comm.reduced([count], Op::Sum)?;
        Ok(ConeParticles { words, first: first[0], total })
    }

    /// Returns how many this rank has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() / ROW
    }

    /// Returns `true` if this rank has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns how many all ranks have.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the place of this rank's first among those of all ranks.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns this rank's particles.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ConeParticle> + '_ {
        self.words.chunks_exact(ROW).map(|row| {
            let real = |at: usize| f32::from_bits(row[at]);
            let key = u64::from(row[7]) | u64::from(row[8]) << 32;
            ConeParticle {
                position: [real(0), real(1), real(2)],
                velocity: [real(3), real(4), real(5)],
                scale_factor: real(6),
                id: key >> 21,
                image: image_of((key & 0x1f_ffff) as u32),
            }
        })
    }

    /// Returns a number that depends on every bit of all ranks' rows and on their order, and not on
    /// who has which. Collective.
    ///
    /// # Errors
    /// [`SimulationError::Comm`](crate::pm::SimulationError::Comm).
    pub fn fingerprint(&self, comm: &Communicator) -> Result<u64> {
        let rows = (self.first..self.first + self.len() as u64).map(|row| row * ROW as u64);
        Ok(fingerprint(comm, rows, ROW as u64, &[bytemuck::cast_slice(&self.words)])?)
    }

    /// Writes the rows as they are, `u32` of shape `(N, 9)`: what [`read`](Self::read) takes. The
    /// file has no name yet, which rank 0 gives it by [`Sealed::publish`]. Collective.
    ///
    /// # Errors
    /// Same as [`write_npy`](crate::io::collective::write_npy).
    pub fn seal(&self, comm: &Communicator, path: &Path) -> Result<Sealed> {
        seal_npy(
            comm,
            path,
            &[self.total, ROW as u64],
            |writer| Ok(writer.write(ROW as u64 * self.first, &self.words)?),
        )
    }

    /// Reads this rank's share of what [`seal`](Self::seal) wrote, on any number of ranks. All
    /// ranks call it.
    ///
    /// # Errors
    /// [`IoError`] for files of another shape or that cannot be read.
    pub fn read(comm: &Communicator, path: &Path) -> Result<Self> {
        let file = NpyFile::open(path)?;
        let row = ROW as u64;
        let total = match *file.shape() {
            [total, width] if width == row => total,
            _ => return Err(IoError::shape(path, file.shape(), format!("(N, {ROW})")).into()),
        };
        let own = comm.shares().split(total, comm.rank());
        let words = file.read_i64(row * own.start..row * own.end)?.into_iter().map(|word| word as u32);
        let words = host_memory::collect("particles on the light cone", words)?;
        Ok(ConeParticles { words, first: own.start, total })
    }
}
