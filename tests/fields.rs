//! Fields: transforms, filters, stencils, sums and files on one rank and on several, from the view
//! of a user.

use std::f64::consts::TAU;
use std::sync::Mutex;

use meshloom::comm::CommError;
use meshloom::fft::{Filter, TransformError};
use meshloom::field::{Field, FieldError};
use meshloom::grid::{LayoutError, Mesh, Shares};
use meshloom::io::{NpyFile, token};
use meshloom::{Launch, Rank, Result, kernel_params, launch};

/// Runs `body` on `ranks` ranks and returns the results in their order.
fn on<T: Send>(ranks: usize, body: impl Fn(&mut Rank) -> Result<T> + Sync) -> Vec<T> {
    launch(Launch::Threads(ranks), &meshloom_sanitizer::options().unwrap(), body).unwrap()
}

/// Runs `body` on 1, 2, 3 and 5 ranks, the last with unequal shares, and returns what rank 0 found
/// on one rank after it has found the same bits on all.
fn same_bits<T: Send + PartialEq + std::fmt::Debug>(body: impl Fn(&mut Rank) -> Result<T> + Sync) -> T {
    let shared = |rank: &mut Rank| {
        // The first rank has more than half, so that mode 0 is there.
        if rank.size() == 5 {
            rank.set_shares(Shares::new(&[8.0, 1.0, 3.0, 1.0, 2.0])?)?;
        }
        body(rank)
    };
    let mut found = [1, 2, 3, 5].map(|ranks| on(ranks, shared).swap_remove(0)).into_iter();
    let first = found.next().unwrap();
    assert!(found.all(|other| other == first));
    first
}

/// Any function of a point whose box has the side lengths `size`.
fn smooth([x, y, z]: [f64; 3]) -> f64 {
    (TAU * x).sin() + 0.5 * (2.0 * TAU * y).cos() * (TAU * z).cos()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Returns the value that an error of a rank has on all ranks.
fn texts(ranks: usize, body: impl Fn(&mut Rank) -> Result<()> + Sync) -> Vec<String> {
    on(ranks, |rank| Ok(body(rank).unwrap_err().to_string()))
}

#[test]
fn a_transform_and_its_inverse_give_the_field_back() {
    for shape in [[8, 6, 10], [5, 7, 3], [1, 13, 4], [2, 3, 1]] {
        let found = same_bits(|rank| {
            let mesh = rank.mesh(shape).periodic([1.0; 3]).ghosts(1).build()?;
            let field = rank.fill(&mesh, smooth)?;
            let spectrum = rank.fft(&field)?;
            // The mode 0 is the sum of all cells.
            let first = rank.recorder.download(spectrum.array(), 0, 1.min(spectrum.array().len()))?;
            let back = rank.inverse(&spectrum)?;
            let [cells, back] = [rank.gather(&field, 0)?, rank.gather(&back, 0)?];
            Ok(cells.zip(back).map(|(cells, back)| (first[0], bits(&cells), bits(&back))))
        });
        let ([sum, _], cells, back) = found.unwrap();
        let value = |bits: &u32| f64::from(f32::from_bits(*bits));
        // Relative error in the maximum norm: 2e-6 there and back.
        assert!((f64::from(sum) - cells.iter().map(value).sum::<f64>()).abs() < 2e-6 * cells.len() as f64);
        for (cell, back) in cells.iter().zip(&back) {
            assert!((value(cell) - value(back)).abs() < 4e-6, "{shape:?}");
        }
    }
}

#[test]
fn filters_solve_poissons_equation_and_derive() {
    // phi = sin(x) cos(2y) + sin(3z) in a box of 2 pi: lap phi = -5 sin(x) cos(2y) - 9 sin(3z).
    let phi = |[x, y, z]: [f64; 3]| x.sin() * (2.0 * y).cos() + (3.0 * z).sin();
    let errors = on(3, |rank| {
        let mesh = rank.mesh([12, 10, 16]).periodic([TAU; 3]).build()?;
        let rho = rank.fill(&mesh, |[x, y, z]| -5.0 * x.sin() * (2.0 * y).cos() - 9.0 * (3.0 * z).sin())?;
        let solved = rank.filter(&rho, |k| -1.0 / k.squared())?;
        let slope = rank.filter(&solved, |k| [0.0, k[1]])?;
        let mut largest = [0.0f64; 2];
        for (cell, (solved, slope)) in mesh.cells().zip(rank.download(&solved)?.into_iter().zip(rank.download(&slope)?))
        {
            let at = mesh.position(cell);
            let derivative = -2.0 * at[0].sin() * (2.0 * at[1]).sin();
            largest[0] = largest[0].max((f64::from(solved) - phi(at)).abs());
            largest[1] = largest[1].max((f64::from(slope) - derivative).abs());
        }
        Ok(largest)
    });
    // Rounding of f32 in two and four transforms of numbers up to 9, over k^2 >= 1.
    assert!(errors.iter().flatten().all(|error| *error < 4e-5), "{errors:?}");
}

#[test]
fn a_derivative_of_the_last_mode_is_zero_and_complex_fields_keep_their_shift() {
    let found = on(2, |rank| {
        // cos(pi i): its derivative is 0 in every cell; the naive factor would give i k for one of
        // two signs.
        let mesh = rank.mesh([8, 8]).periodic([1.0; 2]).build()?;
        let last = rank.fill_cells(&mesh, |[_, j, _]| if j % 2 == 0 { 1.0f32 } else { -1.0 })?;
        let slope = rank.filter(&last, |k| [0.0, k[1]])?;
        // exp(2 pi i x), shifted by a quarter of the box: multiplied by i.
        let wave = rank.fill_cells(&mesh, |[_, _, k]| {
            let angle = TAU * k as f64 / 8.0;
            [angle.cos() as f32, angle.sin() as f32]
        })?;
        let shifted = rank.filter(&wave, |k| [(k[2] / 4.0).cos(), (k[2] / 4.0).sin()])?;
        Ok((rank.download(&slope)?, rank.download(&wave)?, rank.download(&shifted)?))
    });
    for (slope, wave, shifted) in found {
        assert!(slope.iter().all(|slope| slope.abs() < 1e-5), "{slope:?}");
        for ([x, y], [u, v]) in wave.into_iter().zip(shifted) {
            assert!((u + y).abs() < 1e-6 && (v - x).abs() < 1e-6, "{x} {y} {u} {v}");
        }
    }
}

#[test]
fn filters_of_several_components_have_the_same_bits_on_any_ranks() {
    let found = same_bits(|rank| {
        let mesh = rank.mesh([6, 9, 8]).periodic([1.0; 3]).ghosts(2).build()?;
        let mut field = rank.zeros_of::<f32>(&mesh, 3)?;
        let own: Vec<f32> =
            (0..3).flat_map(|n| mesh.cells().map(move |[i, j, k]| ((7 * i + 5 * j + 3 * k + n) % 11) as f32)).collect();
        rank.upload(&mut field, &own)?;
        let filter = Filter::of_modes(rank, &mesh, 3, |k| (-0.01 * k.squared()).exp())?;
        let mut output = rank.zeros_of(&mesh, 3)?;
        rank.filter_into(&field, &filter, &mut output)?;
        Ok(rank.gather(&output, 0)?.map(|cells| bits(&cells)))
    });
    // The mean of a field is kept.
    let values: Vec<f64> = found.unwrap().into_iter().map(|bits| f64::from(f32::from_bits(bits))).collect();
    for (n, component) in values.chunks(6 * 9 * 8).enumerate() {
        let cells = (0..6).flat_map(|i| (0..9).flat_map(move |j| (0..8).map(move |k| 7 * i + 5 * j + 3 * k)));
        let expected: usize = cells.map(|sum| (sum + n) % 11).sum();
        assert!((component.iter().sum::<f64>() - expected as f64).abs() < 1e-2, "component {n}");
    }
}

#[test]
fn factors_that_are_not_finite_are_an_error_of_all_ranks() {
    let texts = texts(3, |rank| {
        let mesh = rank.mesh([6, 6, 6]).periodic([TAU; 3]).build()?;
        let field = rank.zeros::<f32>(&mesh)?;
        rank.filter(&field, |k| if k[0] == 1.0 { f64::NAN } else { 1.0 }).map(drop)?;
        Ok(())
    });
    assert!(texts.iter().all(|text| text.contains("the factor of the mode k = [1.0, 0.0, ")), "{texts:?}");
}

/// Without its factor i a derivative of a real field would be another field, or 0.
#[test]
fn factors_that_make_real_fields_complex_are_an_error_of_all_ranks() {
    for (ranks, shape) in [(1, [1, 6, 3]), (3, [4, 5, 6])] {
        let texts = texts(ranks, |rank| {
            let mesh = rank.mesh(shape).periodic([2.0, 1.0, 3.0]).build()?;
            let field = rank.fill(&mesh, |[_, y, _]| y)?;
            rank.filter(&field, |k| [0.0, k[1]])?;
            rank.filter(&field, |k| [k[1] * k[2], 0.0])?;
            let complex = rank.zeros::<[f32; 2]>(&mesh)?;
            rank.filter(&complex, |k| k[1])?;
            rank.filter(&field, |k| k[1]).map(drop)?;
            Ok(())
        });
        let is_told =
            |text: &String| ["at -k", "complex conjugates", "[0.0, k[0]]"].iter().all(|word| text.contains(word));
        assert!(texts.len() == ranks && texts.iter().all(is_told), "{texts:?}");
    }
}

#[test]
fn cells_are_gathered_and_scattered_in_c_order() {
    for (shape, ranks) in [([5, 3, 4], 2), ([2, 3, 4], 5), ([1, 1, 9], 3), ([7, 2, 3], 4)] {
        let all: Vec<u32> = (0..shape.iter().product::<u64>() as u32).collect();
        for root in [0, ranks - 1] {
            let gathered = on(ranks, |rank| {
                let mesh = rank.mesh(shape).ghosts(1).build()?;
                let own = rank.fill_cells(&mesh, |[i, j, k]| ((i * shape[1] + j) * shape[2] + k) as u32)?;
                let values = (rank.index() == root).then_some(all.as_slice());
                let scattered = rank.scatter(&mesh, root, values)?;
                Ok([rank.gather(&own, root)?, rank.gather(&scattered, root)?])
            });
            for (rank, gathered) in gathered.into_iter().enumerate() {
                let expected = (rank == root).then(|| all.clone());
                assert_eq!(gathered, [expected.clone(), expected], "{shape:?} on {ranks}, rank {rank}");
            }
        }
    }
}

#[test]
fn files_have_the_same_bytes_on_any_process_grid() {
    let path = |name: &str| std::env::temp_dir().join(format!("meshloom-fields-{}-{name}.npy", token()));
    let (one, other) = (path("one"), path("other"));
    let write = |ranks: usize, grid: Option<[usize; 2]>, path: &std::path::Path| {
        on(ranks, |rank| {
            let builder = rank.mesh([6, 5, 4]).ghosts(1);
            let mesh = match grid {
                Some(grid) => builder.grid(grid).build()?,
                None => builder.build()?,
            };
            let field = rank.fill(&mesh, |[x, y, z]| x + 10.0 * y + 100.0 * z)?;
            rank.write_npy(path, &field)?;
            let read: Field = rank.read_npy(&mesh, path)?;
            assert_eq!(rank.download(&read)?, rank.download(&field)?);
            Ok(())
        });
        std::fs::read(path).unwrap()
    };
    let expected = write(1, None, &one);
    for (ranks, grid) in [(3, None), (6, Some([2, 3])), (5, Some([1, 5])), (7, Some([7, 1]))] {
        assert_eq!(write(ranks, grid, &other), expected, "{grid:?} of {ranks}");
    }
    assert_eq!(NpyFile::open(&one).unwrap().shape(), [6, 5, 4]);
    // Fewer axes are not padded in files, and another shape is an error of all ranks.
    on(2, |rank| {
        let mesh = rank.mesh([30, 4]).build()?;
        let field = rank.zeros_of::<f32>(&mesh, 2)?;
        rank.write_npy(&other, &field)?;
        assert_eq!(NpyFile::open(&other)?.shape(), [2, 30, 4]);
        Ok(())
    });
    for text in texts(3, |rank| {
        let mesh = rank.mesh([120]).build()?;
        rank.read_npy::<f32>(&mesh, &one).map(drop)?;
        Ok(())
    }) {
        assert!(text.contains("(6, 5, 4)") && text.contains("(120,)"), "{text}");
    }
    [one, other].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn sums_and_extremes_are_those_of_all_cells() {
    let value = |[i, j, k]: [u64; 3]| ((i * 31 + j * 17 + k * 7) % 29) as f32 / 8.0 - 1.5;
    let found = same_bits(|rank| {
        let mesh = rank.mesh([7, 5, 6]).ghosts(2).build()?;
        let field = rank.fill_cells(&mesh, value)?;
        let mut other = rank.fill_cells(&mesh, |[i, j, k]| value([k, i, j]))?;
        // Ghost cells do not count.
        rank.exchange_ghosts(&mut other)?;
        let numbers = rank.fill_cells(&mesh, |[i, j, k]| (100 * i + 10 * j + k) as i32 - 300)?;
        Ok((
            [rank.sum(&field)?, rank.dot(&field, &other)?].map(f64::to_bits),
            [rank.min(&other)?, rank.max(&other)?].map(f32::to_bits),
            [rank.min(&numbers)?, rank.max(&numbers)?],
        ))
    });
    let cells = || (0..7).flat_map(|i| (0..5).flat_map(move |j| (0..6).map(move |k| [i, j, k])));
    // Multiples of 1/8 and 1/64: exact in f64.
    let sum: f64 = cells().map(|cell| f64::from(value(cell))).sum();
    let dot: f64 = cells().map(|[i, j, k]| f64::from(value([i, j, k])) * f64::from(value([k, i, j]))).sum();
    let other = cells().map(|[i, j, k]| value([k, i, j]));
    let extremes = [other.clone().fold(f32::MAX, f32::min), other.fold(f32::MIN, f32::max)];
    assert_eq!(found, ([sum, dot].map(f64::to_bits), extremes.map(f32::to_bits), [-300, 345]));
}

kernel_params! {
    struct Weights { near: f32, far: f32 }
}

#[test]
fn stencils_see_neighbors_through_periodic_and_open_faces() {
    let value = |[i, j, k]: [u64; 3]| ((3 * i + 5 * j + 7 * k) % 13) as f32;
    let shape = [4u64, 5, 6];
    for periodic in [[true; 3], [true, false, true], [false; 3]] {
        let found = same_bits(|rank| {
            let mesh = rank.mesh(shape).ghosts(2).periodic_axes(periodic).build()?;
            let (x, y) = (rank.fill_cells(&mesh, value)?, rank.fill_cells(&mesh, |[i, ..]| i as u32)?);
            let mut output = rank.zeros::<f32>(&mesh)?;
            let stencil = rank.stencil(
                &mesh,
                "fn cell(c: Cell) -> f32 {
                     var sum = params.near * (x_at(c, -1, 0, 1) + x_at(c, 0, 1, 0)) + f32(y(c));
                     for (var n = -2; n <= 2; n++) { sum += params.far * x_at(c, 0, n, 2); }
                     return sum + f32(c.index.z);
                 }",
            );
            let weights = Weights { near: 2.0, far: 0.5 };
            stencil.run(rank, &weights, &[("x", &x), ("y", &y)], &mut output)?;
            Ok(rank.gather(&output, 0)?)
        });
        // Cells beyond an open face are 0.
        let at = |cell: [u64; 3], by: [i64; 3]| {
            let moved = [0, 1, 2].map(|a| cell[a] as i64 + by[a]);
            let outside = (0..3).any(|a| !periodic[a] && !(0..shape[a] as i64).contains(&moved[a]));
            if outside { 0.0 } else { value([0, 1, 2].map(|a| moved[a].rem_euclid(shape[a] as i64) as u64)) }
        };
        let found = found.unwrap();
        for (n, found) in (0..).zip(found) {
            let cell = [n / 30, n / 6 % 5, n % 6];
            let near = 2.0 * (at(cell, [-1, 0, 1]) + at(cell, [0, 1, 0]));
            let far: f32 = (-2..=2).map(|n| 0.5 * at(cell, [0, n, 2])).sum();
            // Multiples of 1/2 below 2^23: exact.
            assert_eq!(found, near + cell[0] as f32 + far + cell[2] as f32, "{cell:?} {periodic:?}");
        }
    }
}

#[test]
fn stencils_compute_vectors_integers_and_positions() {
    let found = same_bits(|rank| {
        let mesh = rank.mesh([6, 7]).periodic([3.0, 14.0]).ghosts(1).build()?;
        let mut place = rank.zeros_of::<f32>(&mesh, 2)?;
        let start = rank.stencil(&mesh, "fn cell(c: Cell) -> vec2<f32> { return c.position.yz; }");
        start.run(rank, &(), &[], &mut place)?;
        let mut difference = rank.zeros_of::<f32>(&mesh, 3)?;
        let step = rank.stencil(
            &mesh,
            "fn cell(c: Cell) -> vec3<f32> { return vec3<f32>(place_at(c, 1, 0) - place(c), place_at(c, 0, -1).y); }",
        );
        step.run(rank, &(), &[("place", &place)], &mut difference)?;
        let mut count = rank.zeros::<i32>(&mesh)?;
        rank.stencil(&mesh, "fn cell(c: Cell) -> i32 { return i32(c.index.y) - i32(c.index.z); }").run(
            rank,
            &(),
            &[],
            &mut count,
        )?;
        Ok((rank.gather(&difference, 0)?, rank.gather(&count, 0)?))
    });
    let (difference, count) = (found.0.unwrap(), found.1.unwrap());
    for j in 0..6usize {
        for k in 0..7usize {
            let cell = 7 * j + k;
            let [down, across, left] = [0, 1, 2].map(|component| difference[42 * component + cell]);
            assert_eq!(down, if j == 5 { -2.5 } else { 0.5 });
            assert_eq!((across, left), (0.0, 2.0 * ((k + 6) % 7) as f32));
            assert_eq!(count[cell], j as i32 - k as i32);
        }
    }
}

#[test]
fn stencils_that_reach_too_far_are_errors_or_nan() {
    let run = |text: &'static str| {
        on(2, |rank| {
            let mesh = rank.mesh([8, 1]).ghosts(1).build()?;
            let x = rank.fill(&mesh, |[_, x, _]| x)?;
            let mut y = rank.zeros::<f32>(&mesh)?;
            let ran = rank.stencil(&mesh, text).run(rank, &(), &[("x", &x)], &mut y);
            Ok(match ran {
                Ok(()) => Ok(rank.download(&y)?),
                Err(error) => Err(error.to_string()),
            })
        })
    };
    for found in run("fn cell(c: Cell) -> f32 { return x_at(c, -2, 0); }") {
        assert!(found.unwrap_err().contains("reads -2 cells away along axis 0, but the mesh has 1 ghost cells below"));
    }
    for found in run("fn cell(c: Cell) -> f32 { return x_at(c, i32(c.index.y % 3u), 0); }") {
        // Each rank has one cell with the remainder 2.
        assert_eq!(found.unwrap().iter().filter(|value| value.is_nan()).count(), 1);
    }
    for (text, part) in [
        ("fn cells(c: Cell) -> f32 { return x(c); }", "`fn cell`"),
        ("fn cell(c: Cell) -> f32 { return z(c); }", "z"),
        ("fn cell(c: Cell) -> u32 { return 1u; }", "`cell` returns u32: expected f32"),
        ("fn cell(c: Cell) -> vec2f { return vec2f(x(c)); }", "`cell` returns vec2f: expected f32"),
        ("alias T = u32; fn cell(c: Cell) -> T { return 1u; }", "field::stencil"),
        ("fn cell(c: Cell) -> f32 { return x_at(c, 1); }", "expected 2 offsets, got 1"),
    ] {
        for found in run(text) {
            let text = found.unwrap_err();
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn ghost_cells_accumulate_on_the_cells_that_they_are_copies_of() {
    for ranks in [1, 2, 4] {
        let found = on(ranks, |rank| {
            let mesh = rank.mesh([8, 3]).ghosts(1).build()?;
            let mut ones = rank.fill_cells(&mesh, |_| 1u32)?;
            rank.exchange_ghosts(&mut ones)?;
            rank.accumulate_ghosts(&mut ones)?;
            Ok((mesh.array_len(), rank.gather(&ones, 0)?))
        });
        let cells = found[0].1.as_ref().unwrap();
        // Every element of every array, ghost cell or not, counts once in the cell that it stands
        // for.
        assert_eq!(u64::from(cells.iter().sum::<u32>()), found.iter().map(|(len, _)| len).sum::<u64>());
        // The first row has one copy below or above some part, its ends another two beside it.
        assert_eq!(cells[..3], [4, 2, 4]);
    }
}

#[test]
fn mistakes_are_the_same_error_on_all_ranks() {
    for text in texts(3, |rank| {
        let length = if rank.index() == 2 { 9 } else { 8 };
        rank.mesh([4, length]).build().map(drop)?;
        Ok(())
    }) {
        let expected = "Rank::mesh: `shape` differs between ranks: rank 0 has [1, 4, 8], rank 2 has [1, 4, 9]";
        assert!(text.starts_with(expected), "{text}");
    }
    for text in texts(2, |rank| {
        let short = vec![0.0f32; 7];
        let mesh = rank.mesh([2, 4]).build()?;
        rank.scatter(&mesh, 1, (rank.index() == 1).then_some(&short)).map(drop)?;
        Ok(())
    }) {
        assert!(text.ends_with("Rank::scatter: number of values: expected 8, got 7"), "{text}");
    }
    on(1, |rank| {
        let [one, other] = [rank.mesh([4, 4]).build()?, rank.mesh([4, 4]).ghosts(1).build()?];
        let [x, mut y] = [rank.zeros::<f32>(&one)?, rank.zeros(&other)?];
        assert!(matches!(rank.dot(&x, &y), Err(FieldError::Layout(LayoutError::OtherMesh { .. }))));
        assert!(matches!(rank.upload(&mut y, &[0.0; 15]), Err(FieldError::Length { expected: 16, found: 15, .. })));
        let mut spectrum = rank.fft(&x)?;
        let wrong = rank.fft_into(&y, &mut spectrum).unwrap_err();
        assert!(
            matches!(wrong, TransformError::Fft(_)) && wrong.to_string().contains("4x4 over 1x1 ranks with 1 ghost")
        );
        assert!(matches!(rank.mesh([4]).periodic([0.0]).build(), Err(FieldError::Layout(LayoutError::Size { .. }))));
        assert!(matches!(rank.gather(&x, 1), Err(FieldError::Comm(CommError::BadRank { named: 1, .. }))));
        assert!(
            rank.zeros_of::<f32>(&one, 0).unwrap_err().to_string().contains("components of a field: expected 1, got 0")
        );
        Ok(())
    });
}

/// Operations whose messages need no common mesh compare the meshes of the ranks.
#[test]
fn ranks_with_fields_on_different_meshes_are_told() {
    type Call = fn(&mut Rank, &Field) -> Result<()>;
    let calls: [(&str, Call); 5] = [
        ("Rank::sum", |rank, field| Ok(rank.sum(field).map(drop)?)),
        ("Rank::dot", |rank, field| Ok(rank.dot(field, field).map(drop)?)),
        ("Rank::max", |rank, field| Ok(rank.max(field).map(drop)?)),
        ("Rank::min", |rank, field| Ok(rank.min(field).map(drop)?)),
        ("Rank::gather", |rank, field| Ok(rank.gather(field, 0).map(drop)?)),
    ];
    for (name, call) in calls {
        for (cells, side) in [(12, 1.0), (8, 2.0)] {
            // A rank that only sends may learn of it when all have ended.
            let found = Mutex::new(Vec::new());
            let ended = launch(Launch::Threads(3), &meshloom_sanitizer::options().unwrap(), |rank| {
                let [one, other] = [(8, 1.0), (cells, side)].map(|(cells, side)| {
                    let mesh = rank.mesh([cells; 3]).periodic([side; 3]).build()?;
                    rank.fill(&mesh, smooth)
                });
                match call(rank, &if rank.index() == 1 { other? } else { one? }) {
                    Ok(()) => assert!(rank.index() != 0, "{name}"),
                    Err(error) => found.lock().unwrap().push(error.to_string()),
                }
                Ok::<_, meshloom::Error>(())
            });
            let found = found.into_inner().unwrap();
            assert!(found.iter().all(|text| text.contains(&format!("{name} on "))), "{found:?} {ended:?}");
            assert!(cells == 8 || found.iter().any(|text| text.contains("on 12x12x12")), "{found:?}");
        }
    }
}

#[test]
fn shares_that_differ_or_do_not_fit_are_the_same_error_on_all_ranks() {
    let differing = texts(3, |rank| {
        let first = if rank.index() == 1 { 2.0 } else { 3.0 };
        Ok(rank.set_shares(Shares::new(&[first, 1.0, 1.0])?)?)
    });
    assert!(differing.iter().all(|text| *text == differing[0] && text.contains("`shares` differs")), "{differing:?}");
    let short = texts(3, |rank| Ok(rank.set_shares(Shares::new(&[2.0, 1.0])?)?));
    assert!(short.iter().all(|text| text.starts_with("expected 3 shares, got 2")), "{short:?}");
    // Communicators of a part of the ranks inherit the shares of their members.
    let parts = on(4, |rank| {
        rank.set_shares(Shares::new(&[4.0, 3.0, 2.0, 1.0])?)?;
        let odd = rank.comm.split(Some(rank.index() as u32 % 2), 0)?.unwrap();
        Ok(odd.shares())
    });
    let [even, odd] = [[2.0, 1.0], [3.0, 1.0]].map(|shares| Shares::new(&shares).unwrap());
    assert_eq!(parts, [even, odd, even, odd]);
}

#[test]
fn ranks_with_other_seeds_and_stencils_are_told() {
    let found = texts(3, |rank| {
        let mesh = rank.mesh([8; 3]).periodic([1.0; 3]).build()?;
        Ok(rank.fill_white_noise(&mesh, rank.index() as u64 / 2).map(drop)?)
    });
    assert!(
        found.iter().all(|text| text.contains("`seed` differs between ranks: rank 0 has 0, rank 2 has 1")),
        "{found:?}"
    );
    let found = texts(3, |rank| {
        let mesh = rank.mesh([8; 3]).periodic([1.0; 3]).ghosts(1).build()?;
        let field = rank.fill(&mesh, smooth)?;
        let now = if rank.index() == 1 { "now(c)" } else { "now_at(c, 1, 0, 0)" };
        let stencil = rank.stencil(&mesh, format!("fn cell(c: Cell) -> f32 {{ return {now}; }}"));
        let mut next = rank.zeros::<f32>(&mesh)?;
        Ok(stencil.run(rank, &(), &[("now", &field)], &mut next)?)
    });
    assert!(found.iter().all(|text| text.contains("Stencil::run: `text` differs between ranks")), "{found:?}");
}

#[test]
fn warm_loops_allocate_no_device_memory() {
    // One rank: ranks that are threads share a pool, whose largest use depends on how they meet.
    let grown = on(1, |rank| {
        let mesh = rank.mesh([4, 4, 512]).periodic([1.0; 3]).ghosts(1).build()?;
        let (field, mut next) = (rank.fill(&mesh, smooth)?, rank.zeros(&mesh)?);
        let mut spectrum = rank.fft(&field)?;
        let filter = Filter::of_modes(rank, &mesh, 1, |k| 1.0 / (1.0 + k.squared()))?;
        let stencil = rank.stencil(&mesh, "fn cell(c: Cell) -> f32 { return x_at(c, 1, 0, 0) - x(c); }");
        let mut step = |rank: &mut Rank| -> Result<()> {
            rank.fft_into(&field, &mut spectrum)?;
            rank.inverse_into(&spectrum, &mut next)?;
            rank.filter_into(&field, &filter, &mut next)?;
            stencil.run(rank, &(), &[("x", &field)], &mut next)?;
            rank.recorder.wait()?;
            Ok(rank.comm.barrier()?)
        };
        (0..3).try_for_each(|_| step(rank))?;
        // Other tests of this program share the device and may allocate now and then, but not
        // always.
        let mut grown = u64::MAX;
        for _ in 0..10 {
            let before = rank.gpu.allocations();
            (0..5).try_for_each(|_| step(rank))?;
            grown = grown.min(rank.gpu.allocations() - before);
        }
        assert!(rank.plan_memory_bytes() > 0);
        rank.release();
        assert_eq!(rank.plan_memory_bytes(), 0);
        Ok(grown)
    });
    assert_eq!(grown, [0]);
}

#[test]
fn meshes_know_where_cells_are() {
    let meshes: Vec<Mesh> = on(3, |rank| Ok(rank.mesh([6, 4]).open([3.0, 1.0]).ghosts(1).build()?));
    for (mesh, rank) in meshes.iter().zip(0..) {
        assert_eq!((mesh.rank(), mesh.unpadded_shape()), (rank, [6, 4].as_slice()));
        assert_eq!(mesh.position([0, 5, 2]), [0.0, 2.5, 0.5]);
        // The array has one more row and column on each side.
        assert_eq!(mesh.index([0, 2 * rank as u64, 0]), Some(7));
        assert_eq!(mesh.index([0, (2 * rank as u64 + 2) % 6, 0]), None);
    }
}
