//! Groups that span ranks: labels of different ranks that mean the same group, united.

use std::collections::HashMap;

use crate::comm::{CommError, Communicator};

/// A disjoint-set forest over labels; the root of a set is its least label.
#[derive(Default)]
struct Forest(HashMap<u64, u64>);

impl Forest {
    fn root(&mut self, label: u64) -> u64 {
        let (mut root, mut at) = (label, label);
        while let Some(&up) = self.0.get(&root).filter(|&&up| up != root) {
            root = up;
        }
        // Path compression.
        while let Some(up) = self.0.get_mut(&at).filter(|up| **up != root) {
            at = std::mem::replace(up, root);
        }
        root
    }

    /// Whether the two were not in one set yet.
    fn unite(&mut self, one: u64, other: u64) -> bool {
        let (a, b) = (self.root(one), self.root(other));
        for root in [a, b] {
            self.0.insert(root, a.min(b));
        }
        a != b
    }
}

/// For each label in any rank's `links`, the least label of its group. Links are pairs of labels that mean the same group. All ranks call
/// it.
///
/// Each rank sends those of its links that do not follow from its others, 16 bytes each, to all ranks: one all-gather.
pub(super) fn resolve(comm: &Communicator, links: &[[u64; 2]]) -> Result<HashMap<u64, u64>, CommError> {
    let mut own = Forest::default();
    let links: Vec<[u64; 2]> = links.iter().copied().filter(|[one, other]| own.unite(*one, *other)).collect();
    let mut all = Forest::default();
    for links in comm.all_gather_v(&links)?.iter() {
        links.iter().for_each(|[one, other]| {
            all.unite(*one, *other);
        });
    }
    let labels: Vec<u64> = all.0.keys().copied().collect();
    Ok(labels.into_iter().map(|label| (label, all.root(label))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    #[test]
    fn chains_over_all_ranks_have_one_label() {
        for ranks in 1..=5 {
            let found = run_threads(ranks, |comm| {
                let me = comm.rank() as u64;
                // From rank to rank in one chain, and a pair of each rank's own; one link is told twice.
                let chain = [100 - me, 99 - me];
                resolve(&comm, &[chain, [1000 + me, 2000 + me], chain, [99 - me, 100 - me]])
            })
            .unwrap();
            for map in found {
                let least = 100 - ranks as u64;
                assert!((least..=100).all(|label| map[&label] == least), "{ranks}");
                assert!((0..ranks as u64).all(|rank| map[&(2000 + rank)] == 1000 + rank));
                assert_eq!(map.len(), 3 * ranks + 1);
            }
        }
    }

    #[test]
    fn no_links_are_nothing() {
        assert!(resolve(&Communicator::solo(), &[]).unwrap().is_empty());
    }
}
