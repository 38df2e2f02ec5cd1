//! Loads, stores and atomic operations, and what is wrong with them.

use super::interpreter::{Interpreter, Stop};
use super::memory::{NOWHERE, Pointer, Root};
use super::program::{Global, Leaf};
use super::report::Problem;
use super::shadow::{Kind, Who};
use super::value::{ORDER, Taint, Value, either};

impl Interpreter<'_> {
    /// Notes an access to the scalar at `at`, and says what is wrong with it. None if it lies
    /// nowhere; the mark of what is read otherwise.
    fn touch(&mut self, root: Root, at: u64, leaf: Leaf, kind: Kind, reads: bool, lane: u32) -> Option<Taint> {
        let group = self.group;
        let [of_buffers, of_workgroup, barriers] = self.barriers;
        let who = |epoch| Who { group: group + 1, lane, epoch, barriers };
        let (memory, who) = match root {
            Root::Private(n) => {
                let memory = &self.private[n];
                if memory.holds(at, leaf.scalar) {
                    return Some(memory.taint(lane, at));
                }
                let size = memory.size;
                self.find(Problem::OutOfBounds, || format!("{}, of a variable of {size} bytes", place(at)));
                return None;
            }
            Root::Buffer(binding) => (self.buffers.get_mut(binding)?, who(of_buffers)),
            Root::Workgroup(n) => (self.workgroup[n].as_mut()?, who(of_workgroup)),
        };
        let size = memory.bytes.len();
        if !memory.holds(at, leaf.scalar) {
            self.find(Problem::OutOfBounds, || {
                format!("invocation {lane} of workgroup {group} at {}, of {size} bytes", place(at))
            });
            return None;
        }
        let mut taint = memory.taint(at);
        let unwritten = reads && matches!(root, Root::Workgroup(_)) && !memory.is_written(at);
        if let Some((other_kind, other)) = memory.access(at, kind, who) {
            self.race(root, at, [(who, kind), (other, other_kind)]);
        }
        if unwritten {
            taint = self.origin(Problem::Unwritten, || format!("invocation {lane}, byte {at}"));
        }
        if self.again && kind == Kind::Read {
            let writers = self.raced.get(&(root, of_group(root, group), at));
            if let Some(&(writer, how)) =
                writers.and_then(|writers| writers.iter().find(|(writer, how)| writer.races(*how, who)))
            {
                taint = self.origin(Problem::Race, || {
                    let whose = if writer.group == who.group { String::new() } else { format!(" of workgroup {}", writer.group - 1) };
                    let does = if how == Kind::Atomic { "changes" } else { "writes" };
                    format!(
                        "invocation {lane} of workgroup {group} reads byte {at}, which invocation {}{whose} {does} without order between them",
                        writer.lane
                    )
                });
            }
        }
        Some(taint)
    }

    /// Two accesses to a place without order between them. Those of which one reads do no harm
    /// unless something depends on what it reads.
    fn race(&mut self, root: Root, at: u64, [(who, kind), (other, other_kind)]: [(Who, Kind); 2]) {
        let writer = match (kind, other_kind) {
            (Kind::Read, _) => Some((other, other_kind)),
            (_, Kind::Read) => Some((who, kind)),
            _ => None,
        };
        if let Some(writer) = writer {
            let writers = self.raced.entry((root, of_group(root, self.group), at)).or_default();
            if !writers.contains(&writer) {
                writers.push(writer);
            }
            return;
        }
        self.find(Problem::Race, || {
            format!(
                "invocations {} and {} of workgroups {} and {} both write byte {at}",
                other.lane,
                who.lane,
                other.group - 1,
                who.group - 1
            )
        });
    }

    pub(super) fn load(
        &mut self,
        pointer: &Pointer,
        leaves: &[Leaf],
        atomic: bool,
        mask: &[u32],
    ) -> Result<Value, Stop> {
        let kind = if atomic { Kind::Atomic } else { Kind::Read };
        let uniform = pointer.offset.is_uniform() && matches!(pointer.root, Root::Buffer(n) if self.is_read_only(n));
        let mut value =
            if uniform { Value::all(vec![0; leaves.len()]) } else { Value::zeros(leaves.len(), self.lanes) };
        self.count(pointer, leaves, mask);
        let mask = if uniform { &mask[..1] } else { mask };
        self.depend(&pointer.offset, mask);
        for (n, &leaf) in leaves.iter().enumerate() {
            for &lane in mask {
                let at = pointer.offset.get(0, lane).saturating_add(u64::from(leaf.offset));
                if let Some(taint) = self.touch(pointer.root, at, leaf, kind, true, lane) {
                    let bits = self.read(pointer.root, at, leaf, lane);
                    self.scale(pointer.root, leaf, bits);
                    value.set(n, lane, bits);
                    value.mark(n, lane, either(taint, pointer.offset.taint(0, lane)));
                }
            }
        }
        Ok(value)
    }

    /// Counts an access, subgroup by subgroup, if accesses are counted. Parameters come out of a
    /// cache of their own.
    fn count(&mut self, pointer: &Pointer, leaves: &[Leaf], mask: &[u32]) {
        let Some(traffic) = &mut self.report.traffic else { return };
        let bytes: u64 = leaves.iter().map(|leaf| u64::from(leaf.scalar.width)).sum();
        for part in mask.chunk_by(|a, b| a / self.subgroup == b / self.subgroup) {
            let places = part.iter().map(|&lane| pointer.offset.get(0, lane)).filter(|&at| at < NOWHERE);
            let places: Vec<u64> = places.collect();
            if places.is_empty() {
                continue;
            }
            match pointer.root {
                Root::Buffer(binding) if binding > 0 => traffic.buffer(&places, bytes),
                Root::Workgroup(_) if matches!(bytes, 4 | 8 | 16) => traffic.workgroup(&places, bytes),
                _ => {}
            }
        }
    }

    fn is_read_only(&self, binding: usize) -> bool {
        let mut globals = self.program.globals.iter();
        globals.any(|global| *global == Global::Buffer { binding, written: false })
    }

    fn read(&self, root: Root, at: u64, leaf: Leaf, lane: u32) -> u64 {
        match root {
            Root::Private(n) => self.private[n].read(lane, at, leaf.scalar),
            Root::Buffer(n) => self.buffers[n].read(at, leaf.scalar),
            Root::Workgroup(n) => self.workgroup[n].as_ref().map_or(0, |memory| memory.read(at, leaf.scalar)),
        }
    }

    fn write(&mut self, root: Root, at: u64, leaf: Leaf, lane: u32, (bits, taint): (u64, Taint)) {
        let by = self.at;
        self.scale(root, leaf, bits);
        match root {
            Root::Private(n) => self.private[n].write(lane, at, leaf.scalar, bits, taint),
            Root::Buffer(n) => self.buffers[n].write(at, leaf.scalar, bits, taint, by),
            Root::Workgroup(n) => {
                self.workgroup[n].iter_mut().for_each(|memory| memory.write(at, leaf.scalar, bits, taint, by))
            }
        }
    }

    pub(super) fn store(
        &mut self,
        pointer: &Pointer,
        leaves: &[Leaf],
        atomic: bool,
        value: &Value,
        mask: &[u32],
    ) -> Result<(), Stop> {
        let kind = if atomic { Kind::Atomic } else { Kind::Write };
        self.depend(&pointer.offset, mask);
        self.count(pointer, leaves, mask);
        // What a buffer gets is seen by others.
        if atomic || matches!(pointer.root, Root::Buffer(_)) {
            self.depend(value, mask);
        }
        for (n, &leaf) in leaves.iter().enumerate() {
            for &lane in mask {
                let at = pointer.offset.get(0, lane).saturating_add(u64::from(leaf.offset));
                if self.touch(pointer.root, at, leaf, kind, false, lane).is_some() {
                    let taint = either(value.taint(n, lane), pointer.offset.taint(0, lane));
                    self.write(pointer.root, at, leaf, lane, (value.get(n, lane), taint));
                }
            }
        }
        Ok(())
    }

    /// Reads a scalar, and writes what `change` makes of it in each invocation; gives what was
    /// there. Which of them come first is open: what was there depends on it, and so does what is
    /// there in the end if it is `ordered`.
    pub(super) fn exchange(
        &mut self,
        pointer: &Pointer,
        leaf: Leaf,
        ordered: bool,
        mask: &[u32],
        mut change: impl FnMut(u64, u32) -> Result<Option<u64>, Stop>,
    ) -> Result<Value, Stop> {
        let mut old = Value::zeros(1, self.lanes);
        self.depend(&pointer.offset, mask);
        self.count(pointer, &[leaf], mask);
        for &lane in mask {
            let at = pointer.offset.get(0, lane);
            let Some(taint) = self.touch(pointer.root, at, leaf, Kind::Atomic, true, lane) else { continue };
            let was = self.read(pointer.root, at, leaf, lane);
            old.set(0, lane, was);
            old.mark(0, lane, either(taint, ORDER));
            if let Some(bits) = change(was, lane)? {
                let taint = if ordered { either(taint, ORDER) } else { taint };
                self.write(pointer.root, at, leaf, lane, (bits, taint));
            }
        }
        Ok(old)
    }
}

/// Returns the workgroup whose memory a place is in; 0 for buffers, which all share.
fn of_group(root: Root, group: u32) -> u32 {
    if matches!(root, Root::Workgroup(_)) { group } else { 0 }
}

fn place(at: u64) -> String {
    if at >= NOWHERE { "an index behind the end".into() } else { format!("byte {at}") }
}
