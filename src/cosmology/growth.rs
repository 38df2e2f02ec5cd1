//! Growth of structure to third order.
//!
//! With h = dlnH/dlna and o = 3/2 Omega_m(a), the growth equations
//!
//! ```text
//! D1''  + (2 + h) D1'  - o D1  = 0               D2''  + (2 + h) D2'  - o D2  = o D1^2
//! D3a'' + (2 + h) D3a' - o D3a = 2 o D1^3        D3b'' + (2 + h) D3b' - o D3b = 2 o D1 (D1^2 + D2)
//! D3c'' + (2 + h) D3c'         = o D1^3
//! ```
//!
//! are integrated for G = D/a^n of order n, which stay of order one at every epoch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::error::given;
use super::{Cosmology, CosmologyError};

/// The earliest scale factor. There a cosmological constant changes growth by less than 1e-15, so
/// that the integration starts from the exact solution of the matter era or, with radiation, of the
/// time before it. (Other dark energy: by 1e-6 at most, where w0 + wa = -1/3.)
pub const A_MIN: f64 = 1e-6;

/// Steps of the table, equal in ln a. Against four times as many, growth factors and their rates
/// differ by less than 4e-13, and f1 at [`A_MIN`] with radiation by 1.3e-12: rounding.
const NODES: usize = 96;

/// G and G' of D1, D2, D3a, D3b and D3c.
type State = [f64; 10];

/// The order of each growth factor, a power of the contrast.
const ORDERS: [i32; 5] = [1, 2, 3, 3, 3];

/// Growth factors of one cosmology, at every scale factor in [[`A_MIN`], 1].
///
/// - Normalized to the matter era: D1 -> a, D2 -> 3/7 a^2, D3a -> 1/3 a^3, D3b -> 10/21 a^3 and D3c
///   -> 1/7 a^3 for a -> 0.
/// - With radiation D1 -> a + 2/3 a_eq and D2 -> 2/3 a_eq a for a -> 0, where a_eq = Omega_r /
///   Omega_m (Meszaros 1974): D1 approaches a in the matter era, and higher orders vanish with the
///   contrast. Radiation itself is smooth.
/// - A value between two nodes is integrated from the node below it, and not interpolated: its
///   relative error is below 2e-12 everywhere.
///
/// ```
/// use meshloom::cosmology::{Cosmology, Growth};
///
/// let today = Growth::new(Cosmology::simple()).at(1.0)?;
/// assert!((today.d1 - 0.7789810167708).abs() < 1e-12);
/// assert!((today.f1() - 0.3_f64.powf(0.55)).abs() < 5e-3); // the usual fit
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Growth {
    cosmology: Cosmology,
    nodes: Arc<[State]>,
}

/// The solution at all nodes, once a thread has integrated it.
type Solution = Arc<OnceLock<Arc<[State]>>>;

/// Solutions that are kept, 8 KiB each. The derivatives of a run by all parameters need 17: its
/// own, and four for each of Omega_m, h (which sets the radiation), w0 and wa.
const KEPT: usize = 32;

/// Returns the place of the solution for the expansion of `cosmology`. The process keeps those of
/// the last [`KEPT`] expansions.
fn solution(cosmology: &Cosmology) -> Solution {
    static SOLUTIONS: Mutex<VecDeque<([u64; 5], Solution)>> = Mutex::new(VecDeque::new());
    let [w0, wa] = cosmology.dark_energy();
    let expansion = [cosmology.omega_m(), cosmology.omega_r(), cosmology.omega_de(), w0, wa].map(f64::to_bits);
    let mut solutions = SOLUTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = solutions.iter().position(|(of, _)| *of == expansion).and_then(|at| solutions.remove(at));
    let (_, solution) = found.unwrap_or_default();
    solutions.truncate(KEPT - 1);
    solutions.push_front((expansion, solution.clone()));
    solution
}

/// Growth at one scale factor. A prime is a derivative with respect to ln a.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct GrowthFactors {
    /// The scale factor.
    pub a: f64,
    /// E(a) = H(a)/H0.
    pub expansion_rate: f64,
    /// Omega_m today.
    pub omega_m: f64,
    /// D1, the linear growth factor.
    pub d1: f64,
    /// D1'.
    pub d1_prime: f64,
    /// D1''.
    pub d1_second: f64,
    /// D2, the second-order growth factor, counted positive.
    pub d2: f64,
    /// D2'.
    pub d2_prime: f64,
    /// D2''.
    pub d2_second: f64,
    /// D3a, D3b and D3c, the third-order growth factors of the determinant of the strain, of its
    /// product with the second order, and of the transverse displacement; counted positive.
    pub d3: [f64; 3],
    /// D3a', D3b' and D3c'.
    pub d3_prime: [f64; 3],
}

impl Growth {
    /// Integrates the growth equations from [`A_MIN`] to 1, unless that was done recently for the
    /// same expansion.
    #[must_use]
    pub fn new(cosmology: Cosmology) -> Self {
        let nodes = solution(&cosmology).get_or_init(|| integrate(&cosmology)).clone();
        Self { cosmology, nodes }
    }

    /// Returns the cosmology whose growth this is.
    #[must_use]
    pub fn cosmology(&self) -> &Cosmology {
        &self.cosmology
    }

    /// Growth at scale factor `a`.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless [`A_MIN`] <= a <= 1.
    pub fn at(&self, a: f64) -> Result<GrowthFactors, CosmologyError> {
        given("a", a).within(A_MIN..=1.0, "give a scale factor, a = 1/(1+z), between the matter era and today")?;
        let y = a.ln();
        let below = ((y - node(0)) / (node(1) - node(0))) as usize;
        let below = below.min(NODES);
        let state = step(&self.cosmology, node(below), y - node(below), self.nodes[below]);
        let [g1, g1_prime, g2, g2_prime, ..] = state;
        let [_, g1_second, _, g2_second, ..] = slope(coefficients(&self.cosmology, y), state);
        Ok(GrowthFactors {
            a,
            expansion_rate: self.cosmology.expansion_rate(a),
            omega_m: self.cosmology.omega_m(),
            d1: a * g1,
            d1_prime: a * (g1 + g1_prime),
            d1_second: a * (g1 + 2.0 * g1_prime + g1_second),
            d2: a * a * g2,
            d2_prime: a * a * (2.0 * g2 + g2_prime),
            d2_second: a * a * (4.0 * g2 + 4.0 * g2_prime + g2_second),
            d3: [4, 6, 8].map(|i| a.powi(3) * state[i]),
            d3_prime: [4, 6, 8].map(|i| a.powi(3) * (3.0 * state[i] + state[i + 1])),
        })
    }
}

impl GrowthFactors {
    /// f1 = dlnD1/dlna.
    #[must_use]
    pub fn f1(&self) -> f64 {
        self.d1_prime / self.d1
    }

    /// f2 = dlnD2/dlna.
    #[must_use]
    pub fn f2(&self) -> f64 {
        self.d2_prime / self.d2
    }

    /// G_D = a^2 E D1': a particle on the trajectory x = q + D1 s1 has the momentum G_D s1.
    #[must_use]
    pub fn momentum(&self) -> f64 {
        self.a * self.a * self.expansion_rate * self.d1_prime
    }

    /// a^2 E D2': the factor of s2 in the momentum on the trajectory x = q + D2 s2.
    #[must_use]
    pub fn second_momentum(&self) -> f64 {
        self.a * self.a * self.expansion_rate * self.d2_prime
    }

    /// Returns a^2 E D3', the factors of the third-order displacements in the momentum.
    #[must_use]
    pub fn third_momenta(&self) -> [f64; 3] {
        self.d3_prime.map(|prime| self.a * self.a * self.expansion_rate * prime)
    }

    /// G_K = a^2 E dG_D/da, the acceleration that belongs to [`momentum`](Self::momentum). By the
    /// growth equation it is 3/2 Omega_m D1, which needs no second derivative.
    #[must_use]
    pub fn acceleration(&self) -> f64 {
        1.5 * self.omega_m * self.d1
    }
}

/// ln a of node i; exactly 0 at the last.
fn node(i: usize) -> f64 {
    A_MIN.ln() * ((NODES - i) as f64 / NODES as f64)
}

/// Returns the growing solution at all nodes.
fn integrate(cosmology: &Cosmology) -> Arc<[State]> {
    let first = earliest(cosmology);
    let next = |state: &mut State, i: usize| {
        *state = step(cosmology, node(i), node(i + 1) - node(i), *state);
        Some(*state)
    };
    std::iter::once(first).chain((0..NODES).scan(first, next)).collect()
}

/// Coefficients of `D / a_eq^n` in powers of a / a_eq, from 0 on, in the time of radiation.
const EARLY: [[f64; 5]; 5] = [
    [2.0 / 3.0, 1.0, 0.0, 0.0, 0.0],
    [0.0, 2.0 / 3.0, 0.5, -1.0 / 36.0, 1.0 / 64.0],
    [0.0, 8.0 / 9.0, 1.0, 5.0 / 18.0, 1.0 / 32.0],
    [0.0, 8.0 / 9.0, 4.0 / 3.0, 13.0 / 27.0, 1.0 / 144.0],
    [0.0, 4.0 / 9.0, 1.0 / 3.0, 4.0 / 27.0, -1.0 / 288.0],
];

/// Returns the growing solution at [`A_MIN`].
fn earliest(cosmology: &Cosmology) -> State {
    let equality = cosmology.omega_r() / cosmology.omega_m();
    if equality == 0.0 {
        return [1.0, 0.0, 3.0 / 7.0, 0.0, 1.0 / 3.0, 0.0, 10.0 / 21.0, 0.0, 1.0 / 7.0, 0.0];
    }
    // With x = a / a_eq: D1 = a_eq (x + 2/3) is exact, the others follow from the growth equation
    // of matter and radiation as power series. They are integrated from where these have converged.
    let start = A_MIN.min(1e-3 * equality);
    let x = start / equality;
    let mut state = [0.0; 10];
    for ((order, series), g) in ORDERS.into_iter().zip(EARLY).zip(state.chunks_mut(2)) {
        for (power, coefficient) in (-order..).zip(series) {
            let term = coefficient * x.powi(power);
            g[0] += term;
            g[1] += f64::from(power) * term;
        }
    }
    let (from, to) = (start.ln(), A_MIN.ln());
    let steps = ((to - from) / (node(1) - node(0))).ceil();
    for i in 0..steps as usize {
        state = step(cosmology, from + (to - from) * (i as f64 / steps), (to - from) / steps, state);
    }
    state
}

/// Returns h and o of the growth equations at ln a = y.
fn coefficients(cosmology: &Cosmology, y: f64) -> [f64; 2] {
    let [matter, slope] = cosmology.matter_fraction_and_slope(y.exp());
    [slope, 1.5 * matter]
}

/// Returns the derivative of a state by ln a, where the coefficients are `h` and `o`.
fn slope([h, o]: [f64; 2], state: State) -> State {
    let [g1, _, g2, ..] = state;
    let cube = g1 * g1 * g1;
    // The transverse displacement does not attract itself.
    let own = [o, o, o, o, 0.0];
    let sources = [0.0, o * g1 * g1, 2.0 * o * cube, 2.0 * o * (cube + g1 * g2), o * cube];
    let mut slope = [0.0; 10];
    for (factor, order) in ORDERS.into_iter().enumerate() {
        let (n, g, prime) = (f64::from(order), state[2 * factor], state[2 * factor + 1]);
        slope[2 * factor] = prime;
        slope[2 * factor + 1] =
            -(2.0 + 2.0 * n + h) * prime - (n * n + n * (2.0 + h) - own[factor]) * g + sources[factor];
    }
    slope
}

/// Parts of a step in which the midpoint rule is applied.
const PARTS: [u32; 6] = [2, 4, 6, 8, 10, 12];

/// One step of size `dy` from `y`: the midpoint rule in several numbers of parts, whose error has
/// even powers only, extrapolated to order 12 (Gragg 1965; Bulirsch & Stoer 1966).
fn step(cosmology: &Cosmology, y: f64, dy: f64, state: State) -> State {
    let moved = |from: &State, by: f64, along: State| -> State { std::array::from_fn(|i| from[i] + by * along[i]) };
    let first = slope(coefficients(cosmology, y), state);
    // Row by row of Neville's scheme: `row[j]` is extrapolated `j` times.
    let mut row: [State; PARTS.len()] = [[0.0; 10]; PARTS.len()];
    for (k, parts) in PARTS.into_iter().enumerate() {
        let part = dy / f64::from(parts);
        let (mut before, mut now) = (state, moved(&state, part, first));
        for i in 1..parts {
            let along = slope(coefficients(cosmology, y + f64::from(i) * part), now);
            (before, now) = (now, moved(&before, 2.0 * part, along));
        }
        for j in 0..k {
            let ratio = f64::from(parts) / f64::from(PARTS[k - j - 1]);
            let last = std::mem::replace(&mut row[j], now);
            now = std::array::from_fn(|i| now[i] + (now[i] - last[i]) / (ratio * ratio - 1.0));
        }
        row[k] = now;
    }
    row[PARTS.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::Parameters;

    /// D1 in closed form, a 2F1(1/3, 1; 11/6; -z) with z = (1-Om)/Om a^3, after Pfaff's
    /// transformation (1+z)^-1 2F1(3/2, 1; 11/6; z/(1+z)), whose series converges for all z >= 0.
    fn closed_form(omega_m: f64, a: f64) -> f64 {
        let z = (1.0 - omega_m) / omega_m * a * a * a;
        let t = z / (1.0 + z);
        let (mut sum, mut term, mut n) = (0.0, 1.0, 0.0);
        while term > 1e-18 {
            sum += term;
            term *= (1.5 + n) / (11.0 / 6.0 + n) * t;
            n += 1.0;
        }
        a * sum / (1.0 + z)
    }

    #[test]
    fn linear_growth_is_the_closed_form() {
        for cosmology in [Cosmology::simple(), Cosmology::planck18_primordial()] {
            let growth = Growth::new(cosmology);
            for i in 0..=200 {
                let a = (A_MIN.ln() * f64::from(i) / 200.0).exp().clamp(A_MIN, 1.0);
                let exact = closed_form(cosmology.omega_m(), a);
                let found = growth.at(a).unwrap().d1;
                assert!((found / exact - 1.0).abs() < 1e-12, "a = {a}: {found} {exact}");
            }
        }
    }

    #[test]
    fn values_and_derivatives_satisfy_the_equations() {
        let dark = Parameters { w0: -0.9, wa: 0.2, radiation: Some(3.046), ..Parameters::default() };
        let others = [Cosmology::planck18_primordial(), Cosmology::planck18(), Cosmology::new(dark).unwrap()];
        for (cosmology, a) in others.iter().flat_map(|c| [1e-6, 1e-3, 0.1, 0.37, 0.8, 1.0].map(|a| (*c, a))) {
            let growth = Growth::new(cosmology);
            let g = growth.at(a).unwrap();
            let [matter, h] = cosmology.matter_fraction_and_slope(a);
            let o = 1.5 * matter;
            let first = g.d1_second + (2.0 + h) * g.d1_prime - o * g.d1;
            let second = g.d2_second + (2.0 + h) * g.d2_prime - o * g.d2 - o * g.d1 * g.d1;
            assert!(first.abs() < 1e-13 * g.d1 && second.abs() < 1e-13 * g.d1 * g.d1);
            // G_K by its definition, a^3 E^2 (D1'' + (2 + h) D1').
            let rate = g.expansion_rate;
            let by_definition = a * a * a * rate * rate * (g.d1_second + (2.0 + h) * g.d1_prime);
            assert!((by_definition / g.acceleration() - 1.0).abs() < 1e-12);
        }
    }

    /// Density contrasts by the time of the textbooks, `d(a^2 H delta')/dt = 3/2 H0^2 Omega_m delta
    /// / a`, in steps of a with the middle-point rule and its error's expansion: another equation,
    /// another variable, another method.
    fn by_time(rate: impl Fn(f64) -> f64, omega_m: f64, [from, to]: [f64; 2], start: [f64; 2]) -> [f64; 2] {
        let once = |steps: usize| {
            // Momentum g = a^3 E d delta/da.
            let (mut delta, mut g, step) = (start[0], start[1], (to / from).ln() / steps as f64);
            for i in 0..steps {
                let at = |x: f64| from * (step * (i as f64 + x)).exp();
                let rates = |a: f64, delta: f64, g: f64| {
                    [a * g / (a.powi(3) * rate(a)), a * 1.5 * omega_m * delta / (a * a * rate(a))]
                };
                let [d, k] = rates(at(0.0), delta, g);
                let [d, k] = rates(at(0.5), delta + 0.5 * step * d, g + 0.5 * step * k);
                (delta, g) = (delta + step * d, g + step * k);
            }
            [delta, g]
        };
        let (coarse, fine) = (once(20_000), once(40_000));
        [0, 1].map(|i| fine[i] + (fine[i] - coarse[i]) / 3.0)
    }

    #[test]
    fn growth_with_dark_energy_and_radiation_is_that_of_another_integration() {
        for (w0, wa, radiation) in
            [(-0.8, 0.0, None), (-0.9, 0.4, None), (-1.1, -0.3, Some(3.046)), (-1.0, 0.0, Some(3.046))]
        {
            let cosmology = Cosmology::new(Parameters { w0, wa, radiation, ..Parameters::default() }).unwrap();
            let (omega_m, omega_r) = (0.3111, if radiation.is_some() { cosmology.omega_r() } else { 0.0 });
            let dark =
                |a: f64| (1.0 - omega_m - omega_r) * a.powf(-3.0 * (1.0 + w0 + wa)) * (3.0 * wa * (a - 1.0)).exp();
            let rate = |a: f64| (omega_m / a.powi(3) + omega_r / a.powi(4) + dark(a)).sqrt();
            let growth = Growth::new(cosmology);
            let ends = [1e-3, 0.5, 1.0].map(|a| growth.at(a).unwrap());
            for end in &ends[1..] {
                let start = [ends[0].d1, ends[0].momentum()];
                let [d1, momentum] = by_time(rate, omega_m, [1e-3, end.a], start);
                assert!(
                    (end.d1 / d1 - 1.0).abs() < 1e-8 && (end.momentum() / momentum - 1.0).abs() < 1e-8,
                    "{w0} {wa}"
                );
            }
            // Early growth is that of matter and radiation (Meszaros 1974), except for the small
            // share of dark energy.
            let (exact, share) = (1e-3 + 2.0 / 3.0 * omega_r / omega_m, dark(1e-3) * 1e-9 / omega_m);
            assert!((ends[0].d1 / exact - 1.0).abs() < 1e-8 + share, "{} {exact}", ends[0].d1);
            // The rate's usual fit is good to a percent today (Linder 2005, equations 15 and 16).
            let excess = 1.0 + w0 + 0.5 * wa;
            let index = 0.55 + if excess > 0.0 { 0.05 } else { 0.02 } * excess;
            assert!((ends[2].f1() / omega_m.powf(index) - 1.0).abs() < 1e-2, "{w0} {wa}: {}", ends[2].f1());
        }
    }

    #[test]
    fn higher_order_growth_forgets_radiation() {
        let growth = Growth::new(Cosmology::planck18());
        let equality = growth.cosmology().omega_r() / growth.cosmology().omega_m();
        // D2 begins as 2/3 a_eq a, and is 3/7 D1^2 up to some a_eq / a in the matter era.
        let early = growth.at(A_MIN).unwrap();
        let x = A_MIN / equality;
        assert!((early.d2 / (equality * equality * (2.0 / 3.0 * x + 0.5 * x * x)) - 1.0).abs() < x * x);
        // The third order begins as its series as well: in steps from there nothing else comes up.
        let series = [[8.0 / 9.0, 1.0], [8.0 / 9.0, 4.0 / 3.0], [4.0 / 9.0, 1.0 / 3.0]];
        for (d3, [first, second]) in early.d3.into_iter().zip(series) {
            assert!((d3 / (equality.powi(3) * (first * x + second * x * x)) - 1.0).abs() < x * x);
        }
        for a in [0.02, 0.05] {
            let g = growth.at(a).unwrap();
            assert!((g.d2 / g.d1.powi(2) / (3.0 / 7.0) - 1.0).abs() < 2.0 * equality / a, "{a}");
            for (d3, limit) in g.d3.into_iter().zip([1.0 / 3.0, 10.0 / 21.0, 1.0 / 7.0]) {
                assert!((d3 / g.d1.powi(3) / limit - 1.0).abs() < 4.0 * equality / a, "{a}");
            }
        }
    }

    /// Fits for flat universes (Bouchet et al. 1995, section 3.3, and for D3b Catelan 1995): growth
    /// in units of its limit in the matter era, and its rate.
    #[test]
    fn third_order_growth_follows_published_fits() {
        let growth = Growth::new(Cosmology::simple());
        for a in [0.3, 0.6, 1.0] {
            let g = growth.at(a).unwrap();
            let matter = growth.cosmology().matter_fraction(a);
            for (i, limit, power) in [(0, 1.0 / 3.0, -4.0 / 275.0), (1, 10.0 / 21.0, -269.0 / 17875.0)] {
                let (found, fit) = (g.d3[i] / g.d1.powi(3), limit * matter.powf(power));
                assert!((found / fit - 1.0).abs() < 1e-3, "{a} {i}: {found} {fit}");
                let (rate, fit) = (g.d3_prime[i] / g.d3[i], 3.0 * matter.powf(13.0 / 24.0));
                assert!((rate / fit - 1.0).abs() < 1e-2, "{a} {i}: {rate} {fit}");
            }
        }
    }

    #[test]
    fn matter_alone_grows_as_einstein_de_sitter() {
        let growth = Growth::new(Cosmology::new(Parameters { omega_m: 1.0, ..Default::default() }).unwrap());
        for a in [1e-6, 0.1, 1.0] {
            let g = growth.at(a).unwrap();
            assert!((g.d1 / a - 1.0).abs() < 1e-13 && (g.d2 / (a * a) - 3.0 / 7.0).abs() < 1e-13);
            assert!((g.f1() - 1.0).abs() < 1e-13 && (g.f2() - 2.0).abs() < 1e-13);
            for ((d3, prime), limit) in g.d3.into_iter().zip(g.d3_prime).zip([1.0 / 3.0, 10.0 / 21.0, 1.0 / 7.0]) {
                assert!((d3 / a.powi(3) / limit - 1.0).abs() < 1e-12 && (prime / d3 - 3.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn epochs_out_of_range_are_refused() {
        let growth = Growth::new(Cosmology::simple());
        for a in [0.0, -0.5, 9e-7, 1.0 + 1e-12, f64::NAN, f64::INFINITY] {
            assert!(growth.at(a).is_err(), "{a}");
        }
    }
}
