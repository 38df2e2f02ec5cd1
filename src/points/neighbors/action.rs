//! Actions on the neighbors that a search within a radius finds, and their kernels.

use super::callback::{self, MODULE};
use super::group_shape::GroupShape;
use super::search_kernel::{SearchVariant, search};
use crate::gpu::{Callback, CallbackKey, KernelSource, Trust};

/// Action on the neighbors that a search finds; `C` is a callback, or the key of its kernels.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Action<C> {
    /// They are counted.
    Count,
    /// They are listed.
    Fill,
    /// Each adds `weight` to the bin of its distance, one of `bins`.
    Pairs { bins: u32, weight: u32, tally: Tally },
    /// Each adds the product of its weight and the query's to the bin of its distance, one of
    /// `bins`. With `has_queries`, queries are not sources and have their own weights.
    WeightedPairs { bins: u32, has_queries: bool, tally: Tally },
    /// A callback runs.
    Callback(C),
}

/// Key of the kernels of such searches.
pub(super) type Key = (SearchVariant, Action<CallbackKey>);

impl Action<&Callback> {
    /// Returns `true` if workgroups count for themselves, before they add up what they have.
    pub fn in_workgroups(&self) -> bool {
        let (Action::Pairs { tally, .. } | Action::WeightedPairs { tally, .. }) = self else { return false };
        matches!(tally, Tally::Registers | Tally::Workgroup)
    }

    pub fn key(&self, variant: SearchVariant) -> Key {
        let action = match *self {
            Action::Count => Action::Count,
            Action::Fill => Action::Fill,
            Action::Pairs { bins, weight, tally } => Action::Pairs { bins, weight, tally },
            Action::WeightedPairs { bins, has_queries, tally } => Action::WeightedPairs { bins, has_queries, tally },
            Action::Callback(callback) => Action::Callback(callback.key()),
        };
        (variant, action)
    }

    /// Returns the values of its parameters.
    pub fn values(&self) -> Vec<u8> {
        if let Action::Callback(callback) = self { callback.values() } else { Vec::new() }
    }

    /// Returns the rounds of loops per neighbor.
    pub fn rounds(&self) -> u32 {
        if let Action::Callback(callback) = self { callback.rounds() } else { 0 }
    }

    pub fn trust(&self) -> Trust {
        if let Action::Callback(callback) = self { callback.trust() } else { Trust::Library }
    }
}

/// Returns the kernel of a search within a radius.
pub(super) fn within_kernel(variant: SearchVariant, visit: &Action<&Callback>) -> KernelSource {
    let text = include_str!("../../../shaders/points/neighbors/within.wgsl");
    let pairs = matches!(visit, Action::Pairs { .. } | Action::WeightedPairs { .. });
    let stopping = matches!(visit, Action::Callback(callback) if callback::stops(callback));
    let source = search("neighbors::within", text, variant)
        .flag("links", false)
        .flag("squares", pairs)
        .flag("histogram", visit.in_workgroups())
        .flag("queued", false)
        .flag("whole", matches!(visit, Action::Count | Action::Pairs { .. }))
        .module("neighbors::whole_nodes", include_str!("../../../shaders/points/neighbors/whole_nodes.wgsl"))
        .flag("offsets", matches!(visit, Action::Callback(callback) if callback::takes_offset(callback)))
        .flag("stopping", stopping);
    let library = |source: KernelSource, text: &'static str| source.module(MODULE, text);
    match *visit {
        Action::Count => library(source, include_str!("../../../shaders/points/neighbors/count.wgsl")),
        Action::Fill => library(source, include_str!("../../../shaders/points/neighbors/fill.wgsl")),
        Action::Pairs { bins, weight, tally } => {
            let source = source.constant("BINS", bins).constant("WEIGHT", weight);
            match tally {
                Tally::Registers => {
                    let text = include_str!("../../../shaders/points/neighbors/pairs_few_bins.wgsl");
                    library(source, text).repeat('@', bins + 1)
                }
                Tally::Workgroup | Tally::Result => {
                    library(source, include_str!("../../../shaders/points/neighbors/pairs.wgsl"))
                        .constant("HALF", bins.next_power_of_two() / 2)
                        .repeat('@', bins.next_power_of_two().ilog2())
                }
            }
        }
        Action::WeightedPairs { bins, has_queries, .. } => {
            library(source, include_str!("../../../shaders/points/neighbors/pairs_weighted.wgsl"))
                .flag("other", has_queries)
                .constant("BINS", bins)
                .constant("HALF", bins.next_power_of_two() / 2)
                .repeat('@', bins.next_power_of_two().ilog2())
        }
        Action::Callback(callback) => callback.bind(source, MODULE),
    }
}

/// Bins that an invocation counts in registers, one for each edge.
pub(super) const FEW_BINS: u32 = 16;
/// Bins that a workgroup counts in its memory, 8 KiB.
pub(super) const WORKGROUP_BINS: u32 = 2048;

/// Memory in which pairs are counted before they are added to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tally {
    /// In registers of each invocation, then in workgroup memory.
    Registers,
    /// In workgroup memory.
    Workgroup,
    /// Nowhere: each is added to the result.
    Result,
}

impl Tally {
    /// Software renderers, whose invocations have several queries each, count few bins in
    /// registers: an access to workgroup memory takes them as long as comparing with all edges. On
    /// a GPU the registers would cost half of the groups in flight.
    pub fn of(form: GroupShape, bins: u32) -> Self {
        match bins {
            ..=FEW_BINS if form.slots > 1 => Tally::Registers,
            ..=WORKGROUP_BINS => Tally::Workgroup,
            _ => Tally::Result,
        }
    }
}
