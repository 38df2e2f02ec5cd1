//! A particle-mesh code in plain `f64` to hold others against: naive, small, and written for
//! reading.
//!
//! Include it with `#[path = "shared/reference_pm.rs"] mod reference_pm;`. Arrays are in C order;
//! particle (i, j, k) of an n^3 grid is row `(i*n + j)*n + k`. Units are those of
//! `meshloom::cosmology`. Transforms are unnormalized forward and carry 1/N backward.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::f64::consts::PI;

use meshloom::cosmology::{GrowthFactors, LinearPower, LptOrder, StepOp, lpt_factors};
use rustfft::{FftDirection, FftPlanner, num_complex::Complex};

pub type Vector = [f64; 3];

/// Element `i`, counted from 0, of the splitmix64 stream `seed`, as a number in (0, 1).
pub fn uniform(seed: u64, i: u64) -> f64 {
    let z = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (((z ^ (z >> 31)) >> 11) as f64 + 0.5) * (-53.0_f64).exp2()
}

/// Returns the white noise of the golden values (not of the library).
pub fn white(count: usize, seed: u64) -> Vec<f64> {
    let normal = |i: u64| (-2.0 * uniform(seed, 2 * i).ln()).sqrt() * (2.0 * PI * uniform(seed, 2 * i + 1)).cos();
    (0..count as u64).map(normal).collect()
}

/// Root of the mean square over all components.
pub fn rms(vectors: &[Vector]) -> f64 {
    (vectors.iter().flatten().map(|x| x * x).sum::<f64>() / (3 * vectors.len()) as f64).sqrt()
}

fn transform(values: &mut [Complex<f64>], n: usize, direction: FftDirection) {
    let fft = FftPlanner::new().plan_fft(n, direction);
    let mut line = vec![Complex::default(); n];
    for stride in [1, n, n * n] {
        for start in (0..values.len()).filter(|i| (i / stride).is_multiple_of(n)) {
            (0..n).for_each(|i| line[i] = values[start + i * stride]);
            fft.process(&mut line);
            (0..n).for_each(|i| values[start + i * stride] = line[i]);
        }
    }
}

/// Returns all n^3 modes of a real field.
pub fn forward(field: &[f64], n: usize) -> Vec<Complex<f64>> {
    let mut modes: Vec<_> = field.iter().map(|&x| Complex::new(x, 0.0)).collect();
    transform(&mut modes, n, FftDirection::Forward);
    modes
}

/// Returns the real field of n^3 modes.
pub fn inverse(mut modes: Vec<Complex<f64>>, n: usize) -> Vec<f64> {
    transform(&mut modes, n, FftDirection::Inverse);
    modes.iter().map(|z| z.re / modes.len() as f64).collect()
}

/// Returns the integer wave vector of mode `index`, each component in (-n/2, n/2].
pub fn wave_numbers(index: usize, n: usize) -> [i64; 3] {
    [index / (n * n), index / n % n, index % n].map(|m| if 2 * m > n { m as i64 - n as i64 } else { m as i64 })
}

/// Multiplies each mode but the mean by `kernel(k, odd)`, and the mean by 0. `odd` is k without its
/// Nyquist components, for kernels that are odd in them.
fn filtered(
    modes: &[Complex<f64>],
    n: usize,
    box_size: f64,
    kernel: impl Fn(Vector, Vector) -> Complex<f64>,
) -> Vec<f64> {
    let product = modes.iter().enumerate().map(|(index, mode)| {
        if index == 0 {
            return Complex::default();
        }
        let m = wave_numbers(index, n);
        let k = m.map(|m| 2.0 * PI / box_size * m as f64);
        let odd = std::array::from_fn(|i| if 2 * m[i] == n as i64 { 0.0 } else { k[i] });
        mode * kernel(k, odd)
    });
    inverse(product.collect(), n)
}

fn square(k: Vector) -> f64 {
    k.iter().map(|k| k * k).sum()
}

fn rows(components: [Vec<f64>; 3]) -> Vec<Vector> {
    let [x, y, z] = components;
    x.into_iter().zip(y).zip(z).map(|((x, y), z)| [x, y, z]).collect()
}

/// -grad phi, laplacian phi = source.
pub fn field_of(source: &[f64], n: usize, box_size: f64) -> Vec<Vector> {
    let modes = forward(source, n);
    rows([0, 1, 2].map(|axis| filtered(&modes, n, box_size, |k, odd| Complex::new(0.0, odd[axis] / square(k)))))
}

/// Returns the D = 1 density contrast of `noise`, n^3 numbers of unit variance.
pub fn linear_density(power: &LinearPower, noise: &[f64], n: usize, box_size: f64) -> Vec<f64> {
    let cells_per_volume = (n as f64 / box_size).powi(3);
    filtered(&forward(noise, n), n, box_size, |k, _| {
        Complex::new((power.unit(square(k).sqrt()) * cells_per_volume).sqrt(), 0.0)
    })
}

/// Returns the second derivatives of the potential whose laplacian is `source`, as full matrices.
fn strains(source: &[f64], n: usize, box_size: f64) -> [[Vec<f64>; 3]; 3] {
    let modes = forward(source, n);
    let strain = |i: usize, j: usize| {
        filtered(&modes, n, box_size, |k, odd| {
            let product = if i == j { k[i] * k[i] } else { odd[i] * odd[j] };
            Complex::new(product / square(k), 0.0)
        })
    };
    [0, 1, 2].map(|i| [0, 1, 2].map(|j| strain(i, j)))
}

/// Returns the displacement fields s1, s2, s3a, s3b and s3c of a D = 1 density contrast.
pub fn displacements(delta: &[f64], n: usize, box_size: f64) -> [Vec<Vector>; 5] {
    let at = |strains: &[[Vec<f64>; 3]; 3], site: usize| [0, 1, 2].map(|i| [0, 1, 2].map(|j| strains[i][j][site]));
    let field = |source: &dyn Fn(usize) -> f64| -> Vec<f64> { (0..delta.len()).map(source).collect() };
    // The sum of the principal minors as a bilinear form.
    let minors = |a: [Vector; 3], b: [Vector; 3]| {
        [(0, 1), (0, 2), (1, 2)]
            .map(|(i, j)| 0.5 * (a[i][i] * b[j][j] + a[j][j] * b[i][i]) - a[i][j] * b[i][j])
            .iter()
            .sum::<f64>()
    };
    let h = strains(delta, n, box_size);
    let second = field(&|site| minors(at(&h, site), at(&h, site)));
    let g = strains(&second, n, box_size);
    let determinant = field(&|site| {
        let [a, b, c] = at(&h, site);
        -(0..3).map(|i| a[i] * (b[(i + 1) % 3] * c[(i + 2) % 3] - b[(i + 2) % 3] * c[(i + 1) % 3])).sum::<f64>()
    });
    let mixed = field(&|site| minors(at(&h, site), at(&g, site)));
    // The curl, the sum of cross products of rows, and the field that has it.
    let curl = [0, 1, 2].map(|axis| {
        field(&|site| {
            let (h, g, [j, k]) = (at(&h, site), at(&g, site), [(axis + 1) % 3, (axis + 2) % 3]);
            (0..3).map(|l| h[l][j] * g[l][k] - h[l][k] * g[l][j]).sum()
        })
    });
    let of_curl = curl.each_ref().map(|component| field_of(component, n, box_size));
    let transverse = (0..delta.len())
        .map(|site| [(1, 2), (2, 0), (0, 1)].map(|(b, c): (usize, usize)| of_curl[c][site][b] - of_curl[b][site][c]))
        .collect();
    let [s1, s2, a, b] = [delta, &second, &determinant, &mixed].map(|source| field_of(source, n, box_size));
    [s1, s2, a, b, transverse]
}

/// Parameters of a particle-mesh run.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Particles per axis.
    pub particles: usize,
    /// Cells of the force mesh per axis.
    pub mesh: usize,
    /// Side of the periodic cube.
    pub box_size: f64,
    /// Matter density today.
    pub omega_m: f64,
}

/// Displacements from the grid, momenta and the last accelerations, by particle.
#[derive(Clone)]
pub struct State {
    pub s: Vec<Vector>,
    pub p: Vec<Vector>,
    pub acc: Vec<Vector>,
}

/// Returns the state at the epoch of `growth` from [`displacements`].
pub fn start(fields: &[Vec<Vector>; 5], growth: &GrowthFactors, order: LptOrder) -> State {
    let (factors, sites) = (lpt_factors(growth, order), fields[0].len());
    let sum = |factors: [f64; 5]| -> Vec<Vector> {
        let at = |site: usize, i: usize| factors.iter().zip(fields).map(|(factor, s)| factor * s[site][i]).sum();
        (0..sites).map(|site| std::array::from_fn(|i| at(site, i))).collect()
    };
    State { s: sum(factors.position), p: sum(factors.momentum), acc: vec![[0.0; 3]; sites] }
}

impl Setup {
    /// Positions, not wrapped, of particles displaced by `s`.
    pub fn positions(&self, s: &[Vector]) -> Vec<Vector> {
        let n = self.particles;
        let spacing = self.box_size / n as f64;
        let place = |(row, s): (usize, &Vector)| {
            let q = [row / (n * n), row / n % n, row % n].map(|i| i as f64 * spacing);
            std::array::from_fn(|i| q[i] + s[i])
        };
        s.iter().enumerate().map(place).collect()
    }

    /// Returns the eight cells around `x` with their cloud-in-cell weights.
    fn cloud(&self, x: Vector) -> [(usize, f64); 8] {
        let m = self.mesh;
        let u = x.map(|x| x * m as f64 / self.box_size);
        std::array::from_fn(|corner| {
            let (mut index, mut weight) = (0, 1.0);
            for (axis, u) in u.into_iter().enumerate() {
                let upper = corner >> axis & 1;
                let fraction = u - u.floor();
                weight *= if upper == 1 { fraction } else { 1.0 - fraction };
                index = index * m + (u.floor() as i64 + upper as i64).rem_euclid(m as i64) as usize;
            }
            (index, weight)
        })
    }

    /// 1 + delta on the mesh.
    pub fn paint(&self, positions: &[Vector]) -> Vec<f64> {
        let mut density = vec![0.0; self.mesh.pow(3)];
        let mass = density.len() as f64 / positions.len() as f64;
        for &x in positions {
            for (cell, weight) in self.cloud(x) {
                density[cell] += mass * weight;
            }
        }
        density
    }

    /// Returns a mesh of vectors at the particles.
    pub fn readout(&self, field: &[Vector], positions: &[Vector]) -> Vec<Vector> {
        let read = |&x: &Vector| {
            let mut sum = [0.0; 3];
            for (cell, weight) in self.cloud(x) {
                (0..3).for_each(|i| sum[i] += weight * field[cell][i]);
            }
            sum
        };
        positions.iter().map(read).collect()
    }

    /// -grad phi at the particles, laplacian phi = 3/2 Omega_m delta.
    pub fn acceleration(&self, positions: &[Vector]) -> Vec<Vector> {
        let source: Vec<_> = self.paint(positions).iter().map(|d| 1.5 * self.omega_m * (d - 1.0)).collect();
        self.readout(&field_of(&source, self.mesh, self.box_size), positions)
    }

    /// Carries out `ops`, calling `reached(a, step, state)` at every epoch that is reached.
    pub fn run(&self, state: &mut State, ops: &[StepOp], mut reached: impl FnMut(f64, usize, &State)) {
        execute(state, ops, |s| self.acceleration(&self.positions(s)), &mut reached);
    }
}

/// Carries out `ops` with any force, a function of the displacements.
pub fn execute(
    state: &mut State,
    ops: &[StepOp],
    force: impl Fn(&[Vector]) -> Vec<Vector>,
    mut reached: impl FnMut(f64, usize, &State),
) {
    for &op in ops {
        match op {
            StepOp::Force => state.acc = force(&state.s),
            StepOp::Kick { keep, factor } => {
                for (p, acc) in state.p.iter_mut().zip(&state.acc) {
                    (0..3).for_each(|i| p[i] = keep * p[i] + factor * acc[i]);
                }
            }
            StepOp::Drift { factor } => {
                for (s, p) in state.s.iter_mut().zip(&state.p) {
                    (0..3).for_each(|i| s[i] += factor * p[i]);
                }
            }
            StepOp::Reached { a, step } => reached(a, step, state),
        }
    }
}

/// -grad phi, laplacian phi = delta, at the particles of a box of side 2 pi: summed directly over
/// modes up to 3 an axis, so that no mesh can err.
pub fn direct_force(positions: &[Vector]) -> Vec<Vector> {
    let dot = |k: &Vector, x: &Vector| k[0] * x[0] + k[1] * x[1] + k[2] * x[2];
    let directions = (0..7 * 7 * 7).map(|i| [i / 49, i / 7 % 7, i % 7].map(|m| f64::from(m) - 3.0));
    let mut acceleration = vec![[0.0; 3]; positions.len()];
    for k in directions.filter(|k| *k != [0.0; 3]) {
        let (sine, cosine): (Vec<f64>, Vec<f64>) = positions.iter().map(|x| dot(&k, x).sin_cos()).unzip();
        let count = positions.len() as f64;
        let (re, im) = (cosine.iter().sum::<f64>() / count, -sine.iter().sum::<f64>() / count);
        for (i, a) in acceleration.iter_mut().enumerate() {
            // Real part of i k/k^2 delta_k e^{ikx}.
            let real = -(re * sine[i] + im * cosine[i]) / dot(&k, &k);
            (0..3).for_each(|axis| a[axis] += real * k[axis]);
        }
    }
    acceleration
}

/// One bin of a power spectrum.
#[derive(Debug, Clone, Copy)]
pub struct Bin {
    /// Mean wavenumber.
    pub k: f64,
    /// Mean power.
    pub power: f64,
    /// Number of modes, counting k and -k.
    pub modes: usize,
}

/// P(k) of a density on an m^3 mesh (its mean does not matter); bin b = 1, 2, .. holds b - 1/2 <=
/// k/k_f < b + 1/2.
pub fn power_spectrum(density: &[f64], m: usize, box_size: f64, bins: usize) -> Vec<Bin> {
    let mut sums = vec![Bin { k: 0.0, power: 0.0, modes: 0 }; bins + 1];
    let scale = box_size.powi(3) / (density.len() as f64).powi(2);
    for (index, mode) in forward(density, m).iter().enumerate() {
        let k = (wave_numbers(index, m).iter().map(|m| m * m).sum::<i64>() as f64).sqrt();
        if let Some(bin) = sums.get_mut((k + 0.5) as usize) {
            bin.k += 2.0 * PI / box_size * k;
            bin.power += scale * mode.norm_sqr();
            bin.modes += 1;
        }
    }
    let mean = |bin: &Bin| {
        let modes = bin.modes.max(1) as f64;
        Bin { k: bin.k / modes, power: bin.power / modes, modes: bin.modes }
    };
    sums[1..].iter().map(mean).collect()
}
