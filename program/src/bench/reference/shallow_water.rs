//! Steps of the shallow-water model on the processor's cores: two passes over rows, which rayon's
//! threads share.

use meshloom_program::models::shallow_water::ShallowWaterConfig;
use rayon::prelude::*;

/// Name of the reference in reports.
pub const NAME: &str = "rayon, two passes over rows of f32";

/// Rows of a pass that a thread takes at least.
const ROWS: usize = 4;

/// Weights of Adams-Bashforth.
const WEIGHTS: [f64; 2] = [1.6, -0.6];

/// A field with a ghost column and a ghost row on either side.
type Field = Vec<f32>;

/// The state, and what a step takes in between.
pub struct Reference {
    cells: [usize; 2],
    numbers: Numbers,
    /// Elevation, u, v.
    state: [Field; 3],
    tendencies: [Field; 3],
    /// u and v before friction.
    before: [Field; 2],
    next: Field,
    first: bool,
}

#[derive(Clone, Copy)]
struct Numbers {
    gravity: [f32; 2],
    per: [f32; 2],
    depth: f32,
    coriolis: [f32; 2],
    weights: [f32; 2],
    friction: [f32; 2],
}

impl Numbers {
    fn new(config: &ShallowWaterConfig) -> Self {
        let ([dx, dy], dt) = (config.spacing, config.time_step());
        let each = |of: &dyn Fn(f64) -> f64| [of(dx) as f32, of(dy) as f32];
        Numbers {
            gravity: each(&|side| config.gravity / side),
            per: each(&|side| 1.0 / side),
            depth: config.depth as f32,
            coriolis: [config.coriolis[0] as f32, (config.coriolis[1] * dy) as f32],
            weights: WEIGHTS.map(|weight| (dt * weight) as f32),
            friction: each(&|side| dt * config.viscosity / side / side),
        }
    }
}

/// Three rows of a field, from south to north.
fn three(field: &[f32], width: usize, row: usize) -> [&[f32]; 3] {
    [row - 1, row, row + 1].map(|row| &field[row * width..][..width])
}

/// Fills the ghost columns of a row.
fn close(row: &mut [f32]) {
    let last = row.len() - 1;
    (row[0], row[last]) = (row[last - 1], row[1]);
}

/// Fills the ghost rows of a field by their neighbors.
fn extend(field: &mut [f32], width: usize) {
    let end = field.len() - width;
    field.copy_within(width..2 * width, 0);
    field.copy_within(end - width..end, end);
}

impl Reference {
    /// From elevation and u of all cells; v is 0. None with the placeholder of builds without
    /// rayon.
    pub fn new(config: &ShallowWaterConfig, elevation: &[f32], u: &[f32]) -> Option<Self> {
        let [nx, ny] = config.cells.map(|n| n as usize);
        let field = || vec![0.0; (nx + 2) * (ny + 2)];
        let padded = |cells: &[f32]| {
            let mut field = field();
            for (row, own) in field.chunks_mut(nx + 2).skip(1).zip(cells.chunks(nx)) {
                row[1..=nx].copy_from_slice(own);
                close(row);
            }
            extend(&mut field, nx + 2);
            field
        };
        Some(Reference {
            cells: [nx, ny],
            numbers: Numbers::new(config),
            state: [padded(elevation), padded(u), field()],
            tendencies: [field(), field(), field()],
            before: [field(), field()],
            next: field(),
            first: true,
        })
    }

    /// Returns the elevation of all cells.
    pub fn elevation(&self) -> impl Iterator<Item = f32> {
        let [nx, ny] = self.cells;
        self.state[0].chunks(nx + 2).skip(1).take(ny).flat_map(move |row| row[1..=nx].iter().copied())
    }

    /// One step.
    pub fn step(&mut self) {
        let width = self.cells[0] + 2;
        self.advance();
        std::mem::swap(&mut self.state[0], &mut self.next);
        extend(&mut self.state[0], width);
        self.before.iter_mut().for_each(|field| extend(field, width));
        self.friction();
        extend(&mut self.state[1], width);
        self.first = false;
    }

    /// Tendencies, and the state before friction.
    fn advance(&mut self) {
        let ([nx, ny], numbers) = (self.cells, self.numbers);
        let width = nx + 2;
        let weights = if self.first { [numbers.weights[0] / WEIGHTS[0] as f32, 0.0] } else { numbers.weights };
        let [eta, u, v] = &self.state;
        let ([rate_eta, rate_u, rate_v], [to_u, to_v]) = (&mut self.tendencies, &mut self.before);
        let inner = width..(ny + 1) * width;
        let rates = rate_eta[inner.clone()].par_chunks_mut(width).zip(rate_u[inner.clone()].par_chunks_mut(width));
        let rates = rates.zip(rate_v[inner.clone()].par_chunks_mut(width));
        let to = self.next[inner.clone()].par_chunks_mut(width).zip(to_u[inner.clone()].par_chunks_mut(width));
        let to = to.zip(to_v[inner].par_chunks_mut(width));
        rates.zip(to).enumerate().with_min_len(ROWS).for_each(|(row, (((re, ru), rv), ((te, tu), tv)))| {
            let around = [eta, u, v].map(|field| three(field, width, row + 1));
            let f = numbers.coriolis[0] + numbers.coriolis[1] * row as f32;
            let mut update = |x: usize, rates: [f32; 3]| {
                let place = [(&mut *re, &mut *te), (&mut *ru, &mut *tu), (&mut *rv, &mut *tv)];
                for ((last, to), (rate, here)) in place.into_iter().zip(rates.into_iter().zip(around)) {
                    to[x] = here[1][x] + (weights[0] * rate + weights[1] * last[x]);
                    last[x] = rate;
                }
            };
            (1..=nx).for_each(|x| update(x, tendencies(&numbers, f, around, x)));
            if row + 1 == ny {
                tv.fill(0.0);
            }
            [te, tu, tv].into_iter().for_each(close);
        });
    }

    /// Friction of u and v.
    fn friction(&mut self) {
        let ([nx, ny], [along_x, along_y]) = (self.cells, self.numbers.friction);
        let width = nx + 2;
        let inner = width..(ny + 1) * width;
        let [_, u, v] = &mut self.state;
        let [from_u, from_v] = &self.before;
        let rows = u[inner.clone()].par_chunks_mut(width).zip(v[inner].par_chunks_mut(width));
        rows.enumerate().with_min_len(ROWS).for_each(|(row, (u, v))| {
            for (to, from) in [(&mut *u, from_u), (&mut *v, from_v)] {
                let [south, here, north] = three(from, width, row + 1);
                for x in 1..=nx {
                    let across = (here[x + 1] - here[x]) - (here[x] - here[x - 1]);
                    let up = (north[x] - here[x]) - (here[x] - south[x]);
                    to[x] = here[x] + (along_x * across + along_y * up);
                }
            }
            if row + 1 == ny {
                v.fill(0.0);
            }
            close(u);
            close(v);
        });
    }
}

/// Returns the tendencies of elevation, u and v of a cell.
#[inline(always)]
fn tendencies(numbers: &Numbers, f: f32, [eta, u, v]: [[&[f32]; 3]; 3], x: usize) -> [f32; 3] {
    let Numbers { gravity: [gx, gy], per: [px, py], depth, coriolis, .. } = *numbers;
    let ([es, e, en], [us, u, un], [vs, v, vn], w, r) = (eta, u, v, x - 1, x + 1);
    let east = |e: &[f32], u: &[f32], x: usize| (depth + 0.5 * (e[x] + e[x + 1])) * u[x];
    let north = |e: &[f32], n: &[f32], v: &[f32], x: usize| (depth + 0.5 * (e[x] + n[x])) * v[x];
    let vorticity = |f: f32, [e, n]: [&[f32]; 2], [u, un]: [&[f32]; 2], v: &[f32], x: usize| {
        let curl = f + (v[x + 1] - v[x]) * px - (un[x] - u[x]) * py;
        curl / (depth + 0.25 * ((e[x] + e[x + 1]) + (n[x] + n[x + 1])))
    };
    let energy = |u: &[f32], vs: &[f32], v: &[f32], x: usize| {
        0.25 * ((u[x] * u[x] + u[x - 1] * u[x - 1]) + (v[x] * v[x] + vs[x] * vs[x]))
    };
    let q = vorticity(f, [e, en], [u, un], v, x);
    let q_s = vorticity(f - coriolis[1], [es, e], [us, u], vs, x);
    let q_w = vorticity(f, [e, en], [u, un], v, w);
    let ke = energy(u, vs, v, x);
    // East of the last column the west is the last column, whose neighbor in the east is a ghost.
    let ke_e = 0.25 * ((u[r] * u[r] + u[x] * u[x]) + (v[r] * v[r] + vs[r] * vs[r]));
    let ke_n = energy(un, v, vn, x);
    let along_x = east(e, u, x) - east(e, u, w);
    let along_y = north(e, en, v, x) - north(es, e, vs, x);
    let through_n = north(e, en, v, x) + north(e, en, v, r);
    let through_s = north(es, e, vs, x) + north(es, e, vs, r);
    let through_e = east(e, u, x) + east(en, un, x);
    let through_w = east(e, u, w) + east(en, un, w);
    [
        -(along_x * px + along_y * py),
        0.25 * (q * through_n + q_s * through_s) - (gx * (e[r] - e[x]) + (ke_e - ke) * px),
        -0.25 * (q * through_e + q_w * through_w) - (gy * (en[x] - e[x]) + (ke_n - ke) * py),
    ]
}
