//! Shares of ranks: how much of a mesh or of a list of points each rank gets.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Mutex;

use super::{LayoutError, owner, split};
use crate::hash::{START, fnv1a};
use crate::parallel::locked;

/// Shares are rounded to this part of the smallest one.
const STEPS: f64 = 1000.0;
/// The largest share as a multiple of the smallest one.
const LARGEST: f64 = 1e6;
/// Equal shares in a row from which on a text has their number.
const RUN: usize = 3;

/// The number of ranks, and the share of each one in meshes, points and items.
///
/// Results are the same bits for any shares. With equal shares [`split`](Self::split) is
/// [`grid::split`](super::split()). With others, part `i` of `n` elements ends at `n` times the sum
/// of the shares up to `i`, divided by the sum of all, rounded to the nearest integer. A number of
/// ranks converts into equal shares.
///
/// Shares are positive numbers in any unit. They are rounded to a thousandth of the smallest one,
/// and the largest may be 10^6 times the smallest. Equal lists are kept once for the life of the
/// process, 16 bytes a rank, so that the type is [`Copy`].
///
/// ```
/// use meshloom::grid::Shares;
/// let shares: Shares = "4,4,1,1".parse()?;
/// assert_eq!([0, 1, 2, 3].map(|rank| shares.split(64, rank)), [0..26, 26..51, 51..58, 58..64]);
/// assert_eq!(shares.owner(64, 57), 2);
/// assert_eq!(Shares::new(&[0.5, 0.5])?, Shares::from(2));
/// # Ok::<(), meshloom::grid::LayoutError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Shares {
    ranks: usize,
    /// `None` if all shares are equal.
    unequal: Option<&'static Weights>,
}

/// Unequal shares as the smallest integers with the same ratios.
struct Weights {
    each: Vec<u64>,
    /// The sum of the weights before each rank, and of all.
    sums: Vec<u64>,
    /// Hash of the weights.
    mark: u64,
}

impl From<usize> for Shares {
    /// Returns equal shares of `ranks` ranks.
    fn from(ranks: usize) -> Self {
        Shares { ranks, unequal: None }
    }
}

impl Shares {
    /// Creates the shares of ranks, in rank order.
    ///
    /// # Errors
    /// - [`LayoutError::NoShares`] if the list is empty.
    /// - [`LayoutError::Share`] if a share is not finite, not greater than 0, or more than 10^6
    ///   times the smallest one.
    pub fn new(shares: &[f64]) -> Result<Self, LayoutError> {
        let smallest = shares.iter().copied().fold(f64::INFINITY, f64::min);
        if shares.is_empty() {
            return Err(LayoutError::NoShares);
        }
        // A share that is not positive may be the smallest one, so it is looked for first.
        let wrong = shares.iter().position(|&share| !(share.is_finite() && share > 0.0));
        if let Some(rank) = wrong.or_else(|| shares.iter().position(|&share| share > LARGEST * smallest)) {
            return Err(LayoutError::Share { rank, share: shares[rank] });
        }
        Ok(Self::of_weights(shares.iter().map(|share| (share / smallest * STEPS).round() as u64).collect()))
    }

    /// Returns the shares in proportion to `weights`, which are greater than 0.
    fn of_weights(mut weights: Vec<u64>) -> Self {
        let ranks = weights.len();
        if weights.iter().all(|&weight| weight == weights[0]) {
            return Shares::from(ranks);
        }
        let divisor = weights.iter().copied().fold(0, greatest_divisor);
        weights.iter_mut().for_each(|weight| *weight /= divisor);
        Shares { ranks, unequal: Some(Weights::kept(weights)) }
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns `true` if all shares are equal.
    #[must_use]
    pub fn are_equal(&self) -> bool {
        self.unequal.is_none()
    }

    /// Returns the share of `rank` as an integer; the shares of all ranks have no common divisor.
    ///
    /// # Panics
    /// If `rank` is not below [`ranks`](Self::ranks).
    #[must_use]
    pub fn weight(&self, rank: usize) -> u64 {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        self.unequal.map_or(1, |weights| weights.each[rank])
    }

    /// Returns part `part` of `0..n`; empty for a part beyond the last one.
    ///
    /// # Panics
    /// If the number of ranks is 0.
    #[must_use]
    pub fn split(&self, n: u64, part: usize) -> Range<u64> {
        match self.unequal {
            Some(weights) => weights.start(n, part)..weights.start(n, part.saturating_add(1)),
            None => split(n, self.ranks as u64, part as u64),
        }
    }

    /// Returns the number of elements of part `part` of `0..n`.
    #[must_use]
    pub fn len_of(&self, n: u64, part: usize) -> u64 {
        let range = self.split(n, part);
        range.end - range.start
    }

    /// Returns the part of `0..n` that holds element `at`; O(log ranks).
    ///
    /// # Panics
    /// If `at` is not below `n`, or the number of ranks is 0.
    #[must_use]
    pub fn owner(&self, n: u64, at: u64) -> usize {
        let Some(weights) = self.unequal else { return owner(n, self.ranks as u64, at) as usize };
        assert!(at < n, "element {at} of {n}");
        let (mut low, mut high) = (0, self.ranks - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if weights.start(n, middle + 1) > at { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Returns the number of elements of the largest part of `0..n`; O(ranks).
    #[must_use]
    pub fn most(&self, n: u64) -> u64 {
        self.len_of(n, self.largest(n))
    }

    /// Returns the first of the largest parts of `0..n`; O(ranks).
    #[must_use]
    pub fn largest(&self, n: u64) -> usize {
        if self.are_equal() {
            return 0;
        }
        let mut largest = 0;
        for part in 1..self.ranks {
            if self.len_of(n, part) > self.len_of(n, largest) {
                largest = part;
            }
        }
        largest
    }

    /// Returns the shares of the ranks in each of `groups` groups of as many consecutive ranks. A
    /// place in a group has the sum of its shares in all groups, so that all groups cut meshes
    /// alike.
    ///
    /// ```
    /// use meshloom::grid::Shares;
    /// assert_eq!("4,1,2,2".parse::<Shares>()?.of_groups(2), "6,3".parse()?);
    /// # Ok::<(), meshloom::grid::LayoutError>(())
    /// ```
    ///
    /// # Panics
    /// If `groups` does not divide the number of ranks.
    #[must_use]
    pub fn of_groups(&self, groups: usize) -> Self {
        assert!(groups > 0 && self.ranks.is_multiple_of(groups), "{groups} groups of {} ranks", self.ranks);
        let each = self.ranks / groups;
        match self.unequal {
            Some(_) => self.sums((0..each).map(|place| (place..self.ranks).step_by(each))),
            None => Shares::from(each),
        }
    }

    /// Returns the shares of groups of ranks: the sums of the shares of their members.
    pub(super) fn sums<I: Iterator<Item = usize>>(&self, groups: impl Iterator<Item = I>) -> Self {
        Self::of_weights(groups.map(|members| members.map(|rank| self.weight(rank)).sum()).collect())
    }

    /// Returns the shares of some of the ranks, in the order of `members`.
    pub(crate) fn among(&self, members: &[usize]) -> Self {
        match self.unequal {
            Some(_) => Self::of_weights(members.iter().map(|&rank| self.weight(rank)).collect()),
            None => Shares::from(members.len()),
        }
    }

    /// Returns a hash of the shares, equal on all ranks for equal shares; 0 for equal ones.
    pub(crate) fn mark(&self) -> u64 {
        self.unequal.map_or(0, |weights| weights.mark)
    }
}

impl Weights {
    /// Returns the one copy of these weights that the process keeps.
    fn kept(each: Vec<u64>) -> &'static Self {
        static KEPT: Mutex<BTreeMap<Vec<u64>, &'static Weights>> = Mutex::new(BTreeMap::new());
        let mut kept = locked(&KEPT);
        if let Some(weights) = kept.get(&each) {
            return weights;
        }
        let mut sum = 0;
        let sums = [0].into_iter().chain(each.iter().map(|weight| {
            sum += weight;
            sum
        }));
        let (sums, mark) = (sums.collect(), fnv1a(START, bytemuck::cast_slice(&each)));
        let weights: &'static Weights = Box::leak(Box::new(Weights { each: each.clone(), sums, mark }));
        kept.insert(each, weights);
        weights
    }

    /// Returns the first element of a part of `0..n`.
    fn start(&self, n: u64, part: usize) -> u64 {
        let all = u128::from(self.sums[self.each.len()]);
        let before = u128::from(self.sums[part.min(self.each.len())]);
        ((u128::from(n) * before + all / 2) / all) as u64
    }
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

impl PartialEq for Shares {
    fn eq(&self, other: &Self) -> bool {
        let kept = |shares: &Self| shares.unequal.map(std::ptr::from_ref);
        self.ranks == other.ranks && kept(self) == kept(other)
    }
}

impl Eq for Shares {}

impl Hash for Shares {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.ranks, self.mark()).hash(state);
    }
}

impl FromStr for Shares {
    type Err = LayoutError;

    /// Reads positive numbers with commas between them, in rank order: `4,4,1,1`. `4x2,1x2` is the
    /// same list.
    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let error = || LayoutError::ShareText { text: text.into() };
        let mut shares = Vec::new();
        for item in text.split(',') {
            let (share, count) = item.trim().split_once('x').unwrap_or((item.trim(), "1"));
            let count: usize = count.parse().ok().filter(|count| (1..=1 << 20).contains(count)).ok_or_else(error)?;
            shares.extend(std::iter::repeat_n(share.parse::<f64>().map_err(|_| error())?, count));
        }
        Self::new(&shares)
    }
}

impl fmt::Display for Shares {
    /// Writes the text that [`from_str`](Self::from_str) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<u64> = (0..self.ranks).map(|rank| self.weight(rank)).collect();
        for (i, run) in each.chunk_by(|a, b| a == b).enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match run.len() {
                RUN.. => write!(f, "{comma}{}x{}", run[0], run.len())?,
                count => write!(f, "{comma}{}", vec![run[0].to_string(); count].join(","))?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shares({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_tile_any_length_and_know_their_elements() {
        let lists: [&[f64]; 7] = [
            &[4.0, 4.0, 1.0, 1.0],
            &[1.0, 1e6],
            &[1e6, 1.0, 1.0],
            &[0.3, 0.1, 0.2],
            &[2.5],
            &[3.0, 3.0, 3.0],
            &[1.0, 2.0, 3.0, 5.0, 7.0, 11.0, 13.0],
        ];
        for list in lists {
            let shares = Shares::new(list).unwrap();
            let all: f64 = list.iter().sum();
            for n in [0, 1, 2, 3, 7, 10, 64, 97, 1000, u64::MAX / 2] {
                let mut end = 0;
                for (part, share) in list.iter().enumerate() {
                    let range = shares.split(n, part);
                    assert_eq!(range.start, end);
                    end = range.end;
                    // Both ends are rounded: less than one element of difference in all.
                    let exact = n as f64 * share / all;
                    assert!(((range.end - range.start) as f64 - exact).abs() <= 1.0 + 1e-3 * n as f64, "{list:?} {n}");
                    assert_eq!(shares.len_of(n, part), range.end - range.start);
                }
                assert_eq!(end, n);
                assert!(shares.split(n, list.len()).is_empty() && shares.split(n, usize::MAX).is_empty());
                assert_eq!(shares.most(n), (0..list.len()).map(|part| shares.len_of(n, part)).max().unwrap());
                let elements = (0..n.min(200)).chain(n.saturating_sub(200)..n);
                elements
                    .for_each(|at| assert!(shares.split(n, shares.owner(n, at)).contains(&at), "{list:?} {n} {at}"));
            }
        }
    }

    #[test]
    fn equal_lists_are_equal_shares() {
        let equal = Shares::new(&[7.5; 5]).unwrap();
        assert_eq!(equal, Shares::from(5));
        assert!(equal.are_equal() && equal.mark() == 0);
        assert_eq!((0..5).map(|part| equal.split(13, part)).collect::<Vec<_>>(), [0..3, 3..6, 6..9, 9..11, 11..13]);
        let one = Shares::new(&[8.0, 8.0, 2.0]).unwrap();
        let other = Shares::new(&[0.4, 0.4, 0.1]).unwrap();
        assert!(one == other && one.mark() == other.mark() && one != Shares::new(&[2.0, 8.0, 8.0]).unwrap());
        assert_eq!(one.among(&[0, 1]), Shares::from(2));
        assert_eq!(one.among(&[2, 0]), Shares::new(&[1.0, 4.0]).unwrap());
    }

    #[test]
    fn a_text_is_read_as_it_was_written() {
        for (text, written) in [
            ("4,4,1,1", "4,4,1,1"),
            (" 1.5, 1", "3,2"),
            ("2x4,1x2", "2x4,1,1"),
            ("1x3", "1x3"),
            ("1,1", "1,1"),
            ("1e3,1", "1000,1"),
        ] {
            let shares: Shares = text.parse().unwrap();
            assert_eq!(shares.to_string(), written);
            assert_eq!(written.parse(), Ok(shares));
        }
        for wrong in ["", "a", "1,,1", "1;2", "1x0", "1x", "x2", "1x9999999"] {
            assert!(matches!(wrong.parse::<Shares>(), Err(LayoutError::ShareText { .. })), "{wrong}");
        }
    }

    #[test]
    fn shares_that_are_not_positive_numbers_are_errors() {
        for (list, rank) in
            [(&[1.0, 0.0][..], 1), (&[-1.0], 0), (&[1.0, f64::NAN], 1), (&[f64::INFINITY, 1.0], 0), (&[1.0, 2e6], 1)]
        {
            let error = Shares::new(list).unwrap_err();
            assert!(matches!(error, LayoutError::Share { rank: found, .. } if found == rank), "{error}");
        }
        assert_eq!(Shares::new(&[]), Err(LayoutError::NoShares));
    }
}
