//! GhostCells exchange and reduction on devices, over ranks that are threads: exact values,
//! poisoned ghosts, adjointness.

use std::fmt::Debug;

use meshloom::comm::run_threads;
use meshloom::exchange::ghost_cells::GhostCells;
use meshloom::exchange::{ExchangeError, GridComms};
use meshloom::gpu::{DeviceElement, DeviceError, Element, Gpu, Options, Recorder};
use meshloom::grid::{FieldLayout, GhostPlan, Grid, Shares};

/// Cells of a layout with the mesh cell that each stands for, unwrapped.
fn cells(layout: &FieldLayout) -> Vec<[i64; 3]> {
    let shape = layout.shape();
    let first = [0, 1, 2].map(|a| layout.own[a].start as i64 - layout.ghosts[a][0] as i64);
    let mut cells = Vec::new();
    for i in 0..shape[0] as i64 {
        for j in 0..shape[1] as i64 {
            cells.extend((0..shape[2] as i64).map(|k| [first[0] + i, first[1] + j, first[2] + k]));
        }
    }
    cells
}

fn owned(layout: &FieldLayout, at: [i64; 3]) -> bool {
    (0..3).all(|a| (layout.own[a].start as i64..layout.own[a].end as i64).contains(&at[a]))
}

fn index(shape: [u64; 3], at: [i64; 3]) -> u64 {
    let [i, j, k] = [0, 1, 2].map(|a| at[a].rem_euclid(shape[a] as i64) as u64);
    (i * shape[1] + j) * shape[2] + k
}

/// Any number that is different for every cell and rank.
fn value(rank: usize, n: usize) -> u64 {
    (rank as u64 * 1_000_003 + n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

struct Case {
    shape: [u64; 3],
    parts: [usize; 2],
    /// Shares of the ranks; equal if there are none.
    shares: &'static [f64],
    halo: [[u64; 2]; 3],
    chunk: u64,
}

impl Case {
    fn grid(&self) -> Grid {
        let equal = Shares::from(self.parts[0] * self.parts[1]);
        let shares = if self.shares.is_empty() { equal } else { Shares::new(self.shares).unwrap() };
        Grid::new(self.parts, shares).unwrap()
    }
}

const CASES: [Case; 6] = [
    Case { shape: [6, 5, 4], parts: [1, 1], shares: &[], halo: [[1, 2], [2, 1], [1, 1]], chunk: 1 << 20 },
    Case { shape: [8, 5, 4], parts: [2, 1], shares: &[], halo: [[2, 1], [0, 0], [0, 0]], chunk: 4 },
    Case { shape: [7, 6, 3], parts: [3, 1], shares: &[1.0, 4.0, 2.0], halo: [[3, 4], [0, 0], [0, 0]], chunk: 12 },
    Case { shape: [5, 7, 3], parts: [2, 2], shares: &[], halo: [[3, 3], [4, 2], [0, 1]], chunk: 100 },
    Case { shape: [3, 4, 3], parts: [5, 1], shares: &[], halo: [[2, 1], [1, 0], [0, 0]], chunk: 8 },
    // One rank has no rows.
    Case {
        shape: [7, 5, 3],
        parts: [2, 3],
        shares: &[9.0, 3.0, 0.3, 3.0, 1.0, 0.1],
        halo: [[3, 1], [2, 3], [0, 1]],
        chunk: 60,
    },
];

/// Runs `body` on every rank of every case: with windows of 4 KiB as well as none, and on the
/// floor, where exchanges go through staging buffers instead of mapped arrays.
fn on_ranks(
    body: impl Fn(&Case, &mut Recorder, &mut GridComms, &GhostCells, usize) -> Result<Vec<u64>, ExchangeError> + Sync,
    check: impl Fn(&Case, Vec<Vec<u64>>),
) {
    for (window_bytes, floor) in [(None, false), (Some(4096), false), (None, true)] {
        let options = Options { window_bytes, floor, ..meshloom_sanitizer::options().unwrap() };
        for case in &CASES {
            let grid = case.grid();
            let results = run_threads(grid.ranks(), |comm| {
                let gpu = Gpu::open(&options, comm.rank())?;
                let mut recorder = Recorder::new(&gpu)?;
                let mut lines = GridComms::new(&comm, grid)?.with_chunks(case.chunk, 3);
                let halo =
                    GhostCells::new(GhostPlan::new(case.shape, grid, comm.rank(), case.halo, [true; 3]).unwrap());
                body(case, &mut recorder, &mut lines, &halo, comm.rank())
            });
            check(case, results.unwrap());
        }
    }
}

/// A cell of some type, made of a whole number below 2^16.
trait Cell: DeviceElement + PartialEq + Debug {
    fn of(n: u64) -> Self;
}

macro_rules! cells {
    ($($cell:ty: $n:ident $value:expr;)*) => {$(
        impl Cell for $cell {
            fn of($n: u64) -> Self {
                $value
            }
        }
    )*};
}

cells! {
    f32: n n as f32;
    u32: n n as u32;
    i32: n -(n as i32);
    [f32; 2]: n [n as f32, -2.0 * n as f32];
    f64: n n as f64 * (1.0 + 2f64.powi(-30));
    [f64; 2]: n [n as f64, n as f64 * (1.0 + 2f64.powi(-30))];
}

/// Returns `true` if a device can add such elements.
fn adds<T: Cell>(recorder: &Recorder) -> bool {
    recorder.gpu().capabilities().f64 || ![Element::F64, Element::Complex64].contains(&T::ELEMENT)
}

/// Exchanges two fields, of whose ghosts nothing is known, and adds two, whatever a cell is.
fn both_ways<T: Cell>(
    case: &Case,
    recorder: &mut Recorder,
    lines: &mut GridComms,
    halo: &GhostCells,
) -> Result<(), ExchangeError> {
    let (layout, ranks) = (&halo.plan.layout, case.parts[0] * case.parts[1]);
    let at = cells(layout);
    let field = |recorder: &mut Recorder, cell: &dyn Fn([i64; 3], u64) -> T| {
        let values: Vec<T> =
            (0..2).flat_map(|n| at.iter().map(move |&at| (at, n))).map(|(at, n)| cell(at, n)).collect();
        let field = recorder.gpu().array::<T>("field", values.len() as u64)?;
        recorder.upload(&field, 0, &values)?;
        Ok::<_, ExchangeError>(field)
    };
    let number = |at: [i64; 3], field: u64| 1 + 1000 * field + index(case.shape, at);
    let start = field(recorder, &|at, n| if owned(layout, at) { T::of(number(at, n)) } else { T::of(50_000) })?;
    halo.exchange(recorder, lines, &start)?;
    let after = recorder.download(&start, 0, start.len())?;
    for (place, got) in after.into_iter().enumerate() {
        assert_eq!(got, T::of(number(at[place % at.len()], (place / at.len()) as u64)), "{:?} {place}", T::ELEMENT);
    }

    let given = field(recorder, &|at, n| T::of(number(at, n)))?;
    let added = halo.reduce(recorder, lines, &given);
    if !adds::<T>(recorder) {
        assert!(matches!(added, Err(ExchangeError::Device(DeviceError::Misuse { .. }))), "{added:?}");
        return Ok(());
    }
    added?;
    let after = recorder.download(&given, 0, given.len())?;
    let grid = case.grid();
    let all = (0..ranks).flat_map(|rank| cells(&FieldLayout::new(grid.part(case.shape, rank), case.halo)));
    let mut copies = vec![0; case.shape.iter().product::<u64>() as usize];
    all.for_each(|at| copies[index(case.shape, at) as usize] += 1);
    for (place, got) in after.into_iter().enumerate() {
        let (at, n) = (at[place % at.len()], (place / at.len()) as u64);
        if owned(layout, at) {
            let want = number(at, n) * copies[index(case.shape, at) as usize];
            assert_eq!(got, T::of(want), "{:?} at {at:?}", T::ELEMENT);
        }
    }
    Ok(())
}

#[test]
fn cells_of_all_types_are_moved_and_added() {
    on_ranks(
        |case, recorder, lines, halo, _| {
            both_ways::<f32>(case, recorder, lines, halo)?;
            both_ways::<u32>(case, recorder, lines, halo)?;
            both_ways::<i32>(case, recorder, lines, halo)?;
            both_ways::<[f32; 2]>(case, recorder, lines, halo)?;
            both_ways::<f64>(case, recorder, lines, halo)?;
            both_ways::<[f64; 2]>(case, recorder, lines, halo)?;
            Ok(Vec::new())
        },
        |_, _| {},
    );
}

/// Bits of numbers, NaN among them, are moved; own cells keep their fourth number.
#[test]
fn vectors_send_three_numbers() {
    let bits = |n: u64| [n as u32, 0x7fc0_0000 + n as u32, (n as f32 - 7.5).to_bits()];
    on_ranks(
        |case, recorder, lines, halo, _| {
            let (layout, at) = (&halo.plan.layout, cells(&halo.plan.layout));
            let start: Vec<u32> = at
                .iter()
                .flat_map(|&at| {
                    let own = if owned(layout, at) { bits(index(case.shape, at)) } else { [1, 2, 3] };
                    [own[0], own[1], own[2], 77]
                })
                .collect();
            let words = recorder.gpu().array::<u32>("field", start.len() as u64)?;
            recorder.upload(&words, 0, &start)?;
            halo.exchange_vectors(recorder, lines, &words.cast()?)?;
            let after = recorder.download(&words, 0, words.len())?;
            for (&at, found) in at.iter().zip(after.chunks(4)) {
                let [x, y, z] = bits(index(case.shape, at));
                assert_eq!(found, [x, y, z, if owned(layout, at) { 77 } else { 0 }], "{at:?}");
            }
            Ok(Vec::new())
        },
        |_, _| {},
    );
}

#[test]
fn reduction_of_wide_cells_is_exact() {
    on_ranks(
        |_, recorder, lines, halo, rank| {
            let layout = halo.plan.layout.clone();
            let start: Vec<u32> = (0..layout.len() as usize)
                .flat_map(|n| [value(rank, n) as u32, (value(rank, n) >> 32) as u32])
                .collect();
            let field = recorder.gpu().array::<u32>("field", start.len() as u64)?;
            recorder.upload(&field, 0, &start)?;
            halo.reduce_wide(recorder, lines, &field)?;
            let after = recorder.download(&field, 0, field.len())?;
            Ok(after.chunks(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect())
        },
        |case, results| {
            let grid = case.grid();
            let layouts: Vec<_> =
                (0..results.len()).map(|rank| FieldLayout::new(grid.part(case.shape, rank), case.halo)).collect();
            let mut sums = vec![0u64; case.shape.iter().product::<u64>() as usize];
            for (rank, layout) in layouts.iter().enumerate() {
                cells(layout)
                    .iter()
                    .enumerate()
                    .for_each(|(n, &at)| sums[index(case.shape, at) as usize] += value(rank, n));
            }
            for (layout, got) in layouts.iter().zip(results) {
                for (at, got) in cells(layout).into_iter().zip(got).filter(|(at, _)| owned(layout, *at)) {
                    assert_eq!(got, sums[index(case.shape, at) as usize], "{at:?}");
                }
            }
        },
    );
}

#[test]
fn exchange_and_reduce_are_adjoint() {
    // Small integers as f32: both sides of <E x, y> = <x, R y> are exact.
    let small = |rank: usize, n: usize, salt: usize| (value(rank + salt, n) % 17) as f32 - 8.0;
    on_ranks(
        |_, recorder, lines, halo, rank| {
            let layout = halo.plan.layout.clone();
            let n = layout.len() as usize;
            let own: Vec<bool> = cells(&layout).into_iter().map(|at| owned(&layout, at)).collect();
            let x: Vec<f32> = (0..n).map(|i| if own[i] { small(rank, i, 0) } else { f32::NAN }).collect();
            let y: Vec<f32> = (0..n).map(|i| small(rank, i, 77)).collect();
            let (ex, ry) = (recorder.gpu().array::<f32>("x", n as u64)?, recorder.gpu().array::<f32>("y", n as u64)?);
            recorder.upload(&ex, 0, &x)?;
            recorder.upload(&ry, 0, &y)?;
            halo.exchange(recorder, lines, &ex)?;
            halo.reduce(recorder, lines, &ry)?;
            let (ex, ry) = (recorder.download(&ex, 0, n as u64)?, recorder.download(&ry, 0, n as u64)?);
            let left: f32 = ex.iter().zip(&y).map(|(a, b)| a * b).sum();
            let right: f32 = (0..n).filter(|&i| own[i]).map(|i| x[i] * ry[i]).sum();
            Ok(vec![left as i64 as u64, right as i64 as u64])
        },
        |_, results| {
            let sum = |side: usize| results.iter().map(|r| r[side] as i64).sum::<i64>();
            assert_eq!(sum(0), sum(1));
            assert_ne!(sum(0), 0, "a dot product that tests something");
        },
    );
}

/// Two ranks that do not do the same, each its own.
fn on_two_ranks(body: impl Fn(&mut Recorder, &mut GridComms, usize) -> Result<(), ExchangeError> + Sync) -> String {
    let error = run_threads(2, |comm| {
        let mut recorder = Recorder::new(&Gpu::open(&meshloom_sanitizer::options()?, 0)?)?;
        let mut comms = GridComms::new(&comm, Grid::new([2, 1], 2).unwrap())?;
        body(&mut recorder, &mut comms, comm.rank())
    });
    error.expect_err("ranks do other things").to_string()
}

fn plan(shape: [u64; 3], parts: [usize; 2], rank: usize, below_and_above: [u64; 2]) -> GhostCells {
    let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
    GhostCells::new(GhostPlan::new(shape, grid, rank, [below_and_above, [0; 2], [0; 2]], [true; 3]).unwrap())
}

#[test]
fn ranks_that_do_other_things_with_as_many_cells_are_told() {
    let said = on_two_ranks(|recorder, comms, rank| {
        let (halo, field) = (plan([4, 3, 5], [2, 1], rank, [1, 1]), recorder.gpu().array::<f32>("field", 4 * 15)?);
        if rank == 0 { halo.exchange(recorder, comms, &field) } else { halo.reduce(recorder, comms, &field) }
    });
    assert!(said.contains("exchange of 4x3x5 f32") && said.contains("sum of 4x3x5 f32"), "{said}");
    // As many cells each way, and others.
    let said = on_two_ranks(|recorder, comms, rank| {
        let halo = plan([4, 3, 5], [2, 1], rank, [[1, 2], [2, 1]][rank]);
        let field = recorder.gpu().array::<f32>("field", 5 * 15)?;
        halo.exchange(recorder, comms, &field)
    });
    assert!(said.matches("exchange of 4x3x5 f32 with settings").count() == 2, "{said}");
    let said = on_two_ranks(|recorder, comms, rank| {
        let halo = plan([4, 3, 5], [2, 1], rank, [1, 1]);
        if rank == 0 {
            halo.exchange(recorder, comms, &recorder.gpu().array::<f32>("field", 2 * 4 * 15)?)
        } else {
            halo.exchange(recorder, comms, &recorder.gpu().array::<[f32; 2]>("field", 4 * 15)?)
        }
    });
    assert!(said.contains("exchange of 4x3x5 f32") && said.contains("exchange of 4x3x5 vec2<f32>"), "{said}");
}

#[test]
fn plans_and_comms_of_other_grids_are_refused() {
    let said = on_two_ranks(|recorder, comms, rank| {
        let halo = plan([4, 4, 5], [1, 2], rank, [1, 1]);
        halo.exchange(recorder, comms, &recorder.gpu().array::<f32>("field", 6 * 2 * 5)?)
    });
    assert!(said.contains("of 2x1 in the comms") && said.contains("of 1x2 in the plan"), "{said}");
    let made = |parts: [[usize; 2]; 2]| -> Vec<String> {
        let errors = run_threads(2, |comm| {
            let parts = parts[comm.rank()];
            let error = GridComms::new(&comm, Grid::new(parts, parts[0] * parts[1]).unwrap()).err();
            Ok::<_, ExchangeError>(error.expect("grids that do not fit").to_string())
        });
        errors.unwrap()
    };
    for said in made([[2, 1], [3, 1]]) {
        assert!(said.contains("rank 1 gives a grid of 3x1 for 2 ranks"), "{said}");
    }
    let said = made([[2, 1], [1, 2]]);
    let [first, second] = &said[..] else { panic!("{said:?}") };
    assert!(first.contains("2x1, but rank 1 called GridComms::new of a grid of 1x2"), "{first}");
    assert!(second.contains("1x2, but rank 0 called GridComms::new of a grid of 2x1"), "{second}");
}
