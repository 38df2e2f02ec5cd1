//! The form of values between ranks.

use std::sync::Arc;

use crate::gpu::{Array, DeviceError, Element, Kernel, KernelSource, MemoryKind, Recorder};
use crate::grid::{Transfer, Transfers};

/// The form of values between ranks. What a rank sends itself stays exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wire {
    /// Unchanged.
    #[default]
    Exact,
    /// `f32` and `[f32; 2]` as 16-bit integers in blocks: about half the bytes. Arrays of any other
    /// type travel exactly, and so do rows of points: what routes and ghosts move, results of
    /// searches, particles in order.
    ///
    /// - Each part is cut into blocks of 64 `f32`. A block travels as its step, a power of two, and
    ///   64 integers: 132 bytes instead of 256.
    /// - A value is wrong by at most 2^-15 of the largest magnitude in its block, or by 2^-126
    ///   where that is more: half a step, and for the largest itself at most one. Integers up to
    ///   2^14 are exact where the block has no larger values.
    /// - A block with a NaN or an infinity arrives as NaN, all of it.
    /// - The result depends on where parts begin, and so on the number of ranks.
    Block16,
}

/// Values per block, and words that its coded form takes.
const BLOCK: u64 = 64;
const CODED: u64 = 1 + BLOCK / 2;
/// Blocks that a workgroup encodes, and its invocations.
const BLOCKS_EACH: u64 = 8;
const GROUP: u32 = 64;

/// The kernels of [`Wire::Block16`].
pub(super) struct Codec {
    encode: Kernel,
    decode: Kernel,
}

crate::gpu::kernel_params! {
    struct WireParams {
        /// The part's first word among values.
        start: u32,
        /// Words of the part.
        count: u32,
        /// The part's first word in its coded form.
        target_start: u32,
        blocks: u32,
    }
}

/// Returns the kernels that encode and decode.
pub(super) fn kernels() -> [KernelSource; 2] {
    let encode = KernelSource::new("exchange::encode", include_str!("../../shaders/exchange/encode.wgsl"));
    let decode = KernelSource::new("exchange::decode", include_str!("../../shaders/exchange/decode.wgsl"));
    [encode.params::<WireParams>().group(GROUP), decode.params::<WireParams>()]
}

impl Default for Codec {
    fn default() -> Self {
        let [encode, decode] = kernels().map(Kernel::trusted);
        Codec { encode, decode }
    }
}

/// Place of a part among the values and in coded form, in words.
struct CodedPlace {
    plain: u64,
    count: u64,
    coded: u64,
}

/// An exchange of coded words in place of one of values.
pub(super) struct Coded {
    pub transfers: Transfers,
    pub outgoing: Array<u32>,
    pub incoming: Array<u32>,
    pub decoding: Decoding,
}

/// Work that is done when all coded words have arrived.
pub(super) struct Decoding {
    codec: Arc<Codec>,
    places: Vec<CodedPlace>,
    coded: Array<u32>,
    plain: Array<u32>,
}

impl Codec {
    /// Returns `true` if it knows arrays of this element.
    pub fn takes(element: Element) -> bool {
        matches!(element, Element::F32 | Element::Complex32)
    }

    /// Records the coding of what `me` sends to others out of `outgoing`, seen as words, `words`
    /// per element of `transfers`.
    pub fn encode(
        self: &Arc<Self>,
        recorder: &mut Recorder,
        transfers: &Transfers,
        me: usize,
        words: u64,
        [outgoing, incoming]: [&Array<u32>; 2],
    ) -> Result<Coded, DeviceError> {
        let [send, receive] = [&transfers.send, &transfers.receive].map(|parts| CodedParts::of(parts, me, words));
        let gpu = recorder.gpu().clone();
        let message = gpu.array_in::<u32>("exchange::encoded", send.words, MemoryKind::Outgoing)?;
        for place in &send.places {
            let arrays = [outgoing.raw(), message.raw()];
            recorder.dispatch(&self.encode, &arrays, &place.params(), place.blocks().div_ceil(BLOCKS_EACH))?;
        }
        let coded = gpu.array_in::<u32>("exchange::received", receive.words, MemoryKind::Incoming)?;
        let places = receive.places;
        let decoding = Decoding { codec: self.clone(), places, coded: coded.clone(), plain: incoming.clone() };
        let transfers = Transfers { send: send.parts, receive: receive.parts };
        Ok(Coded { transfers, outgoing: message, incoming: coded, decoding })
    }
}

impl Decoding {
    /// Records it.
    pub fn record(self, recorder: &mut Recorder) -> Result<(), DeviceError> {
        let Decoding { codec, places, coded, plain } = self;
        let arrays = [plain.raw(), coded.raw()];
        let words = |place: &CodedPlace| place.blocks() * (BLOCK / 2);
        places.iter().try_for_each(|place| recorder.each(&codec.decode, &arrays, &place.params(), words(place)))
    }
}

impl CodedPlace {
    fn blocks(&self) -> u64 {
        self.count.div_ceil(BLOCK)
    }

    fn params(&self) -> WireParams {
        let [start, count, target_start, blocks] =
            [self.plain, self.count, self.coded, self.blocks()].map(|n| n as u32);
        WireParams { start, count, target_start, blocks }
    }
}

/// The parts that travel between ranks, as coded words one behind the other.
struct CodedParts {
    parts: Vec<Transfer>,
    places: Vec<CodedPlace>,
    /// Words in all.
    words: u64,
}

impl CodedParts {
    /// Returns the places of those `parts` that are not for `me`, with `words` words per element.
    fn of(parts: &[Transfer], me: usize, words: u64) -> Self {
        let mut coded = CodedParts { parts: Vec::new(), places: Vec::new(), words: 0 };
        for part in parts.iter().filter(|part| part.peer != me && part.len > 0) {
            let (count, start) = (part.len * words, coded.words);
            let rest = count % BLOCK;
            let len = count / BLOCK * CODED + if rest > 0 { 1 + rest.div_ceil(2) } else { 0 };
            coded.parts.push(Transfer { peer: part.peer, start, len });
            coded.places.push(CodedPlace { plain: part.start * words, count, coded: start });
            coded.words += len;
        }
        coded
    }
}
