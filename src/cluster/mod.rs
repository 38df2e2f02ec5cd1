//! Model of a cluster: what a distributed transform or a force takes on machines that are not
//! there.
//!
//! A [`Machine`] describes the nodes: device queues, copies between devices and the host, host
//! threads, network interfaces. Forecasts ([`crate::fft::Forecast`], [`crate::pm::RunForecast`])
//! translate a plan into the steps of each rank: the same passes, chunks and messages that the
//! executor takes, from the same functions. An event loop runs the steps of all ranks against the
//! resources of the machine:
//!
//! ```text
//! pass -> device queue | chunk -> copy out -> host: o a message -> interface -> latency
//!         -> interface of the receiver -> host: o, copy -> chunk -> copy in -> next pass
//! ```
//!
//! - A resource serves requests in the order in which they come. The host thread of a rank serves
//!   messages one after the other.
//! - Chunks in flight are bounded as in [`Exchange`](crate::exchange::Exchange). A message that is
//!   not short waits until its receiver has asked for it.
//! - Between ranks of a node that share pages, the device of the receiver copies from the pages of
//!   the sender, and a credit returns.
//! - More than 16 ranks on several nodes are *folded*: only the ranks of one node are followed,
//!   the node of the rank with the most cells. A message to another node comes back to the node as
//!   the one that the corresponding rank of another node sends. Seconds agree with those of all
//!   ranks within 2 % for powers of two, 5 % if the lines of the process grid are whole nodes or
//!   divide them, and 40 % otherwise (from 65 ranks on, with fewer all are followed).
//! - Up to 64 ranks with unequal [shares](crate::grid::Shares) are all followed. With more, other
//!   nodes do as the followed one, which changes seconds by up to 25 % if one node of 32 has larger
//!   shares than the others.
//! - Of more than 256 chunks of a rank in one exchange, several are followed as one.
//!
//! Not in the model: collectives of a few words, compilation, congestion inside the network
//! (beyond [`Machine::taper`]), noise, caches of the host, and work of the host other than messages
//! and submissions. A host that waits polls, which takes time from a device on the same cores.

mod events;
mod fold;
mod machine;
mod state;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use events::simulate;
pub(crate) use machine::least_seconds;
pub use machine::{Machine, MachineError};
pub(crate) use steps::{Line, Start, Step, Work};
