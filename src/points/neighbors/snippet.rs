//! What a user wants done with neighbours, as WGSL.

use crate::gpu::{Access, KernelSource};
use crate::gpu::{Array, DeviceElement, DeviceError, RawArray, Slot, Trust};

/// A piece of WGSL that is run on the neighbours of each query, so that lists need not be stored.
///
/// The text defines
///
/// ```wgsl
/// alias State = f32;                                      // any type
/// fn begin(query: u32, reach: f32) -> State { .. }        // before the first neighbour
/// fn each(state: State, near: Neighbor) -> State { .. }   // for every neighbour
/// fn end(query: u32, state: State) { .. }                 // after the last; stores what is wanted
/// ```
///
/// and, with [`Snippet::stopping`], `fn done(state: State) -> bool`. `query` is the number of the query in its input; `reach` the
/// distance of the last neighbour that was found (lists of the nearest) or the radius of the search;
/// `struct Neighbor { index: u32, distance: f32 }` a source and how far it is. Names of other things should begin with
/// `user_`, lest they meet those of the kernel.
///
/// - Nearest neighbours come nearest first, equal distances by index. Those of a radius come in no order: results are the same
///   for every tree, rank count and driver only if the order does not matter (counts, minima, integers).
/// - Arrays are named by [`read`](Self::read), [`write`](Self::write) and [`atomic`](Self::atomic), which give the accessors
///   `load_x(i)`, `store_x(i, value)`, `add_x(i, value)` and so on.
/// - In a radius search a query may be taken up several times (where a driver limits loops, in large trees): `begin` must go on from
///   what `end` has stored, and the caller clears that before.
/// - A source is seen as a neighbour of itself unless the search leaves it out.
/// - A search with a snippet is compiled with run-time checks, as [`Kernel::new`](crate::gpu::Kernel::new) says.
///
/// ```
/// use meshloom::points::neighbors::Snippet;
/// # fn snippet(distances: &meshloom::gpu::Array<f32>) -> Snippet {
/// // Mean distance of the neighbours of each point.
/// Snippet::new("
///     alias State = vec2<f32>;
///     fn begin(query: u32, reach: f32) -> State { return State(0.0); }
///     fn each(state: State, near: Neighbor) -> State { return state + State(near.distance, 1.0); }
///     fn end(query: u32, state: State) { store_mean(query, state.x / max(state.y, 1.0)); }
/// ").write("mean", distances)
/// # }
/// ```
#[derive(Clone)]
pub struct Snippet {
    pub(super) text: String,
    pub(super) slots: Vec<(Slot, RawArray)>,
    pub(super) stopping: bool,
    pub(super) rounds: u32,
    pub(super) trust: Trust,
}

impl Snippet {
    /// A piece with this text; see the type's documentation for what it defines.
    pub fn new(text: impl Into<String>) -> Self {
        Self::on_word_of(Trust::Nobody, text)
    }

    /// As [`new`](Self::new), for searches without run-time checks.
    ///
    /// # Safety
    /// For all queries and neighbours the text must do what
    /// [`Kernel::new_unchecked`](crate::gpu::Kernel::new_unchecked) asks for.
    pub unsafe fn new_unchecked(text: impl Into<String>) -> Self {
        Self::on_word_of(Trust::Caller, text)
    }

    /// A snippet of the library.
    pub(super) fn trusted(text: impl Into<String>) -> Self {
        Self::on_word_of(Trust::Library, text)
    }

    fn on_word_of(trust: Trust, text: impl Into<String>) -> Self {
        Snippet { text: text.into(), slots: Vec::new(), stopping: false, rounds: 0, trust }
    }

    fn array<T: DeviceElement>(mut self, name: &'static str, array: &Array<T>, access: Access) -> Self {
        self.slots.push((Slot { name: name.into(), element: T::ELEMENT, access }, array.raw().clone()));
        self
    }

    /// An array to read.
    #[must_use]
    pub fn read<T: DeviceElement>(self, name: &'static str, array: &Array<T>) -> Self {
        self.array(name, array, Access::Read)
    }

    /// An array to read and write; no two queries may touch one element.
    #[must_use]
    pub fn write<T: DeviceElement>(self, name: &'static str, array: &Array<T>) -> Self {
        self.array(name, array, Access::ReadWrite)
    }

    /// An array of `u32` or `i32` that is changed by atomic operations.
    #[must_use]
    pub fn atomic<T: DeviceElement>(self, name: &'static str, array: &Array<T>) -> Self {
        self.array(name, array, Access::Atomic)
    }

    /// Asks `fn done(state: State) -> bool` after each neighbour of a radius search, and ends the query when it is true.
    #[must_use]
    pub fn stopping(mut self) -> Self {
        self.stopping = true;
        self
    }

    /// Says that `each` takes up to so many rounds of loops of its own (0 otherwise; its `begin` and `end` may take 4000). Where a
    /// driver limits them, searches are cut accordingly.
    #[must_use]
    pub fn looping(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Gives a kernel that imports `neighbors::callback` its text, with the declarations of its arrays.
    pub(super) fn bind(&self, source: KernelSource) -> KernelSource {
        let declaration = |slot: &Slot| {
            let (name, element) = (&slot.name, slot.element.wgsl());
            match slot.access {
                Access::Read => format!("var<storage, read> {name}: array<{element}>;\n"),
                Access::ReadWrite => format!("var<storage, read_write> {name}: array<{element}>;\n"),
                Access::Atomic => format!("var<storage, read_write> {name}: array<atomic<{element}>>;\n"),
            }
        };
        let text: String = self.slots.iter().map(|(slot, _)| declaration(slot)).chain([self.text.clone()]).collect();
        source.callers_module("neighbors::callback", text)
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &RawArray> {
        self.slots.iter().map(|(_, array)| array)
    }

    /// What tells its kernels from others: the text, how its arrays are bound, and who vouches for it.
    pub(super) fn key(&self) -> Key {
        Key {
            text: self.text.clone(),
            slots: self.slots.iter().map(|(slot, _)| slot.clone()).collect(),
            stopping: self.stopping,
            trust: self.trust,
        }
    }

    /// Refuses a text that lacks one of the functions, before a driver says so less clearly.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let needed = ["fn begin(", "fn each(", "fn end(", "alias State"].into_iter();
        let needed = needed.chain(self.stopping.then_some("fn done("));
        for part in needed {
            if !self.text.contains(part) {
                let why = format!("the text has no `{part}`");
                return Err(DeviceError::Misuse { what: "neighbors::Snippet".into(), why });
            }
        }
        Ok(())
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    text: String,
    slots: Vec<Slot>,
    stopping: bool,
    trust: Trust,
}
