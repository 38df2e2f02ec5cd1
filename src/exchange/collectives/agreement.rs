//! Whether all ranks have called the same collective of device arrays, and what each of them gives.
//!
//! Data travel as messages between two ranks, of lengths that both must know. So ranks first
//! exchange what they called, 80 bytes each along trees: what must agree does, or all of them
//! return an error and nothing moves; what each gives is known to all.

use bytemuck::{Pod, Zeroable};

use crate::comm::{CommError, Communicator, Op};
use crate::exchange::ExchangeError;

/// In place of what an operation does not have.
const NONE: u32 = u32::MAX;

/// A call: all that ranks must agree on, and what the rank gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Call {
    /// Name of the collective.
    operation: [u8; 20],
    /// Name of the type of the elements.
    ty: [u8; 12],
    op: u32,
    root: u32,
    /// Ranks that this one sends to and receives from.
    pub peers: [u32; 2],
    fields: u64,
    /// Elements of a field where ranks must agree on them, or a hash of several numbers.
    pub agreed: u64,
    /// Elements of a field that this rank gives.
    pub own: u64,
    /// Whether what it gives does not fit.
    fault: u64,
}

/// Returns the bytes of `name`, as many as fit, and zeros.
fn padded<const N: usize>(name: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(name.bytes()).for_each(|(byte, of_name)| *byte = of_name);
    bytes
}

impl Call {
    /// Returns a call of the collective `operation` for `fields` fields of elements of the type
    /// `ty`, with `own` elements per field on this rank.
    pub fn new(operation: &str, ty: &str, fields: u64, own: u64) -> Call {
        let (operation, ty) = (padded(operation), padded(ty));
        Call { operation, ty, op: NONE, root: NONE, peers: [NONE; 2], fields, own, ..Call::zeroed() }
    }

    /// Adds the number of elements, on which ranks must agree.
    pub fn equal(self) -> Call {
        Call { agreed: self.own, ..self }
    }

    /// Adds another number on which ranks must agree.
    pub fn agreeing(self, agreed: u64) -> Call {
        Call { agreed, ..self }
    }

    pub fn root(self, root: usize) -> Call {
        Call { root: root as u32, ..self }
    }

    pub fn reducing(self, op: Op) -> Call {
        Call { op: op as u32, ..self }
    }

    pub fn between(self, to: Option<usize>, from: Option<usize>) -> Call {
        Call { peers: [to, from].map(|peer| peer.map_or(NONE, |rank| rank as u32)), ..self }
    }

    /// Returns the rank that this one sends to, and that which it receives from.
    pub fn named_peers(&self) -> [Option<usize>; 2] {
        self.peers.map(|peer| (peer != NONE).then_some(peer as usize))
    }

    fn differs(&self, other: &Call) -> bool {
        let shape = |call: &Call| (call.operation, call.ty, call.op, call.root, call.fields, call.agreed);
        shape(self) != shape(other)
    }

    /// Such as `all_reduce of 5 f32 on the device, Sum`.
    fn describe(&self) -> String {
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        let mut text = format!("{} of {} {} on the device", name(&self.operation), self.own, name(&self.ty));
        if self.fields != 1 {
            text += &format!(", {} fields", self.fields);
        }
        if let Some(op) = [Op::Sum, Op::Min, Op::Max].into_iter().find(|op| *op as u32 == self.op) {
            text += &format!(", {op:?}");
        }
        if self.root != NONE {
            text += &format!(", root {}", self.root);
        }
        text
    }
}

/// Returns the calls of all ranks where they agree; `valid` says whether what this rank gives fits
/// its call.
///
/// # Errors
/// On all ranks: that of `valid` where there is one, elsewhere [`CommError::Mismatch`].
pub(super) fn agree(
    comm: &Communicator,
    own: Call,
    valid: Result<(), ExchangeError>,
) -> Result<Vec<Call>, ExchangeError> {
    let own = Call { fault: u64::from(valid.is_err()), ..own };
    let all = comm.all_gather(&[own])?;
    valid?;
    let Some(other) = all.iter().position(|other| other.fault != 0 || other.differs(&own)) else { return Ok(all) };
    let other_called = match all[other].fault {
        0 => format!("called {}", all[other].describe()),
        _ => format!("could not call {}, as its own error says", all[other].describe()),
    };
    Err(CommError::Mismatch { rank: comm.rank(), called: own.describe(), other, other_called }.into())
}
