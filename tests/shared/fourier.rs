//! Shared by tests of transforms: fields, transforms in f64, and runs over process grids of
//! threads.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::fmt::Debug;
use std::sync::OnceLock;

use meshloom::comm::run_threads;
use meshloom::exchange::GridComms;
use meshloom::fft::{Precision, Spec, Transform, TransformCallbacks, TransformOptions, TransformTuning, Value, Values};
use meshloom::gpu::{Array, Gpu, Options, Recorder};
use meshloom::grid::{Box3, FieldLayout, Grid, Shares, extent};
use rustfft::FftPlanner;
pub use rustfft::num_complex::Complex;

pub type C = Complex<f64>;
pub type Halo = [[u64; 2]; 3];
pub const NO_HALO: Halo = [[0; 2]; 3];

/// Returns `true` if tests take the time for cases whose kernels are long to compile.
pub fn long_tests() -> bool {
    std::env::var("MESHLOOM_LONG_TESTS").is_ok_and(|v| v == "1")
}

/// A number of a field or spectrum.
pub trait Number: Copy + PartialEq + Debug + Send + Sync + 'static {
    fn of(value: C) -> Self;
    fn value(self) -> C;
    /// Checks for equal bits, `-0` and NaN included.
    fn bits(self) -> [u64; 2];
}

macro_rules! numbers {
    ($($real:ident)*) => {$(
        impl Number for $real {
            fn of(value: C) -> Self {
                value.re as $real
            }
            fn value(self) -> C {
                C::new(f64::from(self), 0.0)
            }
            fn bits(self) -> [u64; 2] {
                [u64::from(self.to_bits()), 0]
            }
        }
        impl Number for [$real; 2] {
            fn of(value: C) -> Self {
                [value.re as $real, value.im as $real]
            }
            fn value(self) -> C {
                C::new(f64::from(self[0]), f64::from(self[1]))
            }
            fn bits(self) -> [u64; 2] {
                self.map(|v| u64::from(v.to_bits()))
            }
        }
    )*};
}
numbers!(f32 f64);

/// A cell whose modes are numbers too.
pub trait Cell: Number + Value<Mode: Number> {}
impl<T: Number + Value<Mode: Number>> Cell for T {}

/// Returns a number in -0.5..0.5 that looks random.
pub fn noise(i: u64) -> f64 {
    let mut x = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x >> 40) as f64 / 16_777_216.0 - 0.5
}

/// `count` numbers that look random.
pub fn random<T: Number>(count: u64, salt: u64) -> Vec<T> {
    let at = |i: u64| noise((salt << 40) + i);
    (0..count).map(|i| T::of(C::new(at(2 * i), at(2 * i + 1)))).collect()
}

pub fn values<T: Number>(data: &[T]) -> Vec<C> {
    data.iter().map(|v| v.value()).collect()
}

/// Elements of all fields, and of all spectra.
pub fn cells(spec: &Spec) -> u64 {
    spec.fields * spec.cells.iter().product::<u64>()
}
pub fn modes(spec: &Spec) -> u64 {
    spec.fields * spec.spectrum().iter().product::<u64>()
}
/// Returns the specification with the values and precision of `T`.
pub fn of<T: Value>(spec: &Spec) -> Spec {
    Spec { values: T::VALUES, precision: T::PRECISION, ..spec.clone() }
}

/// Returns the accuracy law: the largest relative error in the maximum norm.
pub fn tolerance(spec: &Spec) -> f64 {
    let lengths = || (0..3).filter(|&a| spec.axes[a]).map(|a| spec.points[a]);
    let decades = lengths().map(|n| (n as f64).log10()).sum::<f64>();
    let awkward = lengths().any(|n| [2, 3, 5, 7, 11, 13].into_iter().fold(n, strip) > 1);
    let law = match spec.precision {
        Precision::Single => 1e-6 + 2.5e-7 * decades,
        Precision::Double => 2e-15 + 5e-16 * decades,
    };
    if awkward { 2.0 * law } else { law }
}

fn strip(mut n: u64, factor: u64) -> u64 {
    while n.is_multiple_of(factor) {
        n /= factor;
    }
    n
}

/// Returns the relative error in the maximum norm.
pub fn error<T: Number>(got: &[T], want: &[C]) -> f64 {
    assert_eq!(got.len(), want.len(), "as many numbers");
    let largest = want.iter().map(|v| v.norm()).fold(0.0, f64::max);
    let distance = |(a, b): (&T, &C)| (a.value() - b).norm();
    // A NaN counts as infinitely far.
    let worst = got.iter().zip(want).map(distance).fold(0.0, |a, b| if b.is_nan() || b > a { b } else { a });
    let worst = if got.iter().any(|v| v.value().is_nan()) { f64::INFINITY } else { worst };
    if largest > 0.0 { worst / largest } else { worst }
}

#[track_caller]
pub fn close<T: Number>(got: &[T], want: &[C], tolerance: f64, what: &str) {
    let error = error(got, want);
    assert!(error <= tolerance, "{what}: an error of {error:e}, {tolerance:e} are allowed");
}

/// Asserts equal bits and says where they first differ.
#[track_caller]
pub fn same<T: Number>(got: &[T], want: &[T], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}: as many numbers");
    let wrong = got.iter().zip(want).position(|(a, b)| a.bits() != b.bits());
    if let Some(i) = wrong {
        panic!("{what}: number {i} of {} is {:?}, not {:?}", got.len(), got[i], want[i]);
    }
}

// -------------------------------------------------------------------- truth

/// Transforms the lines of `data` along an axis; `sign` as in the exponent.
pub fn along(data: &mut [C], shape: [u64; 3], axis: usize, sign: f64) {
    let shape = shape.map(|n| n as usize);
    let (n, stride) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let mut planner = FftPlanner::new();
    let fft = if sign < 0.0 { planner.plan_fft_forward(n) } else { planner.plan_fft_inverse(n) };
    for block in data.chunks_mut(n * stride) {
        for start in 0..stride {
            let mut line: Vec<C> = (0..n).map(|j| block[start + j * stride]).collect();
            fft.process(&mut line);
            line.into_iter().enumerate().for_each(|(j, v)| block[start + j * stride] = v);
        }
    }
}

/// Puts the points `i` of an axis to `place(i)` of one of `n` points, or reads them from there;
/// none are left out or zero.
fn moved(data: &[C], shape: &mut [u64; 3], axis: usize, n: u64, from: impl Fn(u64) -> Option<u64>) -> Vec<C> {
    let (len, stride) = (shape[axis], shape[axis + 1..].iter().product::<u64>());
    let mut result = Vec::new();
    for block in data.chunks((len * stride) as usize) {
        for i in 0..n {
            match from(i) {
                Some(at) => result.extend_from_slice(&block[(at * stride) as usize..((at + 1) * stride) as usize]),
                None => result.extend(vec![C::default(); stride as usize]),
            }
        }
    }
    shape[axis] = n;
    result
}

/// Returns where the mode at `i` of a line of `kept` stands among those of a line of `n`; the
/// unpaired one nowhere.
fn mode_place(i: u64, kept: u64, n: u64) -> Option<u64> {
    match () {
        () if kept == n => Some(i),
        () if 2 * i < kept => Some(i),
        () if 2 * i == kept => None,
        () => Some(n - (kept - i)),
    }
}

/// Returns the spectra of fields in f64.
pub fn forward_truth(spec: &Spec, data: &[C]) -> Vec<C> {
    let factor = spec.factors()[0];
    let one = |field: &[C]| {
        let (mut shape, mut data) = (spec.cells, field.to_vec());
        for axis in [2, 1, 0] {
            if !spec.axes[axis] {
                continue;
            }
            let (n, kept) = (spec.points[axis], spec.modes[axis]);
            let have = shape[axis];
            data = moved(&data, &mut shape, axis, n, |i| (i < have).then_some(i));
            along(&mut data, shape, axis, -1.0);
            let half = axis == 2 && spec.values == Values::Real;
            let count = if half { kept / 2 + 1 } else { kept };
            data = moved(&data, &mut shape, axis, count, |i| mode_place(i, kept, n));
        }
        data.into_iter().map(|v| v * factor).collect::<Vec<C>>()
    };
    data.chunks((cells(spec) / spec.fields) as usize).flat_map(one).collect()
}

/// Returns the fields of spectra in f64.
pub fn inverse_truth(spec: &Spec, data: &[C]) -> Vec<C> {
    let factor = spec.factors()[1];
    let one = |spectrum: &[C]| {
        let (mut shape, mut data) = (spec.spectrum(), spectrum.to_vec());
        for axis in 0..3 {
            if !spec.axes[axis] {
                continue;
            }
            let (n, kept) = (spec.points[axis], spec.modes[axis]);
            if axis == 2 && spec.values == Values::Real {
                // The other half is made up, and what a Hermitian line cannot have is ignored.
                let last = if kept < n { (kept - 1) / 2 } else { n / 2 };
                let mut line = moved(&data, &mut shape, 2, n, |i| Some(i.min(n - i)).filter(|&k| k <= last));
                for row in line.chunks_mut(n as usize) {
                    for (i, v) in row.iter_mut().enumerate() {
                        let i = i as u64;
                        if i == 0 || 2 * i == n {
                            v.im = 0.0;
                        } else if 2 * i > n {
                            v.im = -v.im;
                        }
                    }
                }
                data = line;
            } else {
                let mut places = vec![None; n as usize];
                for i in 0..kept {
                    mode_place(i, kept, n).into_iter().for_each(|p| places[p as usize] = Some(i));
                }
                data = moved(&data, &mut shape, axis, n, |p| places[p as usize]);
            }
            along(&mut data, shape, axis, 1.0);
            data = moved(&data, &mut shape, axis, spec.cells[axis], Some);
        }
        data.into_iter().map(|v| v * factor).collect::<Vec<C>>()
    };
    data.chunks((modes(spec) / spec.fields) as usize).flat_map(one).collect()
}

// -------------------------------------------------------------------- runs

/// Values of a box of arrays of `shape`, one after the other.
pub fn cut<T: Copy>(all: &[T], shape: [u64; 3], part: &Box3) -> Vec<T> {
    let mut values = Vec::new();
    for all in all.chunks(shape.iter().product::<u64>().max(1) as usize) {
        for i in part[0].clone() {
            for j in part[1].clone() {
                let row = ((i * shape[1] + j) * shape[2]) as usize;
                values.extend_from_slice(&all[row + part[2].start as usize..row + part[2].end as usize]);
            }
        }
    }
    values
}

/// Puts them back.
pub fn paste<T: Copy>(all: &mut [T], shape: [u64; 3], part: &Box3, values: &[T]) {
    let width = (part[2].end - part[2].start) as usize;
    let mut rows = values.chunks(width.max(1));
    for all in all.chunks_mut(shape.iter().product::<u64>().max(1) as usize) {
        for i in part[0].clone() {
            for j in part[1].clone() {
                let row = ((i * shape[1] + j) * shape[2] + part[2].start) as usize;
                if let Some(values) = rows.next() {
                    all[row..row + width].copy_from_slice(values);
                }
            }
        }
    }
}

/// Setup of transforms.
#[derive(Clone)]
pub struct Setup {
    pub options: Options,
    pub parts: [usize; 2],
    /// Shares of the ranks; equal if there are none.
    pub shares: Vec<f64>,
    /// `None` for the device's own.
    pub tuning: Option<TransformTuning>,
    pub halo: Halo,
    /// Bytes of a message.
    pub chunk: Option<u64>,
    pub callbacks: TransformCallbacks,
}

/// The device that most tests use stays open, so that each kernel is compiled once.
static OPEN: OnceLock<Gpu> = OnceLock::new();

impl Default for Setup {
    fn default() -> Self {
        let options = meshloom_sanitizer::options().unwrap();
        OPEN.get_or_init(|| Gpu::open(&options, 0).unwrap());
        Setup {
            options,
            parts: [1, 1],
            shares: Vec::new(),
            tuning: None,
            halo: NO_HALO,
            chunk: None,
            callbacks: TransformCallbacks::default(),
        }
    }
}

impl Setup {
    pub fn on(parts: [usize; 2]) -> Self {
        Setup { parts, ..Setup::default() }
    }

    pub fn with_shares(parts: [usize; 2], shares: &[f64]) -> Self {
        Setup { shares: shares.to_vec(), ..Setup::on(parts) }
    }

    pub fn grid(&self) -> Grid {
        let equal = Shares::from(self.parts[0] * self.parts[1]);
        let shares = if self.shares.is_empty() { equal } else { Shares::new(&self.shares).unwrap() };
        Grid::new(self.parts, shares).unwrap()
    }

    pub fn gpu(&self) -> Gpu {
        Gpu::open(&self.options, 0).unwrap()
    }
}

/// Objects of a rank.
pub struct Rank<'a, T: Value> {
    pub gpu: &'a Gpu,
    pub recorder: Recorder,
    pub comms: GridComms,
    pub transform: Transform<T>,
    pub layout: FieldLayout,
}

/// Value of ghost cells, which must not change.
const GHOST: f64 = 777.0;

impl<T: Cell> Rank<'_, T> {
    /// Returns this rank's part of the fields, in an array with ghosts.
    pub fn field(&mut self, input: &[T]) -> Array<T> {
        let spec = self.transform.plan().spec.clone();
        let array = self.transform.field(self.gpu, &self.layout).unwrap();
        let own = cut(input, spec.cells, &self.layout.own);
        self.recorder.upload(&array, 0, &self.with_ghosts(&own)).unwrap();
        array
    }

    fn inside(&self) -> Box3 {
        let own = extent(&self.layout.own);
        [0, 1, 2].map(|a| self.layout.ghosts[a][0]..self.layout.ghosts[a][0] + own[a])
    }

    fn with_ghosts(&self, own: &[T]) -> Vec<T> {
        let cells = extent(&self.layout.own).iter().product::<u64>() as usize;
        let count = own.len().checked_div(cells).unwrap_or(self.transform.plan().spec.fields as usize);
        let mut all = vec![T::of(C::new(GHOST, GHOST)); self.layout.len() as usize * count];
        paste(&mut all, self.layout.shape(), &self.inside(), own);
        all
    }

    /// Returns the own cells of an array, after a look at its ghosts.
    pub fn read(&mut self, array: &Array<T>) -> Vec<T> {
        let all = self.recorder.download(array, 0, array.len()).unwrap();
        let own = cut(&all, self.layout.shape(), &self.inside());
        same(&all, &self.with_ghosts(&own), "ghosts are left alone");
        own
    }

    /// Returns this rank's part of the spectra in an array.
    pub fn spectrum(&mut self, input: &[T::Mode]) -> Array<T::Mode> {
        let array = self.transform.spectrum(self.gpu).unwrap();
        let own = cut(input, self.transform.plan().spec.spectrum(), &self.transform.spectrum_part());
        self.recorder.upload(&array, 0, &own).unwrap();
        array
    }

    pub fn download<E: Number + meshloom::gpu::DeviceElement>(&mut self, array: &Array<E>) -> Vec<E> {
        self.recorder.download(array, 0, array.len()).unwrap()
    }

    pub fn forward(&mut self, field: &Array<T>, spectrum: &Array<T::Mode>) {
        self.transform.forward(&mut self.recorder, &mut self.comms, field, &self.layout, spectrum).unwrap();
    }

    pub fn inverse(&mut self, spectrum: &Array<T::Mode>, field: &Array<T>) {
        self.transform.inverse(&mut self.recorder, &mut self.comms, spectrum, field, &self.layout).unwrap();
    }
}

/// Runs `body` on every rank; what each gave, in order.
pub fn on_ranks<T: Cell, R: Send>(
    setup: &Setup,
    spec: &Spec,
    body: impl Fn(&mut Rank<'_, T>) -> R + Send + Sync,
) -> Vec<R> {
    let grid = setup.grid();
    let ranks = run_threads(grid.ranks(), |comm| {
        let gpu = Gpu::open(&setup.options, comm.rank())?;
        let recorder = Recorder::new(&gpu)?;
        let mut comms = GridComms::new(&comm, grid)?;
        if let Some(chunk) = setup.chunk {
            comms = comms.with_chunks(chunk, 2);
        }
        let mut options = TransformOptions::default().callbacks(setup.callbacks.clone());
        options.tuning = setup.tuning;
        let transform = Transform::<T>::with(&gpu, spec, grid, comm.rank(), &options)?;
        let layout = FieldLayout::new(transform.field_part(), setup.halo);
        let mut rank = Rank { gpu: &gpu, recorder, comms, transform, layout };
        Ok::<_, meshloom::Error>(body(&mut rank))
    });
    ranks.unwrap()
}

/// Whole arrays from the parts of ranks; every element belongs to one.
pub fn gathered<E: Number>(shape: [u64; 3], fields: u64, parts: Vec<(Box3, Vec<E>)>) -> Vec<E> {
    let count = fields * shape.iter().product::<u64>();
    let mut all = vec![E::of(C::new(f64::NAN, f64::NAN)); count as usize];
    let given: usize = parts.iter().map(|(_, values)| values.len()).sum();
    assert_eq!(given as u64, count, "every element is somewhere");
    parts.iter().for_each(|(part, values)| paste(&mut all, shape, part, values));
    all
}

/// Returns the spectra of `input`, which must stay as it is.
pub fn forward<T: Cell>(setup: &Setup, spec: &Spec, input: &[T]) -> Vec<T::Mode> {
    let ranks = on_ranks::<T, _>(setup, spec, |rank| {
        let (field, spectrum) = (rank.field(input), rank.spectrum(&random(modes(spec), 99)));
        rank.forward(&field, &spectrum);
        let spec = rank.transform.plan().spec.clone();
        same(&rank.read(&field), &cut(input, spec.cells, &rank.layout.own), "the input of a forward transform");
        (rank.transform.spectrum_part(), rank.download(&spectrum))
    });
    gathered(of::<T>(spec).spectrum(), spec.fields, ranks)
}

/// Returns the fields of `input`, which must stay as it is.
pub fn inverse<T: Cell>(setup: &Setup, spec: &Spec, input: &[T::Mode]) -> Vec<T> {
    let ranks = on_ranks::<T, _>(setup, spec, |rank| {
        let (spectrum, field) = (rank.spectrum(input), rank.field(&random::<T>(cells(spec), 98)));
        rank.inverse(&spectrum, &field);
        let spec = rank.transform.plan().spec.clone();
        let own = cut(input, spec.spectrum(), &rank.transform.spectrum_part());
        same(&rank.download(&spectrum), &own, "the input of an inverse transform");
        (rank.layout.own.clone(), rank.read(&field))
    });
    gathered(spec.cells, spec.fields, ranks)
}

/// Both ways of random fields and spectra against f64; gives the results.
pub fn check<T: Cell>(setup: &Setup, spec: &Spec, what: &str) -> (Vec<T::Mode>, Vec<T>) {
    let spec = of::<T>(spec);
    let (field, spectrum) = (random::<T>(cells(&spec), 1), random::<T::Mode>(modes(&spec), 2));
    let (there, back) = (forward(setup, &spec, &field), inverse::<T>(setup, &spec, &spectrum));
    close(&there, &forward_truth(&spec, &values(&field)), tolerance(&spec), &format!("{what}, forward {spec:?}"));
    close(&back, &inverse_truth(&spec, &values(&spectrum)), tolerance(&spec), &format!("{what}, inverse {spec:?}"));
    (there, back)
}
