//! All ranks' particles in Lagrangian order: lines of sites dealt to ranks by their shares,
//! whatever the process grid of the run. Points of a [`Cloud`] are numbered in this order, so that
//! groups of them do not depend on the grid.

use crate::comm::Subject;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, MemoryKind};
use crate::grid::{Grid, Transfer, Transfers};
use crate::points::{Domain, Particles};
use crate::rank::Rank;

use super::rows::{Piece, Rows};
use super::{Quantity, Result, Simulation};

/// Returns `true` if each rank of `grid` has its share already: slabs whose planes have the lines
/// of the share.
fn is_in_order(n: u64, grid: Grid) -> bool {
    let shares = grid.shares();
    let is_cut_alike = |rank: usize| n * shares.split(n, rank).start == shares.split(n * n, rank).start;
    grid.along(1) == 1 && (0..grid.ranks()).all(is_cut_alike)
}

/// Plan that moves lines of sites from the ranks of a process grid to the ranks of a split of all
/// lines by their shares. Pure.
#[derive(Debug, PartialEq)]
struct LinePlan {
    /// In lines.
    transfers: Transfers,
    /// For each line of the rank's share, the place at which it arrives; `None` if lines arrive in
    /// their order.
    arrivals: Option<Vec<u32>>,
    /// Lines of the rank's share.
    share: u64,
}

impl LinePlan {
    /// Creates the plan of `rank`, for a lattice of `n` sites along each axis.
    fn new(n: u64, grid: Grid, rank: usize) -> Self {
        let (shares, along, across) = (grid.shares(), grid.shares_along(0), grid.shares_along(1));
        let to = (0..grid.ranks()).map(|to| shares.split(n * n, to));
        let [planes, lines, _] = grid.part([n; 3], rank);
        // Lines ascend on each rank, and so do the ranks in whose share they are.
        let mut send = Vec::new();
        let mut sent = 0;
        for (peer, share) in to.enumerate() {
            let of_plane = |i: u64| {
                let [low, high] = [lines.start, lines.end].map(|j| (i * n + j).clamp(share.start, share.end));
                high - low
            };
            let first = planes.start.max(share.start / n);
            let len = (first..planes.end.min(share.end.div_ceil(n))).map(of_plane).sum();
            send.push(Transfer { peer, start: sent, len });
            sent += len;
        }
        let share = shares.split(n * n, rank);
        let from = |line: u64| along.owner(n, line / n) * across.ranks() + across.owner(n, line % n);
        let mut counts = vec![0u64; grid.ranks()];
        share.clone().for_each(|line| counts[from(line)] += 1);
        let mut next = 0;
        let receive = counts.iter().enumerate().map(|(peer, &len)| {
            next += len;
            Transfer { peer, start: next - len, len }
        });
        let receive: Vec<Transfer> = receive.collect();
        let mut places: Vec<u64> = receive.iter().map(|part| part.start).collect();
        let arrivals = share.clone().map(|line| {
            let place = &mut places[from(line)];
            *place += 1;
            (*place - 1) as u32
        });
        let arrivals: Vec<u32> = arrivals.collect();
        let in_order = arrivals.iter().enumerate().all(|(at, &place)| at as u32 == place);
        let filled = |parts: Vec<Transfer>| parts.into_iter().filter(|part| part.len > 0).collect();
        let transfers = Transfers { send: filled(send), receive: filled(receive) };
        LinePlan { transfers, arrivals: (!in_order).then_some(arrivals), share: share.end - share.start }
    }

    /// Returns the transfers in elements, `per` a line.
    fn elements(&self, per: u64) -> Transfers {
        let scaled = |parts: &[Transfer]| parts.iter().map(|part| part.in_words(per)).collect();
        Transfers { send: scaled(&self.transfers.send), receive: scaled(&self.transfers.receive) }
    }
}

impl Simulation {
    /// Returns rows of three numbers of the particles of this rank's share, in Lagrangian order, on
    /// the device: rank 0 has the first lines of sites, rank 1 the next, by its
    /// [share](crate::grid::Shares) of all lines. Collective. Waits for other ranks only if particles move.
    ///
    /// Takes 12 bytes of device memory per particle meanwhile, 36 if particles move between ranks,
    /// and 32 if they have moved to the ranks of their cells before.
    ///
    /// # Errors
    /// Errors of the device and the ranks; [`DeviceError::TooLong`](crate::gpu::DeviceError) for
    /// more than 2^32 / 3 particles of a rank.
    pub fn in_order(&mut self, rank: &mut Rank, quantity: Quantity) -> Result<Array<f32>> {
        let way = self.way_to_sites(rank)?;
        let (n, count) = (self.config.particles, self.lattice.len());
        let in_order = is_in_order(n, self.grid());
        let kind = if in_order { MemoryKind::Device } else { MemoryKind::Outgoing };
        let rows = rank.gpu.array_in::<f32>("pm::rows", 3 * count, kind)?;
        let columns = Rows::new(rank, self, &way, quantity)?;
        if count > 0 {
            columns.record(rank, self, Piece { first: 0, count }, &rows)?;
        }
        drop((way, columns));
        if in_order {
            return Ok(rows);
        }
        let (plan, [along, across]) = (LinePlan::new(n, self.grid(), rank.index()), self.grid().parts());
        let incoming = rank.gpu.array_in::<f32>("pm::incoming", 3 * n * plan.share, MemoryKind::Incoming)?;
        let subject = Subject::new(&format!("particles in order, {quantity:?}")).with(&[
            n,
            along as u64,
            across as u64,
            self.grid().shares().mark(),
        ]);
        // As words, exactly, whatever the wire.
        let (out, into) = (rows.cast::<u32>()?, incoming.cast::<u32>()?);
        rank.exchange
            .start_for(subject, &mut rank.recorder, &plan.elements(3 * n), &out, &into)?
            .finish(&mut rank.recorder)?;
        drop(out);
        let Some(arrivals) = &plan.arrivals else { return Ok(incoming) };
        drop(rows);
        let index = rank.recorder.uploaded("pm::arrivals", arrivals)?;
        let ordered = rank.gpu.array("pm::in_order", 3 * n * plan.share)?;
        Permute::new().gather(&mut rank.recorder, &incoming, &index, &ordered, 3 * n, Count::All)?;
        Ok(ordered)
    }

    /// Creates points at the current positions of the particles, in Mpc/h in the periodic box, in
    /// Lagrangian order over ranks ([`in_order`](Self::in_order)). Positions stay on the device.
    /// [Collective](Rank); blocks.
    ///
    /// ```
    /// use meshloom::pm::{Config, Noise, Quantity, Simulation};
    ///
    /// meshloom::run(|rank| {
    ///     let config = Config { particles: 8, mesh: 8, box_size: 32.0, steps: 2, ..Config::default() };
    ///     let mut simulation = Simulation::new(rank, config, Noise::Seed)?;
    ///     simulation.run(rank, |_, _, _| Ok::<_, meshloom::Error>(()))?;
    ///
    ///     let mut particles = simulation.to_particles(rank)?;
    ///     particles.set("velocity", simulation.in_order(rank, Quantity::Velocity)?, 3)?;
    ///     rank.distribute(&mut particles)?; // along a curve, velocities with them
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - Same as [`in_order`](Self::in_order).
    /// - [`SimulationError::Points`](super::SimulationError::Points) for a particle without a finite
    ///   position, on all ranks.
    pub fn to_particles(&mut self, rank: &mut Rank) -> Result<Particles> {
        let positions = self.in_order(rank, Quantity::Position)?;
        Ok(Particles::new(rank, &Domain::new(&self.config.size())?, positions)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Shares;

    /// Lines of every grid come into the order of one rank, each once.
    #[test]
    fn lines_come_into_lagrangian_order() {
        let n = 6;
        let all = [[1, 1], [2, 1], [3, 1], [4, 1], [1, 2], [2, 2], [1, 3], [3, 2], [7, 1], [2, 4]];
        let grids = all.into_iter().flat_map(|parts| {
            let ranks = parts[0] * parts[1];
            let unequal: Vec<f64> = (0..ranks).map(|rank| (1 + rank / 2 % 3) as f64).collect();
            [Shares::from(ranks), Shares::new(&unequal).unwrap()].map(|shares| Grid::new(parts, shares).unwrap())
        });
        for grid in grids {
            let (parts, ranks) = (grid.parts(), grid.ranks());
            let own = |rank: usize| -> Vec<u64> {
                let [planes, lines, _] = grid.part([n; 3], rank);
                planes.flat_map(|i| lines.clone().map(move |j| i * n + j)).collect()
            };
            let plans: Vec<LinePlan> = (0..ranks).map(|rank| LinePlan::new(n, grid, rank)).collect();
            let range = |part: &Transfer| part.start as usize..(part.start + part.len) as usize;
            let (mut all, mut there) = (Vec::new(), true);
            for (me, plan) in plans.iter().enumerate() {
                let mut arrived = Vec::new();
                for part in &plan.transfers.receive {
                    assert_eq!(part.start, arrived.len() as u64);
                    let sent = plans[part.peer].transfers.send.iter().find(|sent| sent.peer == me).unwrap();
                    assert_eq!(sent.len, part.len, "{parts:?}");
                    arrived.extend_from_slice(&own(part.peer)[range(sent)]);
                }
                assert_eq!(arrived.len() as u64, plan.share);
                let ordered: Vec<u64> = match &plan.arrivals {
                    Some(arrivals) => arrivals.iter().map(|&at| arrived[at as usize]).collect(),
                    None => arrived,
                };
                there &= ordered == own(me);
                all.extend(ordered);
            }
            assert_eq!(is_in_order(n, grid), there, "{parts:?}");
            assert!(all.into_iter().eq(0..n * n), "{parts:?}");
            let sent: u64 = plans.iter().flat_map(|plan| &plan.transfers.send).map(|part| part.len).sum();
            assert_eq!(sent, n * n, "{parts:?}");
        }
    }
}
