//! GhostCells exchange and reduction on devices, over ranks that are threads: exact values, poisoned ghosts, adjointness.

use meshloom::comm::run_threads;
use meshloom::exchange::ghost_cells::{Cells, GhostCells};
use meshloom::exchange::{ExchangeError, GridComms};
use meshloom::gpu::{Gpu, Options, Recorder};
use meshloom::grid::{FieldLayout, GhostPlan, Grid};

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
    halo: [[u64; 2]; 3],
    chunk: u64,
}

const CASES: [Case; 5] = [
    Case { shape: [6, 5, 4], parts: [1, 1], halo: [[1, 2], [2, 1], [1, 1]], chunk: 1 << 20 },
    Case { shape: [8, 5, 4], parts: [2, 1], halo: [[2, 1], [0, 0], [0, 0]], chunk: 4 },
    Case { shape: [7, 6, 3], parts: [3, 1], halo: [[3, 4], [0, 0], [0, 0]], chunk: 12 },
    Case { shape: [5, 7, 3], parts: [2, 2], halo: [[3, 3], [4, 2], [0, 1]], chunk: 100 },
    Case { shape: [3, 4, 3], parts: [5, 1], halo: [[2, 1], [1, 0], [0, 0]], chunk: 8 },
];

/// Runs `body` on every rank of every case: with windows of 4 KiB as well as none, and on the floor, where exchanges go
/// through staging buffers instead of mapped arrays.
fn on_ranks(
    body: impl Fn(&Case, &mut Recorder, &mut GridComms, &GhostCells, usize) -> Result<Vec<u64>, ExchangeError> + Sync,
    check: impl Fn(&Case, Vec<Vec<u64>>),
) {
    for (window_bytes, floor) in [(None, false), (Some(4096), false), (None, true)] {
        let options = Options { window_bytes, floor, ..Options::from_env().unwrap() };
        for case in &CASES {
            let ranks = case.parts[0] * case.parts[1];
            let results = run_threads(ranks, |comm| {
                let gpu = Gpu::open(&options, comm.rank())?;
                let grid = Grid::new(case.parts, ranks).unwrap();
                let mut recorder = Recorder::new(&gpu)?;
                let mut lines = GridComms::new(&comm, grid)?.with_chunks(case.chunk, 3);
                let halo = GhostCells::new(GhostPlan::new(case.shape, grid, comm.rank(), case.halo, [true; 3]));
                body(case, &mut recorder, &mut lines, &halo, comm.rank())
            });
            check(case, results.unwrap());
        }
    }
}

#[test]
fn ghosts_take_the_values_of_their_cells() {
    on_ranks(
        |case, recorder, lines, halo, _| {
            let at = cells(halo.layout());
            let start: Vec<u32> = at
                .iter()
                .map(|&at| if owned(halo.layout(), at) { index(case.shape, at) as u32 } else { u32::MAX })
                .collect();
            let field = recorder.gpu().array::<u32>("field", start.len() as u64)?;
            recorder.upload(&field, 0, &start)?;
            halo.exchange(recorder, lines, &field, Cells::Float)?;
            let after = recorder.download(&field, 0, field.len())?;
            for (at, got) in at.iter().zip(after) {
                assert_eq!(u64::from(got), index(case.shape, *at), "{at:?}");
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
            let layout = halo.layout().clone();
            let start: Vec<u32> = (0..layout.len() as usize)
                .flat_map(|n| [value(rank, n) as u32, (value(rank, n) >> 32) as u32])
                .collect();
            let field = recorder.gpu().array::<u32>("field", start.len() as u64)?;
            recorder.upload(&field, 0, &start)?;
            halo.reduce(recorder, lines, &field, Cells::Wide)?;
            let after = recorder.download(&field, 0, field.len())?;
            Ok(after.chunks(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect())
        },
        |case, results| {
            let grid = Grid::new(case.parts, results.len()).unwrap();
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
            let layout = halo.layout().clone();
            let n = layout.len() as usize;
            let own: Vec<bool> = cells(&layout).into_iter().map(|at| owned(&layout, at)).collect();
            let x: Vec<f32> = (0..n).map(|i| if own[i] { small(rank, i, 0) } else { f32::NAN }).collect();
            let y: Vec<f32> = (0..n).map(|i| small(rank, i, 77)).collect();
            let (ex, ry) = (recorder.gpu().array::<f32>("x", n as u64)?, recorder.gpu().array::<f32>("y", n as u64)?);
            recorder.upload(&ex, 0, &x)?;
            recorder.upload(&ry, 0, &y)?;
            halo.exchange(recorder, lines, &ex, Cells::Float)?;
            halo.reduce(recorder, lines, &ry, Cells::Float)?;
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
