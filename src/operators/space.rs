//! Spaces: trees of named leaves, such as `prior/slope`. They are pure data, so that operators are
//! checked when they are composed.

use std::fmt;
use std::sync::Arc;

use super::{Leaf, OperatorError, Result, refuse};
use crate::exchange::GridComms;
use crate::gpu::Recorder;
use crate::rank::Rank;

/// Named leaves in the order of their names. Clones are cheap.
///
/// ```
/// use meshloom::operators::{Leaf, Space};
///
/// meshloom::run(|rank| {
///     let mesh = rank.mesh([8, 8]).periodic([2.0; 2]).build()?;
///     let latent = Space::new([("xi", Leaf::modes(&mesh)), ("spectrum/slope", Leaf::vector(1))])?;
///     assert_eq!(latent.leaf("xi").unwrap().total(), 64);
///     assert_eq!(latent.names().collect::<Vec<_>>(), ["spectrum/slope", "xi"]);
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    leaves: Arc<[(String, Leaf)]>,
}

impl Space {
    /// Creates a space.
    ///
    /// # Errors
    /// - [`OperatorError::Space`] if a name is empty or repeated, or a leaf has no components,
    ///   cells or size.
    pub fn new<N: Into<String>>(leaves: impl IntoIterator<Item = (N, Leaf)>) -> Result<Self> {
        let mut leaves: Vec<(String, Leaf)> = leaves.into_iter().map(|(name, leaf)| (name.into(), leaf)).collect();
        leaves.sort_by(|(a, _), (b, _)| a.cmp(b));
        let wrong = |leaf: &str, why: String| Err(OperatorError::Space { leaf: leaf.into(), why });
        for (number, (name, leaf)) in leaves.iter().enumerate() {
            if name.is_empty() || name.split('/').any(str::is_empty) {
                return wrong(name, "a name, or a part of one between slashes, is empty".into());
            }
            if number > 0 && leaves[number - 1].0 == *name {
                return wrong(name, "two leaves have this name; give each its own".into());
            }
            if let Some(why) = leaf.fault() {
                return wrong(name, why);
            }
        }
        Ok(Space { leaves: leaves.into() })
    }

    /// Creates a space of one leaf.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn of(name: &str, leaf: Leaf) -> Result<Self> {
        Self::new([(name, leaf)])
    }

    /// Returns the leaves, in the order of their names.
    #[must_use]
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = (&str, &Leaf)> + Clone {
        self.leaves.iter().map(|(name, leaf)| (name.as_str(), leaf))
    }

    /// Returns the names, in order.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.leaves().map(|(name, _)| name)
    }

    /// Returns the number of leaves.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Returns `true` if it has no leaves.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Returns the index of a leaf in the order.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.leaves.binary_search_by(|(other, _)| other.as_str().cmp(name)).ok()
    }

    /// Returns the leaf `name`.
    #[must_use]
    pub fn leaf(&self, name: &str) -> Option<&Leaf> {
        self.position(name).map(|at| &self.leaves[at].1)
    }

    /// Returns the leaf if there is only one.
    #[must_use]
    pub fn only(&self) -> Option<(&str, &Leaf)> {
        if self.len() == 1 { self.leaves().next() } else { None }
    }

    /// Returns the number of real numbers of this rank.
    #[must_use]
    pub fn own_numbers(&self) -> u64 {
        self.leaves().map(|(_, leaf)| leaf.len()).sum()
    }

    /// Returns the number of real numbers of all ranks, ghost cells included.
    #[must_use]
    pub fn total_numbers(&self) -> u64 {
        self.leaves().map(|(_, leaf)| leaf.total()).sum()
    }

    /// Returns the leaves below `branch`: `under("prior")` has `prior/slope` and not `prior`.
    #[must_use]
    pub fn under(&self, branch: &str) -> Self {
        self.filtered(|name| name.strip_prefix(branch).is_some_and(|rest| rest.starts_with('/')))
    }

    /// Returns the leaves whose names `keeps` accepts.
    pub(crate) fn filtered(&self, keeps: impl Fn(&str) -> bool) -> Self {
        Space { leaves: self.leaves.iter().filter(|(name, _)| keeps(name)).cloned().collect() }
    }

    /// Returns the leaves of both spaces, which have different names.
    pub(super) fn beside(&self, other: &Space) -> Result<Self> {
        Space::new([&self.leaves[..], &other.leaves].concat())
    }

    /// Returns the leaves of both spaces. Errors name `operator`.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if leaves of one name differ.
    pub fn joined(&self, other: &Space, operator: &str) -> Result<Self> {
        let mut leaves = self.leaves.to_vec();
        for (name, leaf) in other.leaves() {
            match self.leaf(name) {
                None => leaves.push((name.into(), leaf.clone())),
                Some(own) if own == leaf => {}
                Some(own) => return Err(OperatorError::fit(operator, name, own, leaf)),
            }
        }
        Space::new(leaves)
    }

    /// Returns the index of the leaf `name`, which must equal `wanted`. Errors name `operator`.
    pub(super) fn find(&self, name: &str, wanted: &Leaf, operator: &str) -> Result<usize> {
        match self.position(name).map(|at| (at, &self.leaves[at].1)) {
            Some((at, own)) if own == wanted => Ok(at),
            Some((_, own)) => Err(OperatorError::fit(operator, name, wanted, own)),
            None => Err(OperatorError::missing(operator, name, self)),
        }
    }

    /// Borrows the recorder and the exchanges of the process grid that the leaves are cut by.
    pub(super) fn parts<'a>(&self, rank: &'a mut Rank) -> Result<(&'a mut Recorder, &'a mut GridComms)> {
        let Some(mesh) = self.leaves().find_map(|(_, leaf)| leaf.mesh()) else {
            return refuse("process grid", format!("{self} is not on a grid"));
        };
        let parts = rank.parts(mesh.grid())?;
        Ok((parts.recorder, parts.comms))
    }

    /// Checks that the spaces are equal; the name of a single leaf does not matter. Errors name
    /// `operator`.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] otherwise.
    pub fn admits(&self, other: &Space, operator: &str) -> Result<()> {
        if Arc::ptr_eq(&self.leaves, &other.leaves) {
            return Ok(());
        }
        if let (Some((name, own)), Some((_, leaf))) = (self.only(), other.only()) {
            return if own == leaf { Ok(()) } else { Err(OperatorError::fit(operator, name, own, leaf)) };
        }
        for (name, own) in self.leaves() {
            other.find(name, own, operator)?;
        }
        match other.names().find(|name| self.position(name).is_none()) {
            Some(name) => Err(OperatorError::surplus(operator, name, self)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leaves: Vec<String> = self.leaves().map(|(name, leaf)| format!("{name}: {leaf}")).collect();
        write!(f, "{{{}}}", leaves.join("; "))
    }
}
