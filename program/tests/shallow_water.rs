//! The shallow-water model against golden values, and against itself on other numbers of ranks,
//! grids and windows.

use meshloom::gpu::Options;
use meshloom::{Launch, Rank, launch};
use meshloom_program::models::shallow_water::{Diagnostics, Real, ShallowWater, ShallowWaterConfig, ShallowWaterError};

/// Step, least and greatest eta, greatest |u| and |v|, mean height, energy; the sums of h, u and v
/// times cos(0.1 i), where i counts cells; u, v and h of row 5, column 7.
type Golden = [f64; 13];

// By mpi4jax 0.9.1 in f64, and independently by NumPy: its example with both mistakes put right,
// and as it is, on one rank.
#[rustfmt::skip]
const FIXED_48X24: [Golden; 4] = [
    [0.0, -1.020856676062, 1.086503970402, 7.535699332171, 0.0, 99.99726469607, 241.7501603629, 940.9177508578, -73.93226171132, 0.0, 1.713491699519e-20, 0.0, 100.7501812615],
    [1.0, -1.020856676062, 1.086503970402, 7.540061528244, 0.02072893428777, 99.99726469607, 241.7505840711, 940.9168880117, -73.92902702756, 0.3688638781778, -0.001038821610284, 0.002194076530533, 100.7501812615],
    [10.0, -0.9949858204201, 0.9463089107447, 7.557731110979, 0.1266612723472, 99.99726469607, 241.7336320552, 935.9210642317, -73.82464998291, 2.162603273625, -0.005912350576697, 0.01409572882399, 100.885136185],
    [200.0, -0.9892634672615, 0.9599362625259, 7.541737962528, 0.05485271256875, 99.99726469607, 241.396521908, 937.0741657831, -73.715168264, -1.38025304192, 0.006922347394864, -0.0107643341385, 100.8647462715],
];

#[rustfmt::skip]
const UPSTREAM_48X24: [Golden; 4] = [
    [0.0, -1.020856676062, 1.086503970402, 7.535699332171, 0.0, 99.99726469607, 241.7501603629, 940.9177508578, -73.93226171132, 0.0, 1.713491699519e-20, 0.0, 100.7501812615],
    [1.0, -1.020856676062, 1.086503970402, 7.540061528244, 0.02072901230774, 99.99726469607, 241.7505837355, 940.9168880117, -73.92902702756, 0.3686752496294, -0.001038821610284, 0.002194070930987, 100.7501812615],
    [10.0, -0.9954151625513, 0.9463088277382, 7.557731805094, 0.1266640112759, 99.99726469607, 241.7336125745, 935.9351404074, -73.82454267859, 2.161543808426, -0.005912228192525, 0.01409553095988, 100.8851376031],
    [200.0, -0.9899635725601, 0.9600153640511, 7.541759282738, 0.05486522719612, 99.99726469607, 241.3965526913, 937.0883201497, -73.71420639116, -1.380606640684, 0.006924028755183, -0.01075959508865, 100.8648194925],
];

#[rustfmt::skip]
const FIXED_360X180: [Golden; 4] = [
    [0.0, -6.940296722883, 7.012927719382, 9.951623047745, 0.0, 99.99959649446, 459.9750151415, 896.1414422216, 1.136868377216e-13, 0.0, 7.049698015004e-60, 0.0, 106.9007311076],
    [10.0, -6.937587983972, 7.00978997536, 9.958446981824, 0.03194062345044, 99.99959649446, 459.9746186576, 896.3606953254, -0.3128933967263, -0.01437973190499, -0.004024484226022, 0.00445281541723, 106.8987198265],
    [100.0, -6.979025233562, 6.91524124275, 9.982003557844, 0.1298604778358, 99.99959649446, 459.9703832668, 913.3386126558, -1.360555019082, -0.07026777613641, -0.01041420227265, 0.02181269201876, 106.7663558902],
    [1000.0, -6.935580969198, 7.033243275878, 9.978348174115, 0.09811181635573, 99.99959649446, 459.9285653842, 913.6018979846, -0.6373129267844, -0.09257941239031, -0.003005190966717, 0.01337844178031, 106.8136806012],
];

#[rustfmt::skip]
const UPSTREAM_360X180: [Golden; 2] = [
    [1.0, -6.940296722883, 7.012927719382, 9.952304850276, 0.00323227052424, 99.99959649446, 459.9750202747, 896.1414422216, -0.03173920247964, -0.001244430666342, -0.0004143585492512, 0.0004406988356193, 106.9007311076],
    [100.0, -6.978580283326, 6.915241596728, 9.98199063536, 0.1297077961153, 99.99959649446, 459.9701847468, 913.3388066243, -1.360525513153, -0.07027880785807, -0.01041408116373, 0.02181269311894, 106.7663562163],
];
fn config(cells: [u64; 2], compatible: bool) -> ShallowWaterConfig {
    ShallowWaterConfig { cells, compatible, ..ShallowWaterConfig::default() }
}

/// Figures and whole fields (h, u, v) after some steps.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    figures: Diagnostics,
    fields: [Vec<f64>; 3],
}

/// Runs to each of `steps` on threads.
fn run<T: Real>(ranks: usize, options: &Options, config: &ShallowWaterConfig, steps: &[u64]) -> Vec<Seen> {
    let parts = launch(Launch::Threads(ranks), options, |context| {
        let mut water = ShallowWater::<T>::new(context, config.clone())?;
        let mut seen = Vec::new();
        for &step in steps {
            let left = step - water.steps();
            water.advance(context, left)?;
            let flow = water.flow(context)?;
            let [u, v] = flow.velocity;
            let fields = [flow.elevation, u, v].map(|field| field.into_iter().map(T::wide).collect::<Vec<f64>>());
            seen.push((water.diagnostics(context)?, fields));
        }
        let (starts, length) = config.rows(ranks, context.comm.rank())?;
        Ok::<_, ShallowWaterError>((starts.collect::<Vec<_>>(), length as usize, seen))
    })
    .unwrap();
    let cells = config.cells.iter().product::<u64>() as usize;
    let moment = |n: usize| {
        let mut fields = [(); 3].map(|()| vec![f64::NAN; cells]);
        for (starts, length, seen) in &parts {
            assert_eq!(seen[n].0, parts[0].2[n].0, "figures are the same on all ranks");
            for (field, own) in fields.iter_mut().zip(&seen[n].1) {
                for (row, &start) in starts.iter().enumerate() {
                    field[start as usize..][..*length].copy_from_slice(&own[row * length..][..*length]);
                }
            }
        }
        fields[0].iter_mut().for_each(|eta| *eta += config.depth);
        Seen { figures: parts[0].2[n].0, fields }
    };
    (0..steps.len()).map(moment).collect()
}

fn options() -> Options {
    meshloom_sanitizer::options().unwrap()
}

/// Compares with golden values: heights, velocities and energy within `bounds(step)`.
fn agrees(seen: &[Seen], golden: &[Golden], columns: usize, bounds: impl Fn(f64) -> [f64; 3]) {
    for (Seen { figures, fields: [h, u, v] }, golden) in seen.iter().zip(golden) {
        assert_eq!(figures.step as f64, golden[0]);
        let [height, velocity, energy] = bounds(golden[0]);
        let dot = |field: &[f64]| -> f64 { field.iter().enumerate().map(|(i, a)| a * (0.1 * i as f64).cos()).sum() };
        let (at, cells) = (5 * columns + 7, h.len() as f64);
        let compared = [
            ("min eta", figures.min_eta, height),
            ("max eta", figures.max_eta, height),
            ("max u", figures.max_u, velocity),
            ("max v", figures.max_v, velocity),
            ("mean height", figures.mean_height, height),
            ("energy", figures.energy, energy),
            ("h", dot(h), cells * height),
            ("u", dot(u), cells * velocity),
            ("v", dot(v), cells * velocity),
            ("u of a cell", u[at], velocity),
            ("v of a cell", v[at], velocity),
            ("h of a cell", h[at], height),
        ];
        for ((what, got, bound), want) in compared.into_iter().zip(&golden[1..]) {
            let apart = (got - want).abs();
            assert!(apart <= bound, "{what} at step {}: {got} for {want}, {apart:e} apart of {bound:e}", golden[0]);
        }
    }
}

fn steps(golden: &[Golden]) -> Vec<u64> {
    golden.iter().map(|golden| golden[0] as u64).collect()
}

/// 1e-12 of 100 m, 10 m/s and the energy; golden values have as many digits.
fn double_bounds(_: f64) -> [f64; 3] {
    [1e-10, 1e-11, 5e-10]
}

/// Returns `true` if devices of tests have f64 (lavapipe has).
fn has_double() -> bool {
    let found =
        launch(Launch::Threads(1), &options(), |context| Ok::<_, ShallowWaterError>(context.gpu.capabilities().f64));
    let found = found.unwrap()[0];
    if !found {
        println!("skipped: this device has no f64");
    }
    found
}

#[test]
fn runs_have_golden_values_in_double_precision() {
    if !has_double() {
        return;
    }
    let [small, large] = [[48, 24], [360, 180]];
    for (cells, compatible, golden) in [
        (small, false, &FIXED_48X24[..]),
        (small, true, &UPSTREAM_48X24),
        (large, false, &FIXED_360X180[..3]),
        (large, true, &UPSTREAM_360X180),
    ] {
        let seen = run::<f64>(1, &options(), &config(cells, compatible), &steps(golden));
        agrees(&seen, golden, cells[0] as usize, double_bounds);
    }
}

/// Roundings of a step: eta by half a unit of 8 (2.4e-7), and four fluxes of 1000 m^2/s times 1.6
/// dt/dx = 0.0064 by 2^-24 each (1.5e-6 in all); u by half a unit of 16, and as much by the slope
/// of eta. As if all had one sign they add up over the steps, and waves carry eta to u by sqrt(g /
/// h) = 0.3. The start is rounded once.
fn single_bounds(step: f64) -> [f64; 3] {
    let [height, velocity] = [2e-6 * (step + 1.0), 1e-6 * (step + 1.0)];
    // h u du, at most 1000 m^2/s, and g eta deta.
    [height, velocity, 1000.0 * velocity + 70.0 * height]
}

#[test]
fn runs_have_golden_values_in_single_precision() {
    let small = [48, 24];
    for (compatible, golden) in [(false, FIXED_48X24), (true, UPSTREAM_48X24)] {
        let seen = run::<f32>(1, &options(), &config(small, compatible), &steps(&golden));
        agrees(&seen, &golden, 48, single_bounds);
        // Far below what was allowed for: roundings have no one sign.
        let mass = seen.iter().map(|seen| (seen.figures.mean_height - golden[0][5]).abs()).fold(0.0, f64::max);
        assert!(mass < 1e-6, "mean height changes by {mass:e}");
    }
    let seen = run::<f32>(1, &options(), &config([360, 180], false), &steps(&FIXED_360X180));
    agrees(&seen, &FIXED_360X180, 360, single_bounds);
}

#[test]
fn the_two_mistakes_are_told_apart() {
    // They differ by 7e-4 m after 200 steps, by the goldens' account.
    let seen = [false, true].map(|compatible| run::<f32>(1, &options(), &config([48, 24], compatible), &[200]));
    let apart = seen[0][0].fields[0].iter().zip(&seen[1][0].fields[0]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!((6e-4..8e-4).contains(&apart), "{apart:e}");
}

#[test]
fn bits_do_not_depend_on_ranks_or_grids() {
    let cells = [37, 23];
    for compatible in [false, true] {
        let of = |grid: [usize; 2], options: &Options| {
            let config = ShallowWaterConfig { grid: Some(grid), ..config(cells, compatible) };
            run::<f32>(grid[0] * grid[1], options, &config, &[0, 1, 9])
        };
        let first = of([1, 1], &options());
        for grid in [[1, 2], [2, 1], [3, 1], [1, 4], [2, 2], [2, 3], [3, 2], [6, 1]] {
            assert!(of(grid, &options()) == first, "{grid:?}, compatible: {compatible}");
        }
        let floor = Options { floor: true, ..options() };
        assert!(of([2, 2], &floor) == first, "staging buffers");
    }
}

/// SwiftShader is spared this one: for kernels of some thirty loads and stores that each choose one
/// of three windows its compiler takes more than 12 GB and a minute.
#[test]
fn bits_do_not_depend_on_windows() {
    let small = Options { window_bytes: Some(4096), ..options() };
    for compatible in [false, true] {
        let of = |grid: [usize; 2], options: &Options| {
            let config = ShallowWaterConfig { grid: Some(grid), ..config([37, 23], compatible) };
            run::<f32>(grid[0] * grid[1], options, &config, &[0, 1, 9])
        };
        let first = of([1, 1], &options());
        assert!(of([1, 1], &small) == first && of([2, 2], &small) == first, "compatible: {compatible}");
    }
}

/// Ghost cells reach beyond neighbors, and ranks have no cells at all.
#[test]
fn ranks_may_have_fewer_rows_than_ghosts_or_none() {
    let cells = [9, 3];
    let of = |grid: [usize; 2]| {
        let config = ShallowWaterConfig { grid: Some(grid), ..config(cells, false) };
        run::<f32>(grid[0] * grid[1], &options(), &config, &[7])
    };
    let first = of([1, 1]);
    for grid in [[3, 1], [5, 1], [1, 5], [2, 3], [1, 11]] {
        assert!(of(grid) == first, "{grid:?}");
    }
}

#[test]
fn double_precision_has_the_same_bits_on_ranks() {
    if !has_double() {
        return;
    }
    let of = |grid: [usize; 2]| {
        let config = ShallowWaterConfig { grid: Some(grid), ..config([21, 17], false) };
        run::<f64>(grid[0] * grid[1], &options(), &config, &[5])
    };
    let first = of([1, 1]);
    assert!(of([2, 2]) == first && of([1, 3]) == first);
}

#[test]
fn ranks_that_run_different_models_are_refused() {
    let differs = |error: &Option<ShallowWaterError>| {
        error.as_ref().is_some_and(|error| {
            error.to_string().contains("differs between ranks") && error.to_string().contains("rank 2 has")
        })
    };
    launch(Launch::Threads(3), &options(), |context| {
        let last = context.comm.rank() == 2;
        let usual = config([8, 6], false);
        let other = ShallowWaterConfig { depth: usual.depth.next_up(), ..usual.clone() };
        let error = ShallowWater::<f32>::new(context, if last { other } else { usual.clone() }).err();
        assert!(differs(&error), "{error:?}");
        let water = ShallowWater::<f32>::new(context, usual.clone())?;
        let state = water.state(context)?;
        let error = ShallowWater::<f32>::resume(context, usual.clone(), 4 + u64::from(last), &state).err();
        assert!(differs(&error), "{error:?}");
        ShallowWater::<f32>::resume(context, usual, 4, &state)?;
        Ok::<_, ShallowWaterError>(())
    })
    .unwrap();
}

/// One exchange a step, as planned; one submission for many steps on one rank.
#[test]
fn a_step_costs_what_was_planned() {
    let config = config([64, 48], false);
    for ranks in [1, 4] {
        launch(Launch::Threads(ranks), &options(), |context| {
            let mut water = ShallowWater::<f32>::new(context, config.clone())?;
            context.recorder.wait()?;
            let (cost, counts, planned) = (water.cost(), context.recorder.counts(), water.step_cost());
            water.advance(context, 20)?;
            context.recorder.wait()?;
            let (sent, after) = (water.cost(), context.recorder.counts());
            assert_eq!(sent.sent_bytes - cost.sent_bytes, 20 * planned.cost.sent_bytes);
            assert_eq!(sent.messages - cost.messages, 20 * planned.cost.messages);
            assert_eq!(planned.cost.device_bytes, 48 * planned.cells);
            if context.comm.size() == 1 {
                assert_eq!([after.submits - counts.submits, after.dispatches - counts.dispatches], [1, 20]);
                assert_eq!(planned.exchanges, 0);
            } else {
                // In a grid of 2x2 the same rank is in the east and the west.
                assert_eq!((planned.exchanges, planned.cost.messages), (1, 2));
            }
            Ok::<_, ShallowWaterError>(())
        })
        .unwrap();
    }
}

/// A state after some steps, given to ranks in another grid, goes on to the same bits.
#[test]
fn a_resumed_run_has_the_bits_of_one_that_was_not_interrupted() {
    fn ends<T: Real>(config: &ShallowWaterConfig) {
        let whole = launch(Launch::Threads(1), &options(), |context| {
            let mut water = ShallowWater::<T>::new(context, config.clone())?;
            let mut states = vec![water.state(context)?];
            for _ in 0..2 {
                water.advance(context, 4)?;
                states.push(water.state(context)?);
            }
            Ok::<_, ShallowWaterError>(states)
        });
        let states = whole.unwrap().swap_remove(0);
        let columns = config.cells[0] as usize;
        let own = |state: &[T], ranks: usize, rank: usize| -> Result<Vec<T>, ShallowWaterError> {
            let (starts, length) = config.rows(ranks, rank)?;
            let starts: Vec<usize> = starts.map(|start| start as usize).collect();
            let fields = state.chunks(columns * config.cells[1] as usize);
            Ok(fields.flat_map(|f| starts.iter().flat_map(|&s| f[s..s + length as usize].to_vec())).collect())
        };
        for (from, ranks) in [(0, 1), (1, 1), (1, 4)] {
            launch(Launch::Threads(ranks), &options(), |context| {
                let rank = context.comm.rank();
                let state = own(&states[from], ranks, rank)?;
                let mut water = ShallowWater::<T>::resume(context, config.clone(), 4 * from as u64, &state)?;
                water.advance(context, 8 - water.steps())?;
                let same = bytemuck_bytes(&water.state(context)?) == bytemuck_bytes(&own(&states[2], ranks, rank)?);
                assert!(same, "from step {} on {ranks} ranks", 4 * from);
                Ok::<_, ShallowWaterError>(())
            })
            .unwrap();
        }
    }
    fn bytemuck_bytes<T: Real>(values: &[T]) -> &[u8] {
        meshloom::bytemuck::cast_slice(values)
    }
    ends::<f32>(&config([19, 14], false));
    if has_double() {
        ends::<f64>(&config([19, 14], true));
    }
}

#[test]
fn pictures_show_every_so_many_cells_from_the_north() {
    for (cells, ranks, size) in [([37, 23], 3, [37, 23]), ([1000, 6], 2, [334, 2])] {
        let config = config(cells, false);
        let found = launch(Launch::Threads(ranks), &options(), |context| {
            let water = ShallowWater::<f32>::new(context, config.clone())?;
            water.picture(context)
        });
        let mut found = found.unwrap();
        assert!(found[1..].iter().all(Option::is_none));
        let picture = found.swap_remove(0).unwrap();
        assert_eq!([picture.width, picture.height], size);
        let fields = run::<f32>(1, &options(), &config, &[0]).swap_remove(0).fields;
        let stride = cells[0] as usize / (size[0] - 1).max(1);
        let stride = if size[0] == 37 { 1 } else { stride };
        for (row, line) in picture.elevation.chunks(size[0]).enumerate() {
            let y = ((size[1] - 1 - row) * stride + stride / 2).min(cells[1] as usize - 1);
            for (column, &eta) in line.iter().enumerate() {
                let x = (column * stride + stride / 2).min(cells[0] as usize - 1);
                let want = fields[0][y * cells[0] as usize + x] - config.depth;
                assert!((f64::from(eta) - want).abs() < 1e-12, "{row} {column}");
            }
        }
    }
}

#[test]
fn what_cannot_be_is_an_error() {
    let error = |ranks: usize,
                 config: ShallowWaterConfig,
                 work: fn(&mut Rank, &mut ShallowWater<f32>) -> Result<(), ShallowWaterError>| {
        let found = launch(Launch::Threads(ranks), &options(), |context| {
            let mut water = ShallowWater::<f32>::new(context, config.clone())?;
            work(context, &mut water)
        });
        found.unwrap_err().to_string()
    };
    let nothing = |_: &mut Rank, _: &mut ShallowWater<f32>| Ok(());
    let text = error(1, config([2, 24], false), nothing);
    assert!(text.contains("number of columns is 2"), "{text}");
    let text = error(2, ShallowWaterConfig { grid: Some([3, 1]), ..config([48, 24], false) }, nothing);
    assert!(text.contains("3x1"), "{text}");
    // The water runs dry: heights become negative and vorticities infinite.
    let shallow = ShallowWaterConfig { depth: 1e-3, viscosity: 0.0, ..config([48, 24], false) };
    let text = error(2, shallow, |context, water| {
        water.advance(context, 3000)?;
        water.diagnostics(context)?;
        Ok(())
    });
    assert!(text.contains("not finite"), "{text}");
    let text = launch(Launch::Threads(1), &options(), |context| {
        ShallowWater::<f32>::resume(context, config([8, 4], false), 1, &[0.0; 7])?;
        Ok::<_, ShallowWaterError>(())
    });
    let text = text.unwrap_err().to_string();
    assert!(text.contains("7 values") && text.contains("192"), "{text}");
    let floor = Options { floor: true, ..options() };
    let text = launch(Launch::Threads(1), &floor, |context| {
        ShallowWater::<f64>::new(context, config([8, 4], false))?;
        Ok::<_, ShallowWaterError>(())
    });
    let text = text.unwrap_err().to_string();
    assert!(text.contains("double precision"), "{text}");
}
