//! Shared by tests of inference: goldens, fields that are filled by flat latent vectors, ranks
//! with workers.
//!
//! The goldens in `tests/goldens` were computed in f64 by NIFTy.re 9.2; what its `_meta` says was
//! also computed by independent code in numpy.

use std::fs;
use std::path::Path;

use meshloom::comm::run_threads;
use meshloom::gpu::{Gpu, Options};
use meshloom::grid::Grid;
use meshloom::inference::InferenceError;
use meshloom::operators::{Leaf, Space, Support, Vector};
use meshloom::{Mesh, Rank};
use serde_json::Value;

/// Returns a file of goldens. Programs of tests run in the package's directory, which need not be
/// the one that they were built in.
pub fn golden(name: &str) -> Value {
    let path = Path::new("tests/goldens").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the numbers of a list, or list of lists, one after the other.
pub fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        value => vec![value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))],
    }
}

/// Mean and standard deviation.
pub fn pair(value: &Value) -> [f64; 2] {
    numbers(value).try_into().unwrap()
}

/// Runs `body` on the ranks of a process grid and returns what they give, in order.
pub fn ranks<T: Send>(parts: [usize; 2], body: impl Fn(&mut Rank) -> Result<T, InferenceError> + Sync) -> Vec<T> {
    ranks_with(parts, &meshloom_sanitizer::options().unwrap(), body)
}

/// Runs it on devices of these options.
pub fn ranks_with<T: Send>(
    parts: [usize; 2],
    options: &Options,
    body: impl Fn(&mut Rank) -> Result<T, InferenceError> + Sync,
) -> Vec<T> {
    let shares = crate::process_grid::shares(parts);
    let results = run_threads(shares.ranks(), |comm| -> Result<T, InferenceError> {
        crate::process_grid::set(Grid::new(parts, shares).unwrap());
        body(&mut Rank::new(comm.with_shares(shares)?, Gpu::open(options, 0)?)?)
    });
    results.unwrap_or_else(|error| panic!("{parts:?}: {error}"))
}

/// Returns a grid of one to three axes with cells of these sizes.
pub fn grid(rank: &Rank, shape: &[u64], distances: &[f64]) -> Mesh {
    let (mut cells, mut size) = ([1; 3], [1.0; 3]);
    for (n, own) in shape.iter().rev().enumerate() {
        cells[2 - n] = *own;
        size[2 - n] = *own as f64 * distances[(distances.len() - 1).saturating_sub(n)];
    }
    crate::process_grid::mesh(rank, cells, size)
}

/// Global indices of the numbers of this rank.
fn own(leaf: &Leaf) -> Vec<usize> {
    let (mesh, part) = match &leaf.support {
        Support::Cells { mesh } => (mesh, mesh.own().clone()),
        Support::Modes { mesh, half } => (mesh, mesh.modes(*half)),
        _ => return (0..leaf.len() as usize).collect(),
    };
    let [n0, n1, n2] = mesh.shape();
    let mut found = Vec::new();
    for field in 0..leaf.fields() {
        for i in part[0].clone() {
            for j in part[1].clone() {
                found.extend(part[2].clone().map(|k| (((field * n0 + i) * n1 + j) * n2 + k) as usize));
            }
        }
    }
    found
}

/// Numbers of a leaf on all ranks.
fn whole(leaf: &Leaf) -> usize {
    if leaf.is_distributed() && leaf.mesh().is_none() { leaf.len() as usize } else { leaf.total() as usize }
}

/// Returns a field from its numbers of all ranks: leaves in the order of their names. Points are
/// those of this rank alone.
pub fn field(rank: &mut Rank, space: &Space, flat: &[f64]) -> Result<Vector, InferenceError> {
    let mut field = Vector::new(&rank.gpu, space)?;
    let mut start = 0;
    for (name, leaf) in space.leaves() {
        let values: Vec<f64> = own(leaf).into_iter().map(|at| flat[start + at]).collect();
        field.set(&mut rank.recorder, name, &values)?;
        start += whole(leaf);
    }
    assert_eq!(start, flat.len(), "{space}");
    Ok(field)
}

/// Returns this rank's numbers, and where they stand among those of all.
pub fn flat(rank: &mut Rank, field: &Vector) -> Result<Vec<(usize, f64)>, InferenceError> {
    let (mut found, mut start) = (Vec::new(), 0);
    for (name, leaf) in field.space().leaves() {
        let values = field.get(&mut rank.recorder, name)?;
        found.extend(own(leaf).into_iter().map(|at| start + at).zip(values));
        start += whole(leaf);
    }
    Ok(found)
}

/// Compares a field with its numbers of all ranks: each to `roundings` of the greatest of its leaf.
pub fn close(
    rank: &mut Rank,
    what: &str,
    found: &Vector,
    wanted: &[f64],
    roundings: f64,
) -> Result<(), InferenceError> {
    let (found_flat, mut start) = (flat(rank, found)?, 0);
    for (name, leaf) in found.space().leaves() {
        let range = start..start + whole(leaf);
        let most = wanted[range.clone()].iter().fold(0.0f64, |most, value| most.max(value.abs()));
        for &(at, value) in found_flat.iter().filter(|(at, _)| range.contains(at)) {
            let away = (value - wanted[at]).abs() / (most * f64::from(f32::EPSILON));
            assert!(away <= roundings, "{what}, {name}[{}]: {value}, not {}: {away} roundings", at - start, wanted[at]);
        }
        start = range.end;
    }
    assert_eq!(start, wanted.len(), "{what}");
    Ok(())
}
