//! Linear operators of fields against their definitions in f64, their adjoints by dot products, the
//! same bits for every number of ranks.

use super::correlated_field::{AMPLITUDE, COTANGENT, CYCLES, FIELD, MULTIPLICITY, XI, XI_COTANGENT};
use super::ranks::{GRIDS, cells, host, mesh, number, on_grid, options, own};
use meshloom::comm::Op;
use meshloom::exchange::collectives::{all_gather, all_reduce, all_reduce_wide, broadcast};
use meshloom::gpu::Options;
use meshloom::grid::MeshOptions;
use meshloom::mesh::{PointsInCells, Window};
use meshloom::operators::{
    Adjoint, Convolution, Diagonal, Gather, Ghosts, Hartley, Leaf, Linear, LinesOfSight, Model, OperatorError,
    PointwiseOperator, RankCollective, Readout, Select, Space, StencilOperator, Tap, ToDevice, Vector, Wavenumbers,
    check_adjoint, check_derivative, random_field,
};
use meshloom::{Mesh, Rank};

const SHAPE: [u64; 3] = [4, 5, 6];

/// Returns a field of 120 cells.
fn all_cells(salt: u64) -> Vec<f64> {
    (0..120).map(|cell| number(cell, salt)).collect()
}

fn place(cell: u64) -> [u64; 3] {
    [cell / 30, cell / 6 % 5, cell % 6]
}

fn cell([i, j, k]: [u64; 3]) -> usize {
    ((i * 5 + j) * 6 + k) as usize
}

fn space(rank: &Rank) -> Result<Space, OperatorError> {
    Space::of("x", Leaf::cells(&mesh(rank, SHAPE)))
}

/// Returns a field of cells with these values of all ranks.
fn field_of(rank: &mut Rank, all: &[f64]) -> Result<Vector, OperatorError> {
    let mut field = Vector::new(&rank.gpu, &space(rank)?)?;
    let own = own(&mesh(rank, SHAPE), all);
    field.set(&mut rank.recorder, "x", &own)?;
    Ok(field)
}

/// Runs an operator from cells to cells and its adjoint on all grids: both against what is
/// `wanted`, and to the same bits.
fn cells_to_cells<L: Linear + 'static>(
    make: impl Fn(&mut Rank) -> Result<L, OperatorError> + Sync,
    [x, wanted, adjoint]: [&[f64]; 3],
) {
    let mut bits: Option<Vec<u32>> = None;
    let with = |options: &Options, parts: [usize; 2]| {
        on_grid(parts, options, |rank| {
            let model = Model::new(make(rank)?);
            let x = field_of(rank, x)?;
            rank.recorder.wait()?;
            let before = rank.recorder.counts().dispatches;
            let at = model.at(rank, &x)?;
            let mut back = Vector::new(&rank.gpu, model.domain())?;
            at.vjp(rank, &x, &mut back)?;
            rank.recorder.wait()?;
            if parts == [1, 1] {
                // Alone a rank has no blocks to pack: each pass is a dispatch.
                let cost = model.cost();
                let passes = cost.apply.dispatches + cost.vjp.dispatches;
                assert_eq!(rank.recorder.counts().dispatches - before, passes, "{model:?}");
                assert_eq!(cost.apply.messages + cost.vjp.messages, 0);
            }
            check_adjoint(rank, &model, &x)?;
            let cells = cells(&mesh(rank, SHAPE));
            let recorder = &mut rank.recorder;
            let (there, back) = (at.value.get(recorder, "x")?, back.get(recorder, "x")?);
            let there = cells.iter().map(|&cell| cell as usize).zip(there);
            Ok(there.chain(cells.iter().map(|&cell| 120 + cell as usize).zip(back)).collect::<Vec<_>>())
        })
    };
    for options in options() {
        for parts in GRIDS {
            let mut all = vec![f64::NAN; 240];
            with(&options, parts).into_iter().flatten().for_each(|(at, value)| all[at] = value);
            for (found, wanted) in all.iter().zip(wanted.iter().chain(adjoint)) {
                assert!((found - wanted).abs() < 1e-5, "{parts:?}: {found}, {wanted}");
            }
            let found: Vec<u32> = all.into_iter().map(|value| (value as f32).to_bits()).collect();
            assert_eq!(*bits.get_or_insert(found.clone()), found, "{parts:?}");
        }
    }
}

#[test]
fn stencils_reach_over_ranks_and_round_the_box() {
    let taps: [Tap; 5] =
        [([0, 0, 0], -2.5), ([1, 0, -1], 1.25), ([-3, 2, 0], 0.5), ([0, -4, 5], 1.0), ([2, 1, 1], -0.75)];
    let x = all_cells(1);
    let apply = |sign: i64| -> Vec<f64> {
        let moved = |at: u64, by: i64, n: u64| (at as i64 + sign * by).rem_euclid(n as i64) as u64;
        let sum = |at: [u64; 3]| {
            let term = |(offset, weight): &Tap| weight * x[cell([0, 1, 2].map(|a| moved(at[a], offset[a], SHAPE[a])))];
            taps.iter().map(term).sum::<f64>()
        };
        (0..120).map(|cell| sum(place(cell))).collect()
    };
    cells_to_cells(
        |rank| {
            let space = space(rank)?;
            StencilOperator::new(rank, &space, &taps)
        },
        [&x, &apply(1), &apply(-1)],
    );
}

#[test]
fn convolutions_are_sums_over_the_box() {
    let (x, kernel) = (all_cells(2), all_cells(3));
    let apply = |sign: bool| -> Vec<f64> {
        let sum = |at: [u64; 3]| {
            let term = |other: u64| {
                let from = place(other);
                let [to, from] = if sign { [at, from] } else { [from, at] };
                kernel[cell([0, 1, 2].map(|a| (to[a] + SHAPE[a] - from[a]) % SHAPE[a]))] * x[other as usize]
            };
            (0..120).map(term).sum::<f64>()
        };
        (0..120).map(|cell| sum(place(cell))).collect()
    };
    cells_to_cells(
        |rank| {
            let (space, kernel) = (space(rank)?, field_of(rank, &kernel)?);
            Convolution::new(rank, &space, &kernel)
        },
        [&x, &apply(true), &apply(false)],
    );
}

#[test]
fn masks_multiply_and_selections_pick() {
    let x = all_cells(4);
    let mask: Vec<f64> = (0..120).map(|cell| f64::from(cell % 3 == 0)).collect();
    let masked: Vec<f64> = x.iter().zip(&mask).map(|(x, mask)| x * mask).collect();
    cells_to_cells(
        |rank| {
            let (space, mask) = (space(rank)?, field_of(rank, &mask)?);
            Diagonal::new(&space, &mask)
        },
        [&x, &masked, &masked],
    );
    // Of the cells that are listed, in their order; some ranks have none of them.
    let listed = [[0, 4, 5], [3, 0, 0], [0, 0, 1], [2, 2, 2], [0, 1, 0]];
    for parts in GRIDS {
        on_grid(parts, &options()[1], |rank| {
            let space = space(rank)?;
            let select = Select::cells(rank, &space, &listed)?;
            let replicate = Model::new(RankCollective::replicate(rank, &select.signature().target)?);
            let model = Model::new(select);
            let field = field_of(rank, &x)?;
            let mesh = mesh(rank, SHAPE);
            let wanted: Vec<f64> = listed.iter().filter(|at| mesh.owns(**at)).map(|at| x[cell(*at)]).collect();
            let value = model.value(rank, &field)?;
            assert_eq!(host(rank, &value)?["x"], wanted);
            let whole = model.then(&replicate)?;
            let data = whole.value(rank, &field)?;
            let mut sorted = host(rank, &data)?["x"].clone();
            let mut all: Vec<f64> = listed.iter().map(|at| x[cell(*at)]).collect();
            sorted.sort_by(f64::total_cmp);
            all.sort_by(f64::total_cmp);
            assert_eq!(sorted, all);
            for model in [model, whole] {
                check_adjoint(rank, &model, &field)?;
            }
            let ranks = rank.comm.size() as u64;
            let own = Space::of("x", Leaf::points(3, 3 * ranks))?;
            let sum = Model::new(RankCollective::sum_over_ranks(rank, &own)?);
            let ones = random_field(rank, &own, 8)?;
            check_adjoint(rank, &sum, &ones)?;
            // Complex factors, for components and batches.
            let leaf = Leaf::half_spectrum(&mesh);
            let space = Space::of("x", leaf.clone().batch(3))?;
            let factors = random_field(rank, &Space::of("w", leaf)?, 5)?;
            let model = Model::new(Diagonal::new(&space, &factors)?);
            let x = random_field(rank, &space, 6)?;
            check_adjoint(rank, &model, &x)?;
            let ghosts =
                Model::new(Ghosts::new(rank, &Space::of("x", Leaf::cells(&mesh).batch(2))?, [[1, 2], [2, 0], [1, 1]])?);
            let x = random_field(rank, ghosts.domain(), 7)?;
            check_adjoint(rank, &ghosts, &x)?;
            Ok(())
        });
    }
}

/// CIC shares of a position on a mesh of cells of 0.5.
fn cic(position: [f64; 3]) -> Vec<(usize, f64)> {
    let at = position.map(|x| x / 0.5);
    let mut shares = Vec::new();
    for corner in 0..8u64 {
        let side = [corner >> 2 & 1, corner >> 1 & 1, corner & 1];
        let weight: f64 =
            (0..3).map(|a| if side[a] == 1 { at[a] - at[a].floor() } else { 1.0 - (at[a] - at[a].floor()) }).product();
        let node = [0, 1, 2].map(|a| (at[a].floor() as i64 + side[a] as i64).rem_euclid(SHAPE[a] as i64) as u64);
        shares.push((cell(node), weight));
    }
    shares
}

#[test]
fn fields_are_read_at_points_and_values_painted() {
    // In all cells, on nodes and faces, at the end of the box.
    let mut points: Vec<[f64; 3]> =
        (0..40).map(|n| [0, 1, 2].map(|a| (number(n, 10 + a) + 1.0) / 2.0 * SHAPE[a as usize] as f64 * 0.5)).collect();
    points.extend([[0.0; 3], [1.5, 2.0, 2.5], [1.999, 2.499, 2.999]]);
    let (x, carried) = (all_cells(8), (0..43).map(|n| 3.0 * number(n, 20)).collect::<Vec<_>>());
    let mut painted = vec![0.0; 120];
    for (point, value) in points.iter().zip(&carried) {
        cic(*point).into_iter().for_each(|(cell, weight)| painted[cell] += weight * value);
    }
    let mut bits: Option<Vec<u32>> = None;
    for (options, parts) in options().iter().flat_map(|options| GRIDS.map(|parts| (options.clone(), parts))) {
        let found = on_grid(parts, &options, |rank| {
            let (space, mesh) = (space(rank)?, mesh(rank, SHAPE));
            let is_own = |point: &[f64; 3]| mesh.owns(PointsInCells::cell_of(*point, mesh.size(), SHAPE));
            let numbers: Vec<usize> = (0..points.len()).filter(|&n| is_own(&points[n])).collect();
            let positions: Vec<[f64; 3]> = numbers.iter().map(|&n| points[n]).collect();
            let readout = Readout::new(rank, &space, Window::Cic, &positions)?;
            let mut values = Vector::new(&rank.gpu, &readout.signature().target)?;
            let own_values: Vec<f64> = numbers.iter().map(|&n| carried[n]).collect();
            values.set(&mut rank.recorder, "x", &own_values)?;
            let field = field_of(rank, &x)?;
            let model = Model::new(readout);
            let at = model.at(rank, &field)?;
            for (value, n) in host(rank, &at.value)?["x"].iter().zip(&numbers) {
                let wanted: f64 = cic(points[*n]).into_iter().map(|(cell, weight)| weight * x[cell]).sum();
                assert!((value - wanted).abs() < 1e-6, "{value} {wanted}");
            }
            let mut painted = Vector::new(&rank.gpu, &space)?;
            at.vjp(rank, &values, &mut painted)?;
            check_adjoint(rank, &model, &field)?;
            // Several fields, and a wider window.
            let pairs = Space::of("x", Leaf::cells(&mesh).components(2))?;
            let wide = Model::new(Readout::new(rank, &pairs, Window::Tsc, &positions)?);
            let two = random_field(rank, &pairs, 1)?;
            check_adjoint(rank, &wide, &two)?;
            Ok(cells(&mesh).into_iter().zip(host(rank, &painted)?["x"].clone()).collect::<Vec<_>>())
        });
        let mut all = vec![f64::NAN; 120];
        found.into_iter().flatten().for_each(|(cell, value)| all[cell as usize] = value);
        for (found, wanted) in all.iter().zip(&painted) {
            assert!((found - wanted).abs() < 1e-5, "{parts:?}: {found} {wanted}");
        }
        let found: Vec<u32> = all.into_iter().map(|value| (value as f32).to_bits()).collect();
        assert_eq!(*bits.get_or_insert(found.clone()), found, "{parts:?}");
    }
}

#[test]
fn lines_of_sight_are_integrals() {
    let x = all_cells(9);
    let lines =
        [[[0.1, 0.2, 0.3], [1.9, 2.2, 2.8]], [[0.5, 0.5, 0.0], [0.5, 0.5, 3.0]], [[1.7, 2.4, 2.9], [2.6, 3.1, 3.3]]];
    let step = 0.2;
    let wanted = lines.map(|[from, to]: [[f64; 3]; 2]| {
        let length = (0..3).map(|a| (to[a] - from[a]).powi(2)).sum::<f64>().sqrt();
        let samples = (length / step).ceil() as usize;
        let at = |n: usize| [0, 1, 2].map(|a| from[a] + (n as f64 + 0.5) / samples as f64 * (to[a] - from[a]));
        let value = |n: usize| cic(at(n)).into_iter().map(|(cell, weight)| weight * x[cell]).sum::<f64>();
        (0..samples).map(value).sum::<f64>() * length / samples as f64
    });
    let mut bits: Option<Vec<u32>> = None;
    for parts in GRIDS {
        let found = on_grid(parts, &options()[0], |rank| {
            let space = space(rank)?;
            let model = Model::new(LinesOfSight::new(rank, &space, &lines, step)?);
            let field = field_of(rank, &x)?;
            check_adjoint(rank, &model, &field)?;
            let value = model.value(rank, &field)?;
            Ok(host(rank, &value)?["x"].clone())
        });
        for values in found {
            for (found, wanted) in values.iter().zip(&wanted) {
                assert!((found - wanted).abs() < 1e-5, "{parts:?}: {found} {wanted}");
            }
            let found: Vec<u32> = values.iter().map(|&value| (value as f32).to_bits()).collect();
            assert_eq!(*bits.get_or_insert(found.clone()), found, "{parts:?}");
        }
    }
}

/// Returns the correlated field of `tests/shared/correlated_field.rs`: amplitudes at their modes
/// times excitations, transformed, plus an offset.
fn correlated_field(rank: &mut Rank, mesh: &Mesh) -> Result<Model, OperatorError> {
    let modes = Space::of("xi", Leaf::modes(mesh))?;
    let wavenumbers = Wavenumbers::unique(mesh)?;
    assert_eq!(wavenumbers.len(), CYCLES.len());
    for (found, cycles) in wavenumbers.values().iter().zip(CYCLES) {
        assert!((found / (2.0 * std::f64::consts::PI) - cycles).abs() < 1e-8, "{found} {cycles}");
    }
    let amplitudes = Model::new(wavenumbers.amplitudes(rank, &modes)?).named("amplitude")?;
    let both = amplitudes.zip(&Model::identity(&modes)?)?;
    let text = "fn f(amplitude: f32, xi: f32) -> f32 { return amplitude * xi; }";
    let product = Model::new(PointwiseOperator::wgsl(text, "f", both.target(), "x")?);
    let transform = Model::new(Adjoint::new(Hartley::new(rank, &Space::of("x", Leaf::cells(mesh))?)?));
    let text = "fn f(x: f32) -> f32 { return 0.7 + x; }";
    let offset = Model::new(PointwiseOperator::wgsl(text, "f", transform.target(), "field")?);
    both.then(&product)?.then(&transform)?.then(&offset)
}

#[test]
fn a_correlated_field_has_its_golden_values_and_derivatives() {
    let mut bits: Option<Vec<u32>> = None;
    for (options, parts) in
        options().iter().flat_map(|options| [[1, 1], [2, 2], [1, 3]].map(|parts| (options.clone(), parts)))
    {
        let found = on_grid(parts, &options, |rank| {
            let mesh = crate::process_grid::mesh(rank, [1, 6, 10], [1.0, 0.6, 2.0]);
            let model = correlated_field(rank, &mesh)?;
            let mut x = Vector::new(&rank.gpu, model.domain())?;
            let part = mesh.modes(false);
            let modes: Vec<usize> = part[1]
                .clone()
                .flat_map(|j| part[2].clone().map(move |k| (j * 10 + k) as usize))
                .filter(|_| part[0] == (0..1))
                .collect();
            let recorder = &mut rank.recorder;
            x.set(recorder, "amplitudes", &AMPLITUDE)?;
            x.set(recorder, "xi", &modes.iter().map(|&mode| XI[mode]).collect::<Vec<_>>())?;
            let own_cells = cells(&mesh);
            let close = |found: &[f64], all: &[f64], own: &[usize], what: &str| {
                for (found, &at) in found.iter().zip(own) {
                    assert!((found - all[at]).abs() < 2e-6 * (1.0 + all[at].abs()), "{what}: {found} {}", all[at]);
                }
            };
            let at = model.at(rank, &x)?;
            let own: Vec<usize> = own_cells.iter().map(|&cell| cell as usize).collect();
            close(&host(rank, &at.value)?["field"], &FIELD, &own, "field");
            let mut dy = Vector::new(&rank.gpu, model.target())?;
            dy.set(&mut rank.recorder, "field", &own.iter().map(|&cell| COTANGENT[cell]).collect::<Vec<_>>())?;
            let mut dx = Vector::new(&rank.gpu, model.domain())?;
            at.vjp(rank, &dy, &mut dx)?;
            let gradient = host(rank, &dx)?;
            close(&gradient["xi"], &XI_COTANGENT, &modes, "excitations");
            check_adjoint(rank, &model, &x)?;
            let direction = random_field(rank, model.domain(), 2)?;
            let taylor = check_derivative(rank, &model, &x, &direction)?;
            assert!((taylor.order.unwrap() - 2.0).abs() < 0.1, "{taylor}");

            // Modes of each wavenumber, as the sum of ones.
            let spectrum = Wavenumbers::unique(&mesh)?.amplitudes(rank, &Space::of("xi", Leaf::modes(&mesh))?)?;
            let mut ones = Vector::new(&rank.gpu, &spectrum.signature().target)?;
            ones.set(&mut rank.recorder, "xi", &vec![1.0; modes.len()])?;
            let counts = Model::new(Adjoint::new(spectrum)).value(rank, &ones)?;
            assert_eq!(host(rank, &counts)?["amplitudes"], MULTIPLICITY);
            Ok(gradient["amplitudes"].iter().map(|&value| (value as f32).to_bits()).collect::<Vec<_>>())
        });
        for found in found {
            assert_eq!(*bits.get_or_insert(found.clone()), found, "{parts:?}");
        }
    }
}

#[test]
fn wavenumbers_of_incommensurate_boxes_are_not_too_many() {
    let size = [2.0, 2.0 * 2f64.sqrt().sqrt(), 3.1];
    let of = |n: u64, size| {
        Wavenumbers::unique(&Mesh::new(&MeshOptions { size, ..MeshOptions::new([n; 3]) }, 1, 0).unwrap())
    };
    // 101^3 are below 2^20 = 1048576, 129^3 above.
    assert!(of(200, size).is_ok());
    let error = of(256, size).unwrap_err().to_string();
    for what in ["1048576", "2146689", "logarithmic bins"] {
        assert!(error.contains(what), "{error}");
    }
    // Cells of one size have a common measure.
    assert!(of(256, [3.1; 3]).is_ok());
}

#[test]
fn bins_have_the_modes_between_their_edges() {
    on_grid([1, 1], &options()[0], |rank| {
        // Sides in no ratio of small numbers.
        let mesh = crate::process_grid::mesh(rank, [6, 5, 8], [2.0, 2.0 * 2f64.sqrt().sqrt(), 3.1]);
        let unique = Wavenumbers::unique(&mesh)?;
        assert_eq!(unique.len(), 4 * 3 * 5, "hardly two modes have one wavenumber");
        let edges = [1.0, 3.0, 5.5, 9.0];
        let bins = Wavenumbers::edges(&mesh, &edges)?;
        let modes = Space::of("m", Leaf::modes(&mesh).batch(2))?;
        let model = Model::new(bins.amplitudes(rank, &modes)?);
        let mut amplitudes = Vector::new(&rank.gpu, model.domain())?;
        amplitudes.set(&mut rank.recorder, "amplitudes", &[1.0, 2.0, 3.0, -1.0, -2.0, -3.0])?;
        let values = model.value(rank, &amplitudes)?;
        let values = host(rank, &values)?["m"].clone();
        for (n, value) in values.iter().enumerate() {
            let (batch, mode) = (n / 240, [n % 240 / 40, n / 8 % 5, n % 8]);
            let k: f64 = (0..3)
                .map(|a| {
                    let (m, n) = (mode[a] as f64, mesh.shape()[a] as f64);
                    (2.0 * std::f64::consts::PI / mesh.size()[a] * m.min(n - m)).powi(2)
                })
                .sum::<f64>()
                .sqrt();
            let bin = edges.windows(2).position(|pair| (pair[0]..pair[1]).contains(&k));
            let wanted = bin.map_or(0.0, |bin| (bin as f64 + 1.0) * if batch == 0 { 1.0 } else { -1.0 });
            assert_eq!(*value, wanted, "{mode:?} {k}");
            assert_eq!(bins.bin(mode.map(|m| m as u64)), bin);
            let own = unique.values()[unique.bin(mode.map(|m| m as u64)).unwrap()];
            assert!((own - k).abs() <= 1e-14 * k, "{own} {k}");
        }
        check_adjoint(rank, &model, &amplitudes)?;
        Ok(())
    });
}

#[test]
fn sums_are_exact_whatever_their_order() {
    // More bins than a workgroup keeps, terms of all magnitudes, sums that cancel.
    let terms: Vec<f64> = (0..120).map(|cell| number(cell, 30) * 2f64.powi((cell % 60) as i32 - 30)).collect();
    let mut bits: Option<Vec<u32>> = None;
    for parts in GRIDS {
        let found = on_grid(parts, &options()[0], |rank| {
            let (space, field) = (space(rank)?, field_of(rank, &terms)?);
            let one = Space::of("s", Leaf::vector(1))?;
            let sum = Model::new(Adjoint::new(Gather::broadcast(&one, &space)?));
            check_adjoint(rank, &sum, &field)?;
            let value = sum.value(rank, &field)?;
            let found = host(rank, &value)?["s"][0];
            let wanted: f64 = terms.iter().map(|&term| f64::from(term as f32)).sum();
            // Each of 120 terms is rounded to 2^-55 of the greatest.
            assert!(
                (found - wanted).abs() <= 1e-7 * wanted.abs() + 120.0 * 2f64.powi(-55) * 2f64.powi(29),
                "{found} {wanted}"
            );
            let mesh = mesh(rank, SHAPE);
            let index: Vec<u32> = cells(&mesh).iter().map(|&cell| (cell * 13 % 1500) as u32).collect();
            let array = rank.gpu.array("index", index.len() as u64)?;
            rank.recorder.upload(&array, 0, &index)?;
            let gather = Gather::new(&Space::of("s", Leaf::vector(1400))?, &space, array)?;
            let model = Model::new(Adjoint::new(gather));
            check_adjoint(rank, &model, &field)?;
            let sums = model.value(rank, &field)?;
            let sums = host(rank, &sums)?["s"].clone();
            for (bin, found) in sums.iter().enumerate() {
                let own = (0..120usize).filter(|cell| cell * 13 % 1500 == bin);
                let wanted: f64 = own.map(|cell| f64::from(terms[cell] as f32)).sum();
                assert!((found - wanted).abs() <= 1e-7 * wanted.abs() + 2f64.powi(-20), "{bin}: {found} {wanted}");
            }
            let dot = rank.vector_dot(&field, &field)?;
            Ok(sums.iter().chain([&found, &dot]).map(|&value| (value as f32).to_bits()).collect::<Vec<_>>())
        });
        for found in found {
            assert_eq!(*bits.get_or_insert(found.clone()), found, "{parts:?}");
        }
    }
}

#[test]
fn parameters_come_to_the_device_and_their_cotangents_back() {
    on_grid([2, 1], &options()[0], |rank| {
        let parameters = Space::of("rate", Leaf::parameters(1))?;
        let upload = Model::new(ToDevice::new(&parameters)?);
        let cells = Space::of("rate", Leaf::cells(&mesh(rank, SHAPE)))?;
        let spread = upload.then(&Model::new(Gather::broadcast(upload.target(), &cells)?))?;
        let x = Space::of("x", Leaf::cells(&mesh(rank, SHAPE)))?;
        let both = spread.zip(&Model::identity(&x)?)?;
        let text = "fn f(x: f32, rate: f32) -> f32 { return exp(rate * x); }";
        let model = both.then(&Model::new(PointwiseOperator::wgsl(text, "f", both.target(), "y")?))?;
        let mut at = random_field(rank, model.domain(), 1)?;
        at.set(&mut rank.recorder, "rate", &[0.5])?;
        check_adjoint(rank, &model, &at)?;
        let direction = random_field(rank, model.domain(), 2)?;
        let check = check_derivative(rank, &model, &at, &direction)?;
        assert!((check.order.unwrap() - 2.0).abs() < 0.2, "{check}");
        let branches = Space::new([
            ("prior/rate", Leaf::vector(1)),
            ("prior/scale", Leaf::vector(2)),
            ("priority", Leaf::vector(3)),
        ])?;
        let field = random_field(rank, &branches, 4)?.under("prior");
        assert_eq!(field.space().names().collect::<Vec<_>>(), ["prior/rate", "prior/scale"]);
        assert_eq!(field.array("prior/scale")?.len(), 2);
        let here = model.at(rank, &at)?;
        let (dy, mut dx) = (random_field(rank, model.target(), 3)?, Vector::new(&rank.gpu, model.domain())?);
        here.vjp(rank, &dy, &mut dx)?;
        assert!(dx.parameters("rate")?[0] != 0.0);
        Ok(())
    });
}

#[test]
fn what_linear_operators_cannot_take_is_refused() {
    on_grid([1, 1], &options()[0], |rank| {
        let (space, mesh) = (space(rank)?, mesh(rank, SHAPE));
        let fails = |error: Option<OperatorError>, wanted: &str| {
            let text = error.expect(wanted).to_string();
            assert!(text.contains(wanted), "{text}\n{wanted}");
        };
        let complex = Space::of("x", Leaf::cells(&mesh).complex())?;
        let vector = Space::of("x", Leaf::vector(7))?;
        fails(StencilOperator::new(rank, &space, &[]).err(), "0 taps");
        fails(StencilOperator::new(rank, &space, &[([0, 0, 1], 1.0); 1025]).err(), "1025 taps");
        fails(StencilOperator::new(rank, &space, &[([4, 0, 0], 1.0)]).err(), "offset [4, 0, 0]");
        fails(StencilOperator::new(rank, &space, &[([1, 0, 0], f64::NAN)]).err(), "NaN");
        fails(StencilOperator::new(rank, &complex, &[([1, 0, 0], 1.0)]).err(), "complex fields");
        fails(Hartley::new(rank, &vector).err(), "not one field of cells");
        fails(Select::cells(rank, &space, &[[0, 5, 0]]).err(), "cell [0, 5, 0]");
        fails(Select::places(rank, &space, &[3, 8, 3]).err(), "place 3");
        fails(Select::places(rank, &space, &[120]).err(), "place 120 of its 120");
        let factors = Vector::new(&rank.gpu, &complex)?;
        fails(Diagonal::new(&space, &factors).err(), "complex ones for complex values only");
        fails(Readout::new(rank, &space, Window::Cic, &[[f64::NAN, 0.0, 0.0]]).err(), "NaN");
        fails(LinesOfSight::new(rank, &space, &[[[0.0; 3]; 2]], 0.1).err(), "line 0");
        fails(LinesOfSight::new(rank, &space, &[], -1.0).err(), "a step of -1");
        fails(Gather::broadcast(&vector, &space).err(), "a vector of 7");
        fails(Wavenumbers::edges(&mesh, &[2.0, 1.0]).err(), "must grow");
        fails(ToDevice::new(&space).err(), "parameters");
        fails(RankCollective::replicate(rank, &space).err(), "one number at each point");
        Ok(())
    });
    on_grid([2, 1], &options()[0], |rank| {
        let space = space(rank)?;
        let error = Readout::new(rank, &space, Window::Cic, &[[0.1; 3]]).err().map(|error| error.to_string());
        let error = error.unwrap();
        assert!(error.contains("rank 1: it does not own cell [0, 0, 0]"), "{error}");
        Ok(())
    });
}

/// Number `n` of a stream: splitmix64.
fn uniform(seed: u64, n: u64) -> f64 {
    let mut z = seed.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((z ^ (z >> 31)) >> 11) as f64 + 0.5) * 2f64.powi(-53)
}

/// Gaussian number `n` of a stream.
fn white(seed: u64, n: u64) -> f64 {
    (-2.0 * uniform(seed, 2 * n).ln()).sqrt() * (2.0 * std::f64::consts::PI * uniform(seed, 2 * n + 1)).cos()
}

#[test]
fn clouds_in_cells_have_their_golden_values() {
    // Eight points on 4^3 cells of 1; computed in f64 by independent code.
    on_grid([1, 1], &options()[0], |rank| {
        let mesh = crate::process_grid::mesh(rank, [4; 3], [4.0; 3]);
        let space = Space::of("x", Leaf::cells(&mesh))?;
        let points: Vec<[f64; 3]> = (0..8).map(|n| [0, 1, 2].map(|d| 4.0 * uniform(100 + d, n))).collect();
        assert!((points[0][1] - 3.265764802394).abs() < 1e-11 && (points[1][0] - 0.058363160841).abs() < 1e-11);
        let model = Model::new(Readout::new(rank, &space, Window::Cic, &points)?);
        let mut field = Vector::new(&rank.gpu, &space)?;
        field.set(&mut rank.recorder, "x", &(0..64).map(|n| white(7, n)).collect::<Vec<_>>())?;
        let at = model.at(rank, &field)?;
        for (found, golden) in
            host(rank, &at.value)?["x"].iter().zip([-0.283193935148, -0.110300388528, -0.836123403503])
        {
            assert!((found - golden).abs() < 1e-6, "{found} {golden}");
        }
        let mut ones = Vector::new(&rank.gpu, model.target())?;
        ones.set(&mut rank.recorder, "x", &[1.0; 8])?;
        let mut mesh = Vector::new(&rank.gpu, &space)?;
        at.vjp(rank, &ones, &mut mesh)?;
        let mesh = host(rank, &mesh)?["x"].clone();
        for (found, golden) in mesh.iter().zip([0.128347497473, 0.13351581491, 0.784373713923, 0.338993862389]) {
            assert!((found - golden).abs() < 1e-6, "{found} {golden}");
        }
        let squares: f64 = mesh.iter().map(|value| value * value).sum();
        assert!(
            (mesh.iter().sum::<f64>() - 8.0).abs() < 1e-6 && (squares - 3.9653967156943377).abs() < 1e-5,
            "{squares}"
        );
        Ok(())
    });
}

#[test]
fn arrays_of_all_ranks_are_joined() {
    for parts in [[1, 1], [3, 1]] {
        on_grid(parts, &options()[1], |rank| {
            let (comm, gpu) = (rank.comm.clone(), rank.gpu.clone());
            let recorder = &mut rank.recorder;
            let (rank, ranks) = (comm.rank() as u32, comm.size() as u32);
            let array = gpu.array::<u32>("array", 5)?;
            recorder.upload(&array, 0, &[10 + rank, 7 * rank, 3, u32::MAX - rank, rank])?;
            all_reduce(recorder, &comm, &array, 0..2, Op::Max)?;
            broadcast(recorder, &comm, ranks as usize - 1, &array, 4..5)?;
            // The low word carries into the high one.
            all_reduce_wide(recorder, &comm, &array, 2..4)?;
            let low = u64::from(3 * ranks);
            let high = (0..ranks).map(|rank| u64::from(u32::MAX - rank)).sum::<u64>() as u32;
            assert_eq!(recorder.download(&array, 0, 5)?, [9 + ranks, 7 * (ranks - 1), low as u32, high, ranks - 1]);
            let words = gpu.array::<u32>("words", 2)?;
            recorder.upload(&words, 0, &[u32::MAX, 0])?;
            all_reduce_wide(recorder, &comm, &words, 0..2)?;
            let sum = u64::from(u32::MAX) * u64::from(ranks);
            assert_eq!(recorder.download(&words, 0, 2)?, [sum as u32, (sum >> 32) as u32]);
            assert!(all_reduce_wide(recorder, &comm, &words, 0..1).unwrap_err().to_string().contains("1 words"));
            // Ranks have 1, 2, 3 elements.
            let own = gpu.array::<u32>("own", u64::from(rank) + 1)?;
            recorder.upload(&own, 0, &vec![rank; rank as usize + 1])?;
            let all = gpu.array::<u32>("all", u64::from(ranks * (ranks + 1) / 2))?;
            all_gather(recorder, &comm, &own, &all)?;
            let wanted: Vec<u32> = (0..ranks).flat_map(|rank| vec![rank; rank as usize + 1]).collect();
            assert_eq!(recorder.download(&all, 0, all.len())?, wanted);
            let short = gpu.array::<u32>("short", all.len() + 1)?;
            assert!(all_gather(recorder, &comm, &own, &short).unwrap_err().to_string().contains("there is room for"));
            Ok(())
        });
    }
}

/// Which sums are made in one pass depends on the lengths that a rank has: here the leaves are as
/// long as each other on the first two of four ranks only.
#[test]
fn sums_of_leaves_that_are_cut_unevenly_are_those_of_one_rank() {
    let sums = |parts: [usize; 2]| {
        on_grid(parts, &options()[0], |rank| {
            let shapes = [("p", [6, 10, 1]), ("q", [3, 20, 1])];
            let space = Space::new(shapes.map(|(name, shape)| (name, Leaf::cells(&mesh(rank, shape)))))?;
            let mut fields = [Vector::new(&rank.gpu, &space)?, Vector::new(&rank.gpu, &space)?];
            for (salt, field) in fields.iter_mut().enumerate() {
                for (name, shape) in shapes {
                    let mut all: Vec<f64> = (0..60).map(|cell| number(cell, salt as u64)).collect();
                    // Far above the terms of the other sums.
                    all[3] *= if (salt, name) == (0, "q") { 1e6 } else { 1.0 };
                    let own = own(&mesh(rank, shape), &all);
                    field.set(&mut rank.recorder, name, &own)?;
                }
            }
            let [x, y] = &fields;
            rank.vector_sums(&[(x, Some(x)), (y, Some(y)), (x, Some(y)), (y, None)])
        })
    };
    let one = sums([1, 1]);
    for parts in [[2, 1], [3, 1], [4, 1], [5, 1], [2, 2]] {
        for found in sums(parts) {
            assert_eq!(found, one[0], "{parts:?}");
        }
    }
}
