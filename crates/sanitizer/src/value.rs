//! Values of a workgroup's invocations.

/// Why a scalar is not what it seems: the number of an origin, 0 for one that is.
///
/// A value that differs between devices does no harm until something depends on it. So the
/// interpreter marks it, and every value computed from it, as memory checkers do.
pub type Taint = u16;

/// Marks values that depend on the order of invocations, such as the result of an atomic operation.
/// Not a problem, but another device may have a different value.
pub const ORDER: Taint = Taint::MAX;

/// Returns the mark of the result of two scalars: that of a problem before that of an order.
pub fn either(a: Taint, b: Taint) -> Taint {
    if a == 0 || b == 0 { a | b } else { a.min(b) }
}

/// A value with one or more scalars in every invocation, as bits. What is the same in all
/// invocations is there once.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// By scalar, then by invocation.
    pub bits: Vec<u64>,
    /// Same order as `bits`; empty if no scalar has a mark.
    taints: Vec<Taint>,
    /// From one scalar to the next: the number of invocations, or 0 where all have the same.
    stride: usize,
}

impl Value {
    /// Creates a value with the same scalars in all invocations.
    pub fn all(bits: Vec<u64>) -> Self {
        Value { bits, taints: Vec::new(), stride: 0 }
    }

    /// Zeros, one for each of `scalars` and `lanes`.
    pub fn zeros(scalars: usize, lanes: usize) -> Self {
        Value { bits: vec![0; scalars * lanes], taints: Vec::new(), stride: lanes }
    }

    /// Returns `true` if it is the same in all invocations.
    pub fn is_uniform(&self) -> bool {
        self.stride == 0
    }

    /// Returns how many scalars an invocation has.
    pub fn scalars(&self) -> usize {
        self.bits.len() / self.stride.max(1)
    }

    fn at(&self, scalar: usize, lane: u32) -> usize {
        if self.stride == 0 { scalar } else { scalar * self.stride + lane as usize }
    }

    pub fn get(&self, scalar: usize, lane: u32) -> u64 {
        self.bits[self.at(scalar, lane)]
    }

    pub fn taint(&self, scalar: usize, lane: u32) -> Taint {
        if self.taints.is_empty() { 0 } else { self.taints[self.at(scalar, lane)] }
    }

    /// Returns the taint of any of an invocation's scalars.
    pub fn taint_of_any(&self, lane: u32) -> Taint {
        if self.taints.is_empty() {
            return 0;
        }
        (0..self.scalars()).map(|n| self.taint(n, lane)).fold(0, either)
    }

    /// Sets a scalar of one invocation; of a uniform value, of all.
    pub fn set(&mut self, scalar: usize, lane: u32, bits: u64) {
        let at = self.at(scalar, lane);
        self.bits[at] = bits;
    }

    /// Marks a scalar of one invocation; of a uniform value, of all.
    pub fn mark(&mut self, scalar: usize, lane: u32, taint: Taint) {
        if taint == 0 && self.taints.is_empty() {
            return;
        }
        let at = self.at(scalar, lane);
        self.taints.resize(self.bits.len(), 0);
        self.taints[at] = taint;
    }

    /// Scalars `first..first + count` of it.
    pub fn part(&self, first: usize, count: usize) -> Self {
        let of = self.stride.max(1);
        let range = first * of..(first + count) * of;
        let taints = if self.taints.is_empty() { Vec::new() } else { self.taints[range.clone()].into() };
        Value { bits: self.bits[range].into(), taints, stride: self.stride }
    }

    /// Room for `scalars` scalars in `lanes` invocations, once where all that they are made `from`
    /// is the same in all; and the invocations of `mask` to make them in.
    fn room<'m>(scalars: usize, lanes: usize, mask: &'m [u32], from: &[&Value]) -> (Self, &'m [u32]) {
        if from.iter().all(|value| value.is_uniform()) {
            (Value::all(vec![0; scalars]), &mask[..1])
        } else {
            (Value::zeros(scalars, lanes), mask)
        }
    }

    /// Creates a value computed from `from` in the invocations `mask` of `lanes`. A source with as
    /// many scalars as the result taints the result scalar by scalar. Any other source taints all
    /// scalars.
    pub fn computed(
        scalars: usize,
        lanes: usize,
        mask: &[u32],
        from: &[&Value],
        mut scalar: impl FnMut(usize, u32) -> u64,
    ) -> Self {
        let (mut value, mask) = Self::room(scalars, lanes, mask, from);
        for n in 0..scalars {
            mask.iter().for_each(|&lane| value.set(n, lane, scalar(n, lane)));
        }
        for source in from.iter().filter(|source| !source.taints.is_empty()) {
            let each = source.scalars() == scalars;
            for n in 0..scalars {
                for &lane in mask {
                    let taint = if each { source.taint(n, lane) } else { source.taint_of_any(lane) };
                    value.mark(n, lane, either(taint, value.taint(n, lane)));
                }
            }
        }
        value
    }

    /// A value whose scalars are some of those of other values: `place` says of which, and which.
    pub fn moved(
        scalars: usize,
        lanes: usize,
        mask: &[u32],
        from: &[&Value],
        mut place: impl FnMut(usize, u32) -> (usize, usize),
    ) -> Self {
        let (mut value, mask) = Self::room(scalars, lanes, mask, from);
        for n in 0..scalars {
            for &lane in mask {
                let (source, scalar) = place(n, lane);
                value.set(n, lane, from[source].get(scalar, lane));
                value.mark(n, lane, from[source].taint(scalar, lane));
            }
        }
        value
    }
}
