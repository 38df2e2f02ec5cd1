//! A stencil model of one's own over any number of ranks: the reaction and diffusion of Gray and Scott.
//!
//! Two fields on a periodic grid, u and v: `du/dt = 0.16 lap(u) - u v^2 + 0.035 (1 - u)`, `dv/dt = 0.08 lap(v) + u v^2 - 0.1 v`. What a model needs is
//! its kernel for one cell, in WGSL, and how far that reaches; meshloom has the rest. The picture has the same bits for every number of ranks:
//! each cell is computed by the same kernel from the same numbers.
//!
//! ```sh
//! cargo run --release --example own_stencil -- 4              # four ranks as threads
//! mpirun -n 4 target/release/examples/own_stencil             # or as MPI processes, built with --features mpi
//! ```

use meshloom::exchange::GridComms;
use meshloom::exchange::ghost_cells::GhostCells;
use meshloom::gpu::{Kernel, KernelSource, Options};
use meshloom::grid::{GhostPlan, Grid, extent};
use meshloom::{Error, Launch, launch};

meshloom::kernel_params! {
    /// Own cells and columns, the place of the first, and how far the next row and v are.
    struct GrayScott { cells: u32, columns: u32, first: u32, row: u32, field: u32 }
}

const STEP: &str = "
    var<uniform> params: Params;
    var<storage, read> now: array<f32>;
    var<storage, read_write> next: array<f32>;

    fn laplacian(i: u32) -> f32 {
        return load_now(i - 1u) + load_now(i + 1u) + load_now(i - params.row) + load_now(i + params.row) - 4.0 * load_now(i);
    }

    fn each(cell: u32) {
        let i = params.first + cell / params.columns * params.row + cell % params.columns;
        let u = load_now(i);
        let v = load_now(params.field + i);
        store_next(i, u + 0.16 * laplacian(i) - u * v * v + 0.035 * (1.0 - u));
        store_next(params.field + i, v + 0.08 * laplacian(params.field + i) + u * v * v - 0.1 * v);
    }

    #each params.cells
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (shape, steps) = ([64, 128, 1], 3000);
    let ranks = std::env::args().nth(1).map_or(Ok(1), |n| n.parse())?;
    launch(Launch::detect(ranks), &Options::from_env()?, |context| {
        // This rank's cells, with ghost cells one wide on all sides: copies of its neighbours'.
        let (rank, grid) = (context.comm.rank(), Grid::auto(shape, context.comm.size()));
        let plan = GhostPlan::new(shape, grid, rank, [[1, 1], [1, 1], [0, 0]], [true; 3])?;
        let (ghosts, mut comms) = (GhostCells::new(plan), GridComms::new(&context.comm, grid)?);
        let (layout, [rows, columns, _]) = (ghosts.layout(), extent(&ghosts.layout().own));
        let (first, row, field) = (layout.offset(), layout.strides()[0], layout.len());
        let own = (0..rows * columns).map(|cell| [cell / columns, cell % columns]);
        let place = |[i, j]: [u64; 2]| (first + i * row + j) as usize;
        let in_grid = |[i, j]: [u64; 2]| [layout.own[0].start + i, layout.own[1].start + j];

        // u = 1 and v = 0, but for a square in the middle.
        let mut start = [vec![1.0f32; field as usize], vec![0.0; field as usize]].concat();
        let in_square = |[i, j]: [u64; 2]| (28..36).contains(&i) && (56..72).contains(&j);
        for cell in own.clone().filter(|&cell| in_square(in_grid(cell))) {
            (start[place(cell)], start[place(cell) + field as usize]) = (0.5, 0.25);
        }
        let [mut now, mut next] = [context.gpu.array("now", 2 * field)?, context.gpu.array("next", 2 * field)?];
        context.recorder.upload(&now, 0, &start)?;

        let step = Kernel::new(KernelSource::new("gray_scott::step", STEP).params::<GrayScott>());
        let [cells, columns, first, row, field] = [rows * columns, columns, first, row, field].map(|n| n as u32);
        let params = GrayScott { cells, columns, first, row, field };
        for _ in 0..steps {
            ghosts.exchange(&mut context.recorder, &mut comms, &now)?;
            context.recorder.each(&step, &[now.raw(), next.raw()], &params, cells.into())?;
            std::mem::swap(&mut now, &mut next);
        }

        // Rank 0 draws every second row of v.
        let v = context.recorder.download(&now, field.into(), field.into())?;
        let found: Vec<[f32; 3]> =
            own.map(|cell| [in_grid(cell)[0] as f32, in_grid(cell)[1] as f32, v[place(cell)]]).collect();
        if let Some(all) = context.comm.gather_v(0, &found)? {
            let mut picture = vec![vec![' '; shape[1] as usize]; shape[0] as usize];
            let shade = |v: f32| if v > 0.2 { '#' } else { ['.', '+'][usize::from(v > 0.1)] };
            all.data().iter().for_each(|&[i, j, v]| picture[i as usize][j as usize] = shade(v));
            picture.iter().step_by(2).for_each(|line| println!("{}", line.iter().collect::<String>()));
        }
        Ok::<_, Error>(())
    })?;
    Ok(())
}
