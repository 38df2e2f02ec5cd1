//! Kernels of `shaders/points` in plain Rust.

use std::ops::Range;

/// Result of `prepare.wgsl` for coordinates that are wrapped already: index of the first that is
/// not finite, least and greatest along each axis, smallest magnitude that is a normal number.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub not_finite: Option<usize>,
    pub low: Vec<f32>,
    pub high: Vec<f32>,
    pub smallest: Option<f32>,
}

pub fn found(positions: &[f32], dims: usize) -> Found {
    let along = |axis: usize| positions.iter().skip(axis).step_by(dims).copied();
    Found {
        not_finite: positions.iter().position(|x| !x.is_finite()),
        low: (0..dims).map(|axis| along(axis).min_by(f32::total_cmp).unwrap()).collect(),
        high: (0..dims).map(|axis| along(axis).max_by(f32::total_cmp).unwrap()).collect(),
        smallest: positions.iter().map(|x| x.abs()).filter(|x| x.is_normal()).min_by(f32::total_cmp),
    }
}

/// Bounds, least index and diagonal of the points `order[range]`; 0 behind the last axis.
pub fn tree_box(positions: &[f32], dims: usize, order: &[u32], range: Range<usize>) -> ([f32; 6], u32, f64) {
    let members = &order[range];
    let mut bounds = [0.0; 6];
    for axis in 0..dims {
        let mut along: Vec<f32> = members.iter().map(|&i| positions[i as usize * dims + axis]).collect();
        along.sort_by(f32::total_cmp);
        (bounds[axis], bounds[3 + axis]) = (along[0], along[along.len() - 1]);
    }
    let diagonal = (0..3).map(|a| (f64::from(bounds[3 + a]) - f64::from(bounds[a])).powi(2)).sum::<f64>().sqrt();
    (bounds, *members.iter().min().unwrap(), diagonal)
}

/// `values` with the contributions of ghosts added: `contributions` are (row, values) in the order
/// of the ranks.
pub fn accumulated(values: &[f32], width: usize, contributions: &[(u32, Vec<f32>)]) -> Vec<f32> {
    let mut sums = std::collections::BTreeMap::<u32, Vec<f32>>::new();
    for (row, ghost) in contributions {
        let sum = sums.entry(*row).or_insert_with(|| vec![0.0; width]);
        sum.iter_mut().zip(ghost).for_each(|(sum, x)| *sum += x);
    }
    let mut values = values.to_vec();
    for (row, sum) in sums {
        let row = &mut values[row as usize * width..][..width];
        row.iter_mut().zip(sum).for_each(|(value, sum)| *value += sum);
    }
    values
}

/// Returns the root that each point of a forest leads to, and how many steps beyond its parent that
/// takes.
pub fn roots(parent: &[u32]) -> Vec<(u32, u32)> {
    let root = |&first: &u32| {
        let path: Vec<u32> =
            std::iter::successors(Some(first), |&at| Some(parent[at as usize]).filter(|&up| up != at)).collect();
        (path[path.len() - 1], path.len() as u32 - 1)
    };
    parent.iter().map(root).collect()
}
