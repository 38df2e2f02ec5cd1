//! Operators of functions of many items that run on the host.

use std::ops::Range;
use std::rc::Rc;

use super::chunk::ChunkSize;
use super::error::MapError;
use super::mapping::{Deal, Mapping, Placement, RowReduction};
use super::tree::{Fold, Node, sum_over_ranks};
use crate::grid::Cost;
use crate::host_memory;
use crate::operators::{
    Differentiable, Fingerprint, HostResult, Leaf, Linearized, OperatorCost, OperatorError, Signature, Space, Vector,
    check_numbers, download, upload,
};
use crate::rank::Rank;

type Value = dyn Fn(Range<u64>, &[Vec<f64>]) -> HostResult;
type Product = dyn Fn(Range<u64>, &[Vec<f64>], &[Vec<f64>]) -> HostResult;

/// A function of many items and of parameters on the host, with its derivative by the parameters.
///
/// Three functions work on a range of items: `value(items, x)`, `jvp(items, x, dx)` and `vjp(items,
/// x, dy)`. They get the numbers of each leaf in the order of the names, and return one row per
/// item for each leaf: of the target, or of the domain for `vjp`. Rows follow each other. Every
/// rank works on its block of items ([`Deal`]), in chunks. The domain has replicated leaves only.
///
/// | placement of an output | leaf of the target |
/// |---|---|
/// | [`Placement::Sharded`] | [points](Leaf::points), `width` per item, item by item |
/// | [`Placement::Reduced`] with [`RowReduction::Sum`] | `width` [parameters](Leaf::parameters): the sum over all items in f64 |
///
/// Sums over items, also those of `vjp`, follow the tree of [`map`](super::map): they have the same
/// bits for any chunk and number of ranks if a row does not depend on its chunk. `vjp` leaves out
/// items at the ends of a chunk whose cotangents are 0.
///
/// The functions must not call collectives of the rank. An error on one rank fails on all.
///
/// ```
/// use meshloom::map::{ChunkSize, HostMap, Mapping, Placement};
/// use meshloom::operators::{Leaf, Model, Space, check_adjoint, random_field};
///
/// meshloom::run(|rank| {
///     // exp(a t) at times t = 0, 0.1, ..
///     let times = |items: std::ops::Range<u64>| items.map(|item| item as f64 * 0.1);
///     let product = move |items, x: &[Vec<f64>], d: f64| times(items).map(|t| t * (x[0][0] * t).exp() * d).collect();
///     let decay = Model::new(HostMap::new(
///         rank,
///         "decay",
///         &Space::of("a", Leaf::parameters(1))?,
///         &Mapping::new(50).chunk(ChunkSize::Items(8)).output("y", 1, Placement::Sharded),
///         move |items, x| Ok(vec![times(items).map(|t| (x[0][0] * t).exp()).collect()]),
///         move |items, x, dx| Ok(vec![product(items, x, dx[0][0])]),
///         move |items, x, dy| {
///             let rows: Vec<f64> = product(items, x, 1.0);
///             Ok(vec![rows.iter().zip(&dy[0]).map(|(row, dy)| row * dy).collect()])
///         },
///     )?);
///     let point = random_field(rank, decay.domain(), 1)?;
///     check_adjoint(rank, &decay, &point)?;
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct HostMap {
    signature: Signature,
    version: String,
    deal: Deal,
    own: Range<u64>,
    chunk: u64,
    /// The outputs in the order of the leaves of the target.
    outputs: Vec<Output>,
    value: Box<Value>,
    jvp: Box<Product>,
    vjp: Box<Product>,
}

/// Width of an output, and whether it is a sum.
#[derive(Clone, Copy)]
struct Output {
    width: usize,
    is_sum: bool,
}

/// Sums of rows over items. A row of zeros is `None`.
type Sums = Fold<Option<Vec<f64>>>;

impl HostMap {
    /// Creates the operator. Collective.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for distributed leaves of the domain, no items or outputs,
    ///   chunks by memory, and outputs of another placement than those above.
    /// - [`OperatorError::Comm`] if names or mappings of ranks differ.
    pub fn new(
        rank: &Rank,
        name: &str,
        domain: &Space,
        mapping: &Mapping,
        value: impl Fn(Range<u64>, &[Vec<f64>]) -> HostResult + 'static,
        jvp: impl Fn(Range<u64>, &[Vec<f64>], &[Vec<f64>]) -> HostResult + 'static,
        vjp: impl Fn(Range<u64>, &[Vec<f64>], &[Vec<f64>]) -> HostResult + 'static,
    ) -> Result<Self, OperatorError> {
        rank.comm.agree("HostMap", &[("name", &name), ("mapping", mapping)])?;
        let invalid = |why: String| OperatorError::Invalid { operator: name.into(), why };
        mapping.check().map_err(|error: MapError| invalid(error.to_string()))?;
        let ChunkSize::Items(chunk) = mapping.chunk else {
            return Err(invalid("chunks by device memory, but items are on the host; give a number of items".into()));
        };
        if mapping.items == 0 || mapping.outputs().is_empty() {
            return Err(invalid(format!(
                "expected at least one item and output, got {} and {}",
                mapping.items,
                mapping.outputs().len()
            )));
        }
        if let Some((leaf, _)) = domain.leaves().find(|(_, leaf)| leaf.is_distributed()) {
            let why = format!("leaf `{leaf}` of the domain is distributed; expected vectors and parameters");
            return Err(invalid(why));
        }
        let deal = Deal { items: mapping.items, shares: rank.comm.shares() };
        let own = deal.block(rank.index());
        let mut leaves = Vec::new();
        for output in mapping.outputs() {
            let leaf = match &output.placement {
                Placement::Sharded => Leaf::points((own.end - own.start) * output.width, deal.items * output.width),
                Placement::Reduced(RowReduction::Sum) => Leaf::parameters(output.width),
                other => {
                    let why =
                        format!("output `{}`: expected it sharded or reduced to a sum, got {other:?}", output.name);
                    return Err(invalid(why));
                }
            };
            leaves.push((output.name.clone(), leaf));
        }
        let target = Space::new(leaves)?;
        let of_leaf = |name: &str| {
            let output = mapping.outputs().iter().find(|output| output.name == name)?;
            Some(Output { width: output.width as usize, is_sum: output.placement != Placement::Sharded })
        };
        Ok(HostMap {
            outputs: target.names().filter_map(of_leaf).collect(),
            signature: Signature::new(name.to_owned(), domain, &target),
            version: String::new(),
            deal,
            own,
            chunk,
            value: Box::new(value),
            jvp: Box::new(jvp),
            vjp: Box::new(vjp),
        })
    }

    /// Sets the version: any text that changes with the functions and the items. A fit resumes only
    /// with an operator of the same name and version, since functions cannot be compared.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    fn chunks(&self) -> impl Iterator<Item = Range<u64>> {
        let (end, chunk) = (self.own.end, self.chunk);
        let starts = self.own.clone().step_by(usize::try_from(chunk).unwrap_or(usize::MAX));
        starts.map(move |first| first..first.saturating_add(chunk).min(end))
    }

    /// Returns the rows of a function for some items, with `widths` numbers for each leaf.
    fn rows(
        &self,
        which: &str,
        space: &Space,
        widths: &[usize],
        items: &Range<u64>,
        found: HostResult,
    ) -> Result<Vec<Vec<f64>>, OperatorError> {
        let name = &self.signature.name;
        let found = found.map_err(|error| OperatorError::Failed { operator: format!("{name} ({which})"), error })?;
        let invalid = |why: String| OperatorError::Invalid { operator: name.to_string(), why };
        if found.len() != widths.len() {
            let why = format!("{which}: expected {} leaves, {space}, got {}", widths.len(), found.len());
            return Err(invalid(why));
        }
        let count = items.end - items.start;
        for ((leaf, width), found) in space.names().zip(widths).zip(&found) {
            if found.len() as u64 != count * *width as u64 {
                return Err(invalid(format!(
                    "{which}, leaf `{leaf}`: expected {width} numbers for each of {count} items, got {}",
                    found.len()
                )));
            }
        }
        Ok(found)
    }

    /// Computes a vector of the target from the rows of a function.
    fn collect(
        &self,
        rank: &mut Rank,
        which: &str,
        function: impl Fn(Range<u64>) -> HostResult,
        y: &mut Vector,
    ) -> Result<(), OperatorError> {
        let (target, own) = (&self.signature.target, (self.own.end - self.own.start) as usize);
        let widths: Vec<usize> = self.outputs.iter().map(|output| output.width).collect();
        let (mut found, sums) = rank.comm.together(|| {
            let zeros = |output: &Output| {
                host_memory::zeros("rows of items", if output.is_sum { 0 } else { output.width * own })
            };
            let mut found = self.outputs.iter().map(zeros).collect::<Result<Vec<Vec<f64>>, _>>()?;
            let mut sums = Sums::default();
            for items in self.chunks() {
                let rows = self.rows(which, target, &widths, &items, function(items.clone()))?;
                for (at, item) in items.enumerate() {
                    let place = (item - self.own.start) as usize;
                    let mut summands = Vec::new();
                    for ((output, rows), found) in self.outputs.iter().zip(&rows).zip(&mut found) {
                        let row = &rows[at * output.width..(at + 1) * output.width];
                        if output.is_sum {
                            summands.extend_from_slice(row);
                            continue;
                        }
                        found[place * output.width..(place + 1) * output.width].copy_from_slice(row);
                    }
                    add_item(&mut sums, item, Some(summands))?;
                }
            }
            Ok::<_, OperatorError>((found, sums))
        })?;
        let len = self.outputs.iter().filter(|output| output.is_sum).map(|output| output.width).sum();
        let mut total = self.total(rank, len, sums)?.into_iter();
        for (output, found) in self.outputs.iter().zip(&mut found).filter(|(output, _)| output.is_sum) {
            *found = total.by_ref().take(output.width).collect();
        }
        check_numbers(rank, &self.signature.name, which, target, &found)?;
        upload(rank, &found, y)
    }

    /// Returns the sum over the items of all ranks: `len` numbers.
    fn total(&self, rank: &Rank, len: usize, sums: Sums) -> Result<Vec<f64>, OperatorError> {
        let zeros = || vec![0.0; len];
        let nodes: Vec<Vec<f64>> = sums.into_values().into_iter().map(|sum| sum.unwrap_or_else(zeros)).collect();
        let nodes: Vec<&[f64]> = nodes.iter().map(Vec::as_slice).collect();
        Ok(sum_over_ranks(&rank.comm, self.deal, len, &nodes)?)
    }

    /// Returns the rows of a vector of the target for some items.
    fn cotangents(&self, dy: &[Vec<f64>], items: &Range<u64>) -> Vec<Vec<f64>> {
        let [first, end] = [items.start, items.end].map(|item| (item - self.own.start) as usize);
        let rows = |(output, dy): (&Output, &Vec<f64>)| match output.is_sum {
            true => dy.repeat(end - first),
            false => dy[first * output.width..end * output.width].to_vec(),
        };
        self.outputs.iter().zip(dy).map(rows).collect()
    }

    /// Computes the cotangent of the domain.
    fn pull_back(
        &self,
        rank: &mut Rank,
        x: &[Vec<f64>],
        dy: &[Vec<f64>],
        dx: &mut Vector,
    ) -> Result<(), OperatorError> {
        let domain = &self.signature.domain;
        let widths: Vec<usize> = domain.leaves().map(|(_, leaf)| leaf.len() as usize).collect();
        let sums = rank.comm.together(|| {
            let mut sums = Sums::default();
            for items in self.chunks() {
                // An item contributes nothing if its cotangent is 0, whether or not it is computed.
                let is_zero = |item: u64| self.cotangents(dy, &(item..item + 1)).iter().flatten().all(|v| *v == 0.0);
                let counts: Vec<bool> = items.clone().map(|item| !is_zero(item)).collect();
                let first = items.start + counts.iter().take_while(|counts| !**counts).count() as u64;
                let end = items.end - counts.iter().rev().take_while(|counts| !**counts).count() as u64;
                let rows = if first < end {
                    let found = (self.vjp)(first..end, x, &self.cotangents(dy, &(first..end)));
                    self.rows("vjp", domain, &widths, &(first..end), found)?
                } else {
                    Vec::new()
                };
                for (item, counts) in items.zip(counts) {
                    let row = counts.then(|| {
                        let at = (item - first) as usize;
                        let leaf = |(rows, width): (&Vec<f64>, &usize)| rows[at * width..(at + 1) * width].to_vec();
                        rows.iter().zip(&widths).flat_map(leaf).collect()
                    });
                    add_item(&mut sums, item, row)?;
                }
            }
            Ok::<_, OperatorError>(sums)
        })?;
        let mut total = self.total(rank, widths.iter().sum(), sums)?.into_iter();
        let found: Vec<Vec<f64>> = widths.iter().map(|width| total.by_ref().take(*width).collect()).collect();
        check_numbers(rank, &self.signature.name, "vjp", domain, &found)?;
        upload(rank, &found, dx)
    }
}

/// Adds the row of an item; `None` is a row of zeros.
fn add_item(sums: &mut Sums, item: u64, row: Option<Vec<f64>>) -> Result<(), OperatorError> {
    // A zero becomes positive, so that sums with and without rows of zeros have the same bits.
    let row = row.map(|row| row.into_iter().map(|value| value + 0.0).collect());
    sums.push(Node::item(item), row, |sum: &mut Option<Vec<f64>>, one| {
        match (sum.as_mut(), one) {
            (Some(sum), Some(one)) => sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one),
            (None, one) => *sum = one,
            (Some(_), None) => {}
        }
        Ok(())
    })
}

impl Differentiable for HostMap {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.fits(x, y)?;
        let x = download(rank, x)?;
        self.collect(rank, "value", |items| (self.value)(items, &x), y)
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        self.fits(x, y)?;
        let x = download(rank, x)?;
        self.collect(rank, "value", |items| (self.value)(items, &x), y)?;
        Ok(Box::new(HostMapAt { operator: self, x }))
    }

    fn derivative(self: Rc<Self>, rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearized>, OperatorError> {
        self.signature.domain.admits(x.space(), &self.signature.name)?;
        let x = download(rank, x)?;
        Ok(Box::new(HostMapAt { operator: self, x }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        out.text(&self.version);
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        // Copies between host and device; the time of the functions is not known.
        let both = self.signature.domain.own_numbers() + self.signature.target.own_numbers();
        let cost = Cost::kernels(0, 4 * both);
        OperatorCost { apply: cost, jvp: cost, vjp: cost }
    }
}

/// The derivative at `x`.
struct HostMapAt {
    operator: Rc<HostMap>,
    x: Vec<Vec<f64>>,
}

impl Linearized for HostMapAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        let dx = download(rank, dx)?;
        self.operator.collect(rank, "jvp", |items| (self.operator.jvp)(items, &self.x, &dx), dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        let dy = download(rank, dy)?;
        self.operator.pull_back(rank, &self.x, &dy, dx)
    }
}
