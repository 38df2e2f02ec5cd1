//! Groups that span ranks: components of different ranks that are one group get its least label.
//!
//! Each component is known to its own rank and to those that it has links with. The method is that
//! of *FastSV* (Zhang, Azad & Buluç 2020): each component has a parent, at first itself; in each
//! round parents are replaced by the least of the grandparents at the other ends of links, and then
//! by their own parents, so that chains of any length shrink as fast as their logarithm.

use bytemuck::{Pod, Zeroable};

use super::links::Component;
use crate::comm::{CommError, Communicator, Op};
use crate::grid::Cost;
use crate::points::ghosts::{ask, cost_of, count};

/// A component as the parent of others: the least index of its points, and where it is. Ordered by
/// index.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
struct Root {
    index: u64,
    at: Component,
}

/// A link of an own component, as it is sent to its rank: the row, and the other end.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
struct End {
    row: u32,
    other: Component,
}

/// A new parent of a component, as it is sent to the component's rank.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
struct Hook {
    row: u64,
    to: Root,
}

/// For each of this rank's components in any rank's `links`, by row: the least index of a point in
/// its group. `indices_of` gives those of rows of this rank. Memory and messages are those of this
/// rank's components with links; five exchanges a round, of which there are about as many as the
/// logarithm of the longest chain of components. Collective.
pub(super) fn resolve<E: From<CommError>>(
    comm: &Communicator,
    indices_of: impl FnOnce(&[u32]) -> Result<Vec<u64>, E>,
    links: &[[Component; 2]],
) -> Result<(Vec<(u32, u64)>, Cost), E> {
    let (mut cost, rank) = (Cost::default(), comm.rank() as u32);
    let graph = Graph::new(comm, links, &mut cost)?;
    let root = |(&row, index): (&u32, u64)| Root { index, at: Component { rank, row } };
    let mut parents: Vec<Root> = graph.rows.iter().zip(indices_of(&graph.rows)?).map(root).collect();
    loop {
        let grand = graph.parents_of(&parents, &mut cost)?;
        let far = graph.across(&grand, &mut cost)?;
        let (before, mut hooks) = (parents.clone(), Vec::new());
        for &(own, end) in &graph.edges {
            let (own, least) = (own as usize, far[end as usize]);
            if least < grand[own] {
                hooks.push((before[own].at, least));
            }
            parents[own] = parents[own].min(least).min(grand[own]);
        }
        for Hook { row, to } in graph.deliver(hooks, &mut cost)? {
            let own = graph.place(row as u32);
            parents[own] = parents[own].min(to);
        }
        if comm.reduced([u64::from(parents != before)], Op::Max)? == [0] {
            let labels = graph.rows.iter().zip(&parents).map(|(&row, root)| (row, root.index));
            return Ok((labels.collect(), cost));
        }
    }
}

/// The links of this rank's components.
struct Graph<'a> {
    comm: &'a Communicator,
    /// Components of this rank that have links, ascending.
    rows: Vec<u32>,
    /// Links: places in `rows`, and among the components at the other ends, ascending, each once.
    edges: Vec<(u32, u32)>,
    /// Places in `rows` of the components with links to each rank, ascending for each, and how many
    /// these are.
    shown: Vec<u32>,
    counts: Vec<u64>,
}

impl<'a> Graph<'a> {
    /// Sends each link to the ranks of its ends.
    fn new(comm: &'a Communicator, links: &[[Component; 2]], cost: &mut Cost) -> Result<Self, CommError> {
        let both = links.iter().flat_map(|&[one, other]| [[one, other], [other, one]]);
        let mut outgoing: Vec<[Component; 2]> = both.filter(|[one, other]| one != other).collect();
        outgoing.sort_unstable();
        outgoing.dedup();
        let ends = outgoing.iter().map(|&[one, other]| (one.rank, End { row: one.row, other })).collect();
        let mut links = exchange(comm, ends, cost)?;
        links.sort_unstable();
        links.dedup();
        let mut rows: Vec<u32> = links.iter().map(|end| end.row).collect();
        rows.dedup();
        let mut ends: Vec<Component> = links.iter().map(|end| end.other).collect();
        ends.sort_unstable();
        ends.dedup();
        let place = |row: u32| rows.partition_point(|&other| other < row) as u32;
        let end = |other: Component| ends.partition_point(|&end| end < other) as u32;
        let edges = links.iter().map(|&End { row, other }| (place(row), end(other))).collect();
        let mut shown: Vec<(u32, u32)> = links.iter().map(|end| (end.other.rank, place(end.row))).collect();
        shown.sort_unstable();
        shown.dedup();
        let counts = count(&shown.iter().map(|&(rank, _)| rank).collect::<Vec<_>>(), comm.size());
        let shown = shown.into_iter().map(|(_, place)| place).collect();
        Ok(Graph { comm, rows, edges, shown, counts })
    }

    /// Returns the place of a component of this rank that has links.
    fn place(&self, row: u32) -> usize {
        self.rows.partition_point(|&other| other < row)
    }

    /// Returns the values of the components at the other ends, of all own ones there are some for.
    /// One exchange.
    fn across(&self, values: &[Root], cost: &mut Cost) -> Result<Vec<Root>, CommError> {
        let outgoing: Vec<Root> = self.shown.iter().map(|&place| values[place as usize]).collect();
        // Links are known at both ends, so what ranks send each other is what they expect, in the
        // order of the ends.
        let received = self.comm.all_to_all_v(&outgoing, &self.counts)?;
        *cost += cost_of::<Root>(&self.counts, received.counts(), self.comm.rank());
        Ok(received.into_raw().0)
    }

    /// Returns the parent of each parent, from its rank. Two exchanges.
    fn parents_of(&self, parents: &[Root], cost: &mut Cost) -> Result<Vec<Root>, CommError> {
        let mut asked: Vec<Component> = parents.iter().map(|parent| parent.at).collect();
        asked.sort_unstable();
        asked.dedup();
        let (rows, ranks): (Vec<u32>, Vec<u32>) = asked.iter().map(|at| (at.row, at.rank)).unzip();
        let (found, asking) = ask(self.comm, &rows, &ranks, |rows| {
            Ok::<_, CommError>(rows.iter().map(|&(_, &row)| parents[self.place(row)]).collect())
        })?;
        *cost += asking;
        Ok(parents.iter().map(|parent| found[asked.partition_point(|at| *at < parent.at)]).collect())
    }

    /// Sends each component's new parent to its rank, the least if there are several. One exchange.
    fn deliver(&self, mut hooks: Vec<(Component, Root)>, cost: &mut Cost) -> Result<Vec<Hook>, CommError> {
        hooks.sort_unstable();
        hooks.dedup_by_key(|hook| hook.0);
        let hooks = hooks.into_iter().map(|(of, to)| (of.rank, Hook { row: of.row.into(), to }));
        exchange(self.comm, hooks.collect(), cost)
    }
}

/// Sends elements to their ranks, by which they are sorted.
fn exchange<T: Pod>(comm: &Communicator, elements: Vec<(u32, T)>, cost: &mut Cost) -> Result<Vec<T>, CommError> {
    let (ranks, elements): (Vec<u32>, Vec<T>) = elements.into_iter().unzip();
    let counts = count(&ranks, comm.size());
    let received = comm.all_to_all_v(&elements, &counts)?;
    *cost += cost_of::<T>(&counts, received.counts(), comm.rank());
    Ok(received.into_raw().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    /// Labels by rank and row of `each` components a rank, where component (rank, row) has the
    /// index `index[rank * each + row]`; each rank tells every `ranks`-th link.
    fn labels(ranks: usize, index: &[u64], links: &[[usize; 2]]) -> Vec<u64> {
        let each = index.len() / ranks;
        let parts = run_threads(ranks, |comm| {
            let at = |i: usize| Component { rank: (i / each) as u32, row: (i % each) as u32 };
            let told: Vec<_> = links.iter().skip(comm.rank()).step_by(ranks).map(|link| link.map(at)).collect();
            let first = comm.rank() * each;
            let mut labels = index[first..first + each].to_vec();
            let (found, cost) = resolve(
                &comm,
                |rows| Ok::<_, CommError>(rows.iter().map(|&row| index[first + row as usize]).collect()),
                &told,
            )?;
            // At most four messages a round to each other rank, and about as many rounds as a chain
            // doubles.
            let rounds = u64::from(index.len().ilog2()) + 3;
            assert!(cost.messages <= (ranks as u64 - 1) * (4 * rounds + 1), "{} messages", cost.messages);
            found.iter().for_each(|&(row, label)| labels[row as usize] = label);
            Ok::<_, CommError>(labels)
        });
        parts.unwrap().concat()
    }

    fn shuffled(n: usize) -> Vec<u64> {
        let mut index: Vec<u64> = (0..n as u64).collect();
        index.sort_by_key(|&i| crate::hash::fnv1a(crate::hash::START, &i.to_le_bytes()));
        index
    }

    #[test]
    fn chains_over_all_ranks_have_one_label() {
        for (ranks, each) in [(1, 7), (2, 100), (5, 60), (8, 16)] {
            let n = ranks * each;
            // Two chains, of the even and of the odd ones; each link occurs twice.
            let chain = |i: usize| [[i, i + 2], [i + 2, i]];
            let links: Vec<[usize; 2]> = (0..n - 2).flat_map(chain).collect();
            for index in [(0..n as u64).collect(), (0..n as u64).rev().collect(), shuffled(n)] {
                let least = [0, 1].map(|odd| index[odd..].iter().step_by(2).copied().min().unwrap());
                let found = labels(ranks, &index, &links);
                assert!(found.iter().enumerate().all(|(i, &label)| label == least[i % 2]), "{ranks} {index:?}");
            }
        }
    }

    #[test]
    fn groups_of_random_links_are_those_of_one_forest() {
        let (ranks, n) = (6, 240);
        let index = shuffled(n);
        for density in [1, 3, 9] {
            let random = |i: usize| index[(i * 31 + density) % n] as usize;
            let links: Vec<[usize; 2]> = (0..n * density / 10).map(|i| [random(i), random(i + 77)]).collect();
            let mut want = index.clone();
            for _ in 0..n {
                for &[a, b] in &links {
                    let least = want[a].min(want[b]);
                    (want[a], want[b]) = (least, least);
                }
            }
            assert_eq!(labels(ranks, &index, &links), want);
        }
    }

    #[test]
    fn no_links_are_nothing() {
        let (labels, cost) = resolve(&Communicator::solo(), |_| Ok::<_, CommError>(Vec::new()), &[]).unwrap();
        assert!(labels.is_empty() && cost == Cost::default());
    }
}
