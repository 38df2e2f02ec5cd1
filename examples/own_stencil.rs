//! A stencil model of one's own over any number of ranks: the reaction and diffusion of Gray and
//! Scott.
//!
//! Two quantities on a periodic grid: `du/dt = 0.16 lap(u) - u v^2 + 0.035 (1 - u)` and `dv/dt =
//! 0.08 lap(v) + u v^2 - 0.1 v`. They are the two components of one field. The picture has the same
//! bits for every number of ranks: each cell is computed by the same kernel from the same numbers.
//!
//! ```sh
//! MESHLOOM_RANKS=4 cargo run --release --example own_stencil      # four ranks as threads
//! mpirun -n 4 target/release/examples/own_stencil                 # or as MPI processes, built with --features mpi
//! ```

const STEP: &str = "
    fn cell(c: Cell) -> vec2<f32> {
        let uv = now(c);
        let laplacian = now_at(c, -1, 0) + now_at(c, 1, 0) + now_at(c, 0, -1) + now_at(c, 0, 1) - 4.0 * uv;
        let reaction = uv.x * uv.y * uv.y;
        return uv + vec2<f32>(0.16, 0.08) * laplacian + vec2<f32>(0.035 * (1.0 - uv.x) - reaction, reaction - 0.1 * uv.y);
    }";

// u = 1 and v = 0 everywhere except in a square in the middle.
const START: &str = "
    fn cell(c: Cell) -> vec2<f32> {
        let inside = c.index.y >= 28u && c.index.y < 36u && c.index.z >= 56u && c.index.z < 72u;
        return select(vec2<f32>(1.0, 0.0), vec2<f32>(0.5, 0.25), inside);
    }";

fn main() -> meshloom::Result<()> {
    meshloom::run(|rank| {
        let mesh = rank.mesh([64, 128]).ghosts(1).build()?;
        let (mut now, mut next) = (rank.zeros_of::<f32>(&mesh, 2)?, rank.zeros_of::<f32>(&mesh, 2)?);
        rank.stencil(&mesh, START).run(rank, &(), &[], &mut now)?;
        let step = rank.stencil(&mesh, STEP);
        for _ in 0..3000 {
            step.run(rank, &(), &[("now", &now)], &mut next)?;
            std::mem::swap(&mut now, &mut next);
        }

        // Rank 0 draws every second row of v.
        if let Some(all) = rank.gather(&now, 0)? {
            let shade = |v: &f32| if *v > 0.2 { '#' } else { ['.', '+'][usize::from(*v > 0.1)] };
            let v = &all[64 * 128..];
            v.chunks(128).step_by(2).for_each(|row| println!("{}", row.iter().map(shade).collect::<String>()));
        }
        Ok(())
    })?;
    Ok(())
}
