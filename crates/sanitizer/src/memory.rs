//! Memory of a dispatch: of buffers, workgroups and invocations, with what has been done to it.

use naga::{Scalar, ScalarKind, Span};

use super::shadow::{Cell, Kind, Who};
use super::value::{Taint, Value};

/// Bytes of a word, of which buffers consist.
pub const WORD: usize = 4;
/// Cells of a page.
const PAGE: usize = 1024;

/// The cells of a memory, made where something touches it.
#[derive(Default)]
struct Shadow {
    pages: Vec<Option<Box<[Cell; PAGE]>>>,
}

impl Shadow {
    fn cell(&mut self, at: usize) -> &mut Cell {
        let page = at / PAGE;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        &mut self.pages[page].get_or_insert_with(|| Box::new([Cell::default(); PAGE]))[at % PAGE]
    }
}

/// A scalar that a dispatch wrote.
#[derive(Clone, Copy)]
pub struct Write {
    pub scalar: Scalar,
    /// Statement that wrote it.
    pub by: Span,
}

/// Bytes that several invocations reach.
pub struct Memory {
    pub bytes: Vec<u8>,
    shadow: Shadow,
    /// Taints of the scalars that begin at each byte; empty where none has one.
    taints: Vec<Taint>,
    /// Last write of each word; empty if there was none.
    writes: Vec<Option<Write>>,
    /// Bytes that have one cell together. What a workgroup has may lie byte by byte (`bool`).
    grain: usize,
}

impl Memory {
    /// Creates the memory of a buffer.
    pub fn of_buffer(bytes: Vec<u8>) -> Self {
        Memory { bytes, shadow: Shadow::default(), taints: Vec::new(), writes: Vec::new(), grain: WORD }
    }

    /// Creates the memory of a workgroup, whose initial contents are undefined.
    pub fn of_workgroup(bytes: u32) -> Self {
        Memory {
            bytes: vec![0; bytes as usize],
            shadow: Shadow::default(),
            taints: Vec::new(),
            writes: Vec::new(),
            grain: 1,
        }
    }

    /// Returns `true` if a scalar at `at` lies in it.
    pub fn holds(&self, at: u64, scalar: Scalar) -> bool {
        at.checked_add(u64::from(scalar.width)).is_some_and(|end| end <= self.bytes.len() as u64)
    }

    /// Returns `true` if anybody has written the scalar at `at` in this dispatch.
    pub fn is_written(&mut self, at: u64) -> bool {
        let cell = at as usize / self.grain;
        self.shadow.cell(cell).is_written()
    }

    /// Notes an access; gives one that nothing orders with it.
    pub fn access(&mut self, at: u64, kind: Kind, who: Who) -> Option<(Kind, Who)> {
        let cell = at as usize / self.grain;
        self.shadow.cell(cell).access(kind, who)
    }

    pub fn read(&self, at: u64, scalar: Scalar) -> u64 {
        read(&self.bytes, at as usize, scalar)
    }

    /// Returns `true` if anything has been written.
    pub fn is_changed(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Returns the scalar that was written last at a word, if one was.
    pub fn written(&self, word: usize) -> Option<Write> {
        self.writes.get(word).copied().flatten()
    }

    pub fn taint(&self, at: u64) -> Taint {
        self.taints.get(at as usize).copied().unwrap_or(0)
    }

    pub fn write(&mut self, at: u64, scalar: Scalar, bits: u64, taint: Taint, by: Span) {
        // Of a buffer, which is compared with that of a device.
        if self.grain == WORD {
            self.writes.resize(self.bytes.len() / WORD, None);
            self.writes[at as usize / WORD] = Some(Write { scalar, by });
        }
        write(&mut self.bytes, at as usize, scalar, bits);
        mark(&mut self.taints, self.bytes.len(), at as usize, taint);
    }
}

fn mark(taints: &mut Vec<Taint>, bytes: usize, at: usize, taint: Taint) {
    if taint != 0 || !taints.is_empty() {
        taints.resize(bytes, 0);
        taints[at] = taint;
    }
}

/// Bytes of which each invocation has its own.
pub struct Private {
    /// Bytes of one invocation.
    pub size: usize,
    bytes: Vec<u8>,
    taints: Vec<Taint>,
}

impl Private {
    pub fn new(size: usize, lanes: usize) -> Self {
        Private { size, bytes: vec![0; size * lanes], taints: Vec::new() }
    }

    pub fn holds(&self, at: u64, scalar: Scalar) -> bool {
        at.checked_add(u64::from(scalar.width)).is_some_and(|end| end <= self.size as u64)
    }

    pub fn read(&self, lane: u32, at: u64, scalar: Scalar) -> u64 {
        read(&self.bytes, lane as usize * self.size + at as usize, scalar)
    }

    pub fn taint(&self, lane: u32, at: u64) -> Taint {
        self.taints.get(lane as usize * self.size + at as usize).copied().unwrap_or(0)
    }

    pub fn write(&mut self, lane: u32, at: u64, scalar: Scalar, bits: u64, taint: Taint) {
        let at = lane as usize * self.size + at as usize;
        write(&mut self.bytes, at, scalar, bits);
        mark(&mut self.taints, self.bytes.len(), at, taint);
    }
}

pub(super) fn read(bytes: &[u8], at: usize, scalar: Scalar) -> u64 {
    let width = usize::from(scalar.width);
    let mut bits = [0; 8];
    bits[..width].copy_from_slice(&bytes[at..at + width]);
    let bits = u64::from_le_bytes(bits);
    if scalar.kind == ScalarKind::Bool { u64::from(bits != 0) } else { bits }
}

fn write(bytes: &mut [u8], at: usize, scalar: Scalar, bits: u64) {
    let width = usize::from(scalar.width);
    bytes[at..at + width].copy_from_slice(&bits.to_le_bytes()[..width]);
}

/// Which memory a pointer points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// The buffer at a binding.
    Buffer(usize),
    /// A variable of the workgroup, by its number among global variables.
    Workgroup(usize),
    /// One of the memories of invocations.
    Private(usize),
}

/// One pointer for each invocation. The offset is in bytes. It is [`NOWHERE`] if the pointer leads
/// beyond the end of an array of known length.
#[derive(Clone, Debug)]
pub struct Pointer {
    pub root: Root,
    pub offset: Value,
}

/// An offset that no memory has.
pub const NOWHERE: u64 = u64::MAX - (1 << 32);
