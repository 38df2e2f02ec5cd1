//! Operators of functions that run on the host.

use std::error::Error;
use std::rc::Rc;

use super::{
    Contents, Differentiable, Fingerprint, Linearized, OperatorCost, OperatorError, Result, Signature, Space, Vector,
    refuse,
};
use crate::comm::Op;
use crate::grid::Cost;
use crate::host_memory;
use crate::rank::Rank;

/// The result of a function of [`HostFunction`]: the numbers of each leaf on this rank, in the
/// order of the names, or an error of the caller.
pub type HostResult = Result<Vec<Vec<f64>>, Box<dyn Error + Send + Sync>>;

type Function = dyn Fn(&[Vec<f64>]) -> HostResult;
type Product = dyn Fn(&[Vec<f64>], &[Vec<f64>]) -> HostResult;

/// An operator of three functions on the host: `value(x)`, `jvp(x, dx)` and `vjp(x, dy)`.
///
/// A function gets and returns the numbers of each leaf on this rank, in the order of the names and
/// the layout of the arrays on the device; complex numbers are pairs. Numbers of leaves on the
/// device are rounded to `f32`. Every call waits for the device, downloads all leaves at once and
/// uploads the results at once. Use [`PointwiseOperator`](super::PointwiseOperator) or
/// [`KernelOperator`](super::KernelOperator) for functions that can be written in WGSL.
///
/// On several ranks each function runs on every rank, with the rank's own part of distributed
/// leaves, which may be empty, and all of replicated leaves.
///
/// | target | requirement | derivatives |
/// |---|---|---|
/// | distributed | a rank's part depends on its own part of the domain | `vjp` returns the contribution of the rank's own part to replicated leaves; the operator adds those of all ranks in `f64` |
/// | replicated | the domain is replicated, too | results of rank 0 are used on all ranks |
///
/// The functions must not call collectives of the rank. An error on one rank fails on all.
/// [`check_derivative`](super::check_derivative) and [`check_adjoint`](super::check_adjoint) find
/// mistakes in derivatives.
///
/// ```
/// use meshloom::operators::{HostFunction, Leaf, Model, Signature, Space, check_adjoint, random_field};
///
/// meshloom::run(|rank| {
///     let (domain, target) = (Space::of("x", Leaf::vector(3))?, Space::of("y", Leaf::vector(3))?);
///     let times = |x: &[Vec<f64>], dx: &[Vec<f64>]| {
///         Ok(vec![x[0].iter().zip(&dx[0]).map(|(x, dx)| x.exp() * dx).collect()])
///     };
///     let exp = Model::new(HostFunction::new(
///         rank,
///         Signature::new("exp", &domain, &target),
///         "1",
///         |x| Ok(vec![x[0].iter().map(|x| x.exp()).collect()]),
///         times,
///         times,
///     )?);
///     let point = random_field(rank, &domain, 1)?;
///     check_adjoint(rank, &exp, &point)?;
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct HostFunction {
    signature: Signature,
    version: String,
    value: Box<Function>,
    jvp: Box<Product>,
    vjp: Box<Product>,
}

impl HostFunction {
    /// Creates the operator. Collective.
    ///
    /// `version` is any text that changes with the functions: a fit resumes only with an operator
    /// of the same name and version, since functions cannot be compared.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if on several ranks the target has replicated leaves and the
    ///   operator has distributed ones.
    /// - [`OperatorError::Comm`] if names or versions of ranks differ.
    pub fn new(
        rank: &Rank,
        signature: Signature,
        version: &str,
        value: impl Fn(&[Vec<f64>]) -> HostResult + 'static,
        jvp: impl Fn(&[Vec<f64>], &[Vec<f64>]) -> HostResult + 'static,
        vjp: impl Fn(&[Vec<f64>], &[Vec<f64>]) -> HostResult + 'static,
    ) -> Result<Self> {
        rank.comm.agree("HostFunction", &[("name", &signature.name), ("version", &version)])?;
        if let (2.., Some(why)) = (rank.size(), mixed(&signature)) {
            let why = format!(
                "{why}, and a function sees the part of one of {} ranks; give the contributions of ranks as a leaf of points and \
                 add them with RankCollective",
                rank.size()
            );
            return refuse(&signature.name, why);
        }
        let version = version.into();
        Ok(HostFunction { signature, version, value: Box::new(value), jvp: Box::new(jvp), vjp: Box::new(vjp) })
    }

    /// Runs `function`, checks what it returns for `space`, and writes it into `out`.
    fn call(
        &self,
        rank: &mut Rank,
        which: &str,
        function: impl FnOnce() -> HostResult,
        out: &mut Vector,
    ) -> Result<()> {
        let name = &self.signature.name;
        let mut found = rank.comm.together(|| {
            let found =
                function().map_err(|error| OperatorError::Failed { operator: format!("{name} ({which})"), error })?;
            self.check(which, out.space(), &found)?;
            Ok::<_, OperatorError>(found)
        })?;
        check_numbers(rank, name, which, out.space(), &found)?;
        if rank.size() > 1 {
            self.unite(rank, out.space(), &mut found)?;
        }
        upload(rank, &found, out)
    }

    /// Checks the number of leaves and their lengths.
    fn check(&self, which: &str, space: &Space, found: &[Vec<f64>]) -> Result<()> {
        if found.len() != space.len() {
            let why = format!("{which}: expected {} leaves, {space}, got {}", space.len(), found.len());
            return refuse(&self.signature.name, why);
        }
        match space.leaves().zip(found).find(|((_, leaf), found)| leaf.len() != found.len() as u64) {
            Some(((leaf_name, leaf), found)) => {
                let why = format!("{which}: expected {} numbers for {leaf}, got {}", leaf.len(), found.len());
                Err(OperatorError::Fit { operator: self.signature.name.to_string(), leaf: leaf_name.into(), why })
            }
            None => Ok(()),
        }
    }

    /// Makes replicated leaves of a result the same on several ranks.
    fn unite(&self, rank: &Rank, space: &Space, found: &mut [Vec<f64>]) -> Result<()> {
        let is_sum = self.signature.target.leaves().any(|(_, leaf)| leaf.is_distributed());
        for ((_, leaf), values) in space.leaves().zip(found) {
            match (leaf.is_distributed(), is_sum) {
                (true, _) => {}
                (false, true) => rank.comm.all_reduce(values, Op::Sum)?,
                (false, false) => rank.comm.broadcast(0, values)?,
            }
        }
        Ok(())
    }
}

/// Checks that all numbers are finite on the device. The error is the same on all ranks:
/// searches of minimizers go on with a smaller step.
pub(crate) fn check_numbers(rank: &Rank, operator: &str, which: &str, space: &Space, found: &[Vec<f64>]) -> Result<()> {
    let wrong = space.leaves().zip(found).find_map(|((name, leaf), found)| {
        let is_double = leaf.is_on_host();
        let rounded = |value: f64| if is_double { value } else { f64::from(value as f32) };
        let at = found.iter().position(|&value| !rounded(value).is_finite())?;
        Some((format!("number {at} of leaf `{name}` of its {which}"), rounded(found[at])))
    });
    let Some(what) = rank.comm.first_fault(wrong.as_ref().map(|(what, _)| what.as_str()))? else { return Ok(()) };
    let values =
        rank.comm.all_gather(&[f64::from(u8::from(wrong.is_some())), wrong.map_or(0.0, |(_, value)| value)])?;
    let value = values.chunks(2).find(|pair| pair[0] > 0.0).map_or(f64::NAN, |pair| pair[1]);
    Err(OperatorError::NotFinite { operator: operator.into(), what, value })
}

/// Returns the reason why one rank cannot compute its part of the target, if there is one.
fn mixed(signature: &Signature) -> Option<String> {
    let (whole, _) = signature.target.leaves().find(|(_, leaf)| !leaf.is_distributed())?;
    let mut leaves = signature.domain.leaves().chain(signature.target.leaves());
    let (part, _) = leaves.find(|(_, leaf)| leaf.is_distributed())?;
    Some(format!("leaf `{whole}` of the target is replicated, but leaf `{part}` is distributed"))
}

/// Returns the numbers of all leaves of this rank, with one download.
pub(crate) fn download(rank: &mut Rank, x: &Vector) -> Result<Vec<Vec<f64>>> {
    const WHAT: &str = "leaves on the host";
    let numbers = x.download(&mut rank.recorder)?;
    let mut rest = &numbers[..];
    let leaf = |contents: &Contents| match contents {
        Contents::Host(values) => host_memory::copy(WHAT, values),
        Contents::Device(array) => {
            let (own, more) = rest.split_at(array.len() as usize);
            rest = more;
            host_memory::collect(WHAT, own.iter().map(|&value| f64::from(value)))
        }
    };
    Ok(x.contents().iter().map(leaf).collect::<Result<_, _>>()?)
}

/// Writes the numbers of all leaves of this rank, with one upload.
pub(crate) fn upload(rank: &mut Rank, found: &[Vec<f64>], out: &mut Vector) -> Result<()> {
    let len = found.iter().map(Vec::len).sum();
    let mut numbers: Vec<f32> = host_memory::reserve("numbers of leaves", len)?;
    for (contents, found) in out.contents_mut().iter_mut().zip(found) {
        match contents {
            Contents::Host(values) => values.copy_from_slice(found),
            Contents::Device(_) => numbers.extend(found.iter().map(|&value| value as f32)),
        }
    }
    Ok(out.upload(&mut rank.recorder, &numbers)?)
}

impl Differentiable for HostFunction {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        self.fits(x, y)?;
        let x = download(rank, x)?;
        self.call(rank, "value", || (self.value)(&x), y)
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        self.fits(x, y)?;
        let x = download(rank, x)?;
        self.call(rank, "value", || (self.value)(&x), y)?;
        Ok(Box::new(HostFunctionAt { operator: self, x }))
    }

    fn derivative(self: Rc<Self>, rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearized>> {
        self.signature.domain.admits(x.space(), &self.signature.name)?;
        let x = download(rank, x)?;
        Ok(Box::new(HostFunctionAt { operator: self, x }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.text(&self.version);
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        // Both copies between host and device; the time of the functions is not known.
        let both = self.signature.domain.own_numbers() + self.signature.target.own_numbers();
        let cost = Cost::kernels(0, 4 * both);
        OperatorCost { apply: cost, jvp: cost, vjp: cost }
    }
}

/// The derivative at `x`.
struct HostFunctionAt {
    operator: Rc<HostFunction>,
    x: Vec<Vec<f64>>,
}

impl Linearized for HostFunctionAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        self.operator.fits(dx, dy)?;
        let dx = download(rank, dx)?;
        self.operator.call(rank, "jvp", || (self.operator.jvp)(&self.x, &dx), dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        self.operator.fits(dx, dy)?;
        let dy = download(rank, dy)?;
        self.operator.call(rank, "vjp", || (self.operator.vjp)(&self.x, &dy), dx)
    }
}
