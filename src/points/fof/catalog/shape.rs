//! Principal axes of a cloud of points.

use nalgebra::{Matrix2, Matrix3, SymmetricEigen};

/// Root-mean-square semi-axes, largest first, and their directions: unit rows, one after the other,
/// `dims` values each, the component of largest magnitude (the first of several) positive.
/// `covariance` is xx, xy, xz, yy, yz, zz. The rest is 0.
pub(super) fn principal(covariance: &[f64; 6], dims: usize) -> ([f64; 3], [f64; 9]) {
    let [xx, xy, xz, yy, yz, zz] = *covariance;
    let (mut axes, mut directions) = ([0.0; 3], [0.0; 9]);
    let trace = xx + yy + zz;
    if trace == 0.0 {
        // All in one place: any directions will do.
        (0..dims).for_each(|axis| directions[axis * dims + axis] = 1.0);
        return (axes, directions);
    }
    // Divided by the trace, so that squares of entries neither vanish nor overflow.
    let mut found = [(0.0, [0.0; 3]); 3];
    if dims == 2 {
        let eigen = SymmetricEigen::new(Matrix2::new(xx, xy, xy, yy) / trace);
        for (i, found) in found[..2].iter_mut().enumerate() {
            *found = (eigen.eigenvalues[i], [eigen.eigenvectors[(0, i)], eigen.eigenvectors[(1, i)], 0.0]);
        }
    } else {
        let eigen = SymmetricEigen::new(Matrix3::new(xx, xy, xz, xy, yy, yz, xz, yz, zz) / trace);
        for (i, found) in found.iter_mut().enumerate() {
            *found = (eigen.eigenvalues[i], eigen.eigenvectors.column(i).into_owned().into());
        }
    }
    found[..dims].sort_by(|a, b| b.0.total_cmp(&a.0));
    for (i, (value, vector)) in found[..dims].iter().enumerate() {
        // Rounding leaves an axis without extent slightly negative at times.
        axes[i] = (value.max(0.0) * trace).sqrt();
        let largest = vector.iter().fold(0.0, |most: f64, &x| if x.abs() > most.abs() { x } else { most });
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt().copysign(largest);
        for (to, x) in directions[i * dims..(i + 1) * dims].iter_mut().zip(vector) {
            // Adding zero turns -0 into 0.
            *to = x / length + 0.0;
        }
    }
    (axes, directions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn axes_are_those_of_a_rotated_ellipsoid() {
        // 4 along (3, 4, 0)/5, 2 along z, 1 along (-4, 3, 0)/5.
        let (c, s) = (0.6, 0.8);
        let covariance = [16.0 * c * c + s * s, 15.0 * c * s, 0.0, 16.0 * s * s + c * c, 0.0, 4.0];
        let (axes, directions) = principal(&covariance, 3);
        assert_relative_eq!(axes[..], [4.0, 2.0, 1.0][..], max_relative = 1e-13);
        assert_relative_eq!(directions[..], [c, s, 0.0, 0.0, 0.0, 1.0, s, -c, 0.0][..], epsilon = 1e-13);
    }

    #[test]
    fn any_unit_gives_the_same_shape() {
        for unit in [1e-130, 1.0, 1e120] {
            let (axes, directions) = principal(&[5.0 * unit, 4.0 * unit, 0.0, 5.0 * unit, 0.0, 0.0], 2);
            assert_relative_eq!(axes[0], 3.0 * f64::sqrt(unit), max_relative = 1e-14);
            assert_relative_eq!(axes[1], f64::sqrt(unit), max_relative = 1e-14);
            let half = f64::sqrt(0.5);
            assert_relative_eq!(directions[..2], [half, half][..], max_relative = 1e-14);
        }
    }

    #[test]
    fn no_extent_has_no_axes() {
        let (axes, directions) = principal(&[0.0; 6], 3);
        assert_eq!((axes, directions), ([0.0; 3], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]));
    }
}
