//! Painting and reading on one device: exact mass, golden values, every window against its twin on
//! the host.

use super::reference_pm::{uniform, white};
use meshloom::Mesh;
use meshloom::comm::Communicator;
use meshloom::exchange::GridComms;
use meshloom::exchange::ghost_cells::GhostCells;
use meshloom::gpu::{Array, DeviceError, Gpu, Options, Recorder};
use meshloom::grid::{Grid, MeshOptions, owner};
use meshloom::mesh::{
    Axpby, ForceMeshes, Lattice, MeshParticles, PaintedValues, Painter, PositionDerivatives, UNITS, ValuePainter,
    Window,
};

struct Bench {
    recorder: Recorder,
    faults: Array<u32>,
}

impl Bench {
    fn new() -> Self {
        Self::with(&meshloom_sanitizer::options().unwrap())
    }

    fn with(options: &Options) -> Self {
        let gpu = Gpu::open(options, 0).unwrap();
        let mut recorder = Recorder::new(&gpu).unwrap();
        let faults = gpu.array("faults", 1).unwrap();
        recorder.clear(&faults);
        Bench { recorder, faults }
    }

    fn upload(&mut self, data: &[f32]) -> Array<f32> {
        let array = self.recorder.gpu().array("data", data.len() as u64).unwrap();
        self.recorder.upload(&array, 0, data).unwrap();
        array
    }

    fn paint(&mut self, painter: &Painter, particles: MeshParticles<'_>, mesh: &Mesh) -> Vec<u64> {
        let cells = self.recorder.gpu().array("cells", 2 * mesh.layout().len()).unwrap();
        self.recorder.clear(&cells);
        painter.paint(&mut self.recorder, particles, mesh, &cells, &self.faults).unwrap();
        let words = self.recorder.download(&cells, 0, cells.len()).unwrap();
        words.chunks(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect()
    }

    fn faults(&mut self) -> u32 {
        self.recorder.download(&self.faults, 0, 1).unwrap()[0]
    }
}

/// Returns the part of a periodic mesh that one rank holds.
fn mesh_part(shape: [u64; 3], size: [f64; 3], grid: Grid, rank: usize, ghosts: [[u64; 2]; 3]) -> Mesh {
    let options = MeshOptions { size, ghosts, grid: Some(grid.parts()), ..MeshOptions::new(shape) };
    Mesh::new(&options, grid.ranks(), rank).unwrap()
}

fn alone() -> Grid {
    Grid::new([1, 1], 1).unwrap()
}

/// Coordinates of eight particles as displacements of the sites of a 2^3 lattice over a 4^3 mesh
/// with unit cells.
fn golden() -> (Lattice, [Vec<f64>; 3]) {
    let x = [100, 101, 102].map(|seed| (0..8).map(|i| 4.0 * uniform(seed, i)).collect());
    (Lattice::new([2; 3], alone(), 0), x)
}

/// Particles of a lattice of whole blocks are taken block by block, those of other lattices in
/// their order: halves of a block make what the whole makes.
#[test]
fn the_order_of_particles_changes_nothing() {
    let sites = [32, 64, 32];
    let mut bench = Bench::new();
    let mesh = mesh_part([40, 80, 36], [40.0, 80.0, 36.0], alone(), 0, [[0; 2]; 3]);
    let painter = Painter::new(Window::Cic);
    let displacement = [1, 2, 3].map(|seed| {
        let values = white(32 * 64 * 32, seed);
        values.into_iter().map(|value| 3.0 * value as f32).collect::<Vec<f32>>()
    });
    let fields: Vec<f32> = white(40 * 80 * 36, 4).into_iter().map(|value| value as f32).collect();
    let fields = bench.upload(&fields);
    let mut made = |planes: std::ops::Range<usize>| {
        let part = displacement.each_ref().map(|of| bench.upload(&of[planes.start * 2048..planes.end * 2048]));
        let lattice = Lattice { sites, own: [planes.start as u64..planes.end as u64, 0..64, 0..32] };
        let particles = MeshParticles::Displaced { lattice: &lattice, displacement: part.each_ref() };
        let painted = bench.paint(&painter, particles, &mesh);
        let out = bench.recorder.gpu().array::<f32>("out", particles.len()).unwrap();
        painter.readout(&mut bench.recorder, particles, &mesh, &fields, 0, &out).unwrap();
        (painted, bench.recorder.download(&out, 0, out.len()).unwrap())
    };
    let (whole, halves) = (made(0..32), [made(0..16), made(16..32)]);
    assert_eq!(whole.1, [&halves[0].1[..], &halves[1].1].concat());
    assert!(whole.0.iter().enumerate().all(|(i, units)| *units == halves[0].0[i] + halves[1].0[i]));
    assert_eq!(whole.0.iter().sum::<u64>(), (32 * 64 * 32) << 28);
}

/// Returns what all kernels of derivatives make of a cloud on 16^3 cells: by name, the bits of
/// their results.
fn derivatives(options: &Options, window: Window) -> Vec<(&'static str, Vec<u32>)> {
    let mut bench = Bench::with(options);
    let (lattice, mesh) = (Lattice::new([8; 3], alone(), 0), mesh_part([16; 3], [8.0; 3], alone(), 0, [[0; 2]; 3]));
    let mut numbers = |count: usize, seed: u64| {
        let values: Vec<f32> = white(count, seed).iter().map(|&value| value as f32).collect();
        bench.upload(&values)
    };
    let displacement = [numbers(512, 1), numbers(512, 2), numbers(512, 3)];
    let [by, bar, mut out] = [4, 5, 6].map(|seed| numbers(1536, seed));
    // The fourth numbers are not read.
    let [force, change] = [7, 8].map(|seed| numbers(4 * 4096, seed).cast::<[f32; 4]>().unwrap());
    let [density, painted] = [9, 10].map(|seed| numbers(4096, seed));
    let recorder = &mut bench.recorder;
    let mut comms = GridComms::new(&Communicator::solo(), alone()).unwrap();
    let ghosts = GhostCells::new(mesh.ghost_plan().unwrap());
    let [x, y, z] = &displacement;
    let particles = MeshParticles::Displaced { lattice: &lattice, displacement: [x, y, z] };
    let sites = (&lattice, &displacement);
    let mut found = Vec::new();
    let mut keep = |recorder: &mut Recorder, name: &'static str, array: &Array<f32>| {
        let values = recorder.download(array, 0, array.len()).unwrap();
        found.push((name, values.into_iter().map(f32::to_bits).collect()));
    };
    let (painter, values) = (Painter::new(window), ValuePainter::new(window));
    let derivatives = PositionDerivatives::new(window);
    let greatest = &values.greatest(recorder, comms.world(), &by).unwrap();
    let of = |first: u64| PaintedValues { particles, values: &by, first, greatest, total: 512 };
    values.paint(recorder, &mut comms, (&mesh, &ghosts), of(512), (&painted, 0)).unwrap();
    keep(recorder, "painted values", &painted);
    values.paint_tangent(recorder, &mut comms, (&mesh, &ghosts), of(0), &painted).unwrap();
    keep(recorder, "tangent of painting", &painted);
    painter.readout_vectors(recorder, particles, &mesh, &force, 0..3, &out).unwrap();
    keep(recorder, "vectors read", &out);
    derivatives.force_tangent(recorder, sites, (&mesh, [&force, &change]), 8.0, [&by, &out]).unwrap();
    keep(recorder, "tangent of the force", &out);
    derivatives.paint_adjoint(recorder, sites, (&mesh, &density), 8.0, &bar).unwrap();
    keep(recorder, "adjoint of painting", &bar);
    out = bar;
    let meshes = ForceMeshes { force: &force, density: &density };
    derivatives.force_adjoint(recorder, sites, (&mesh, meshes), 8.0, [&by, &out]).unwrap();
    keep(recorder, "adjoint of the force", &out);
    found
}

/// Arrays in one window and in many are read by other texts, which compilers must not round in
/// other ways. (`make test` leaves it out on SwiftShader, whose compiler takes more than 11 GB for
/// the 64 nodes of PCS in windows.)
#[test]
fn derivatives_have_the_same_bits_in_many_windows() {
    let options = meshloom_sanitizer::options().unwrap();
    // Of 8 KiB: the force takes eight. A device with few bindings gets larger ones.
    let bindings = Gpu::open(&options, 0).unwrap().capabilities().bindings;
    let window_bytes = Some(if bindings >= 16 { 8 << 10 } else { 32 << 10 });
    let small = Options { window_bytes, ..options.clone() };
    for window in Window::ALL {
        let (one, many) = (derivatives(&options, window), derivatives(&small, window));
        let differ: Vec<String> = one
            .iter()
            .zip(&many)
            .filter(|(one, many)| one != many)
            .map(|((name, one), (_, many))| {
                format!("{name}: {} of {}", one.iter().zip(many).filter(|(a, b)| a != b).count(), one.len())
            })
            .collect();
        assert!(differ.is_empty(), "{window}: {differ:?}");
    }
}

#[test]
fn golden_values_of_cloud_in_cell() {
    let mut bench = Bench::new();
    let (lattice, x) = golden();
    let site = |n: usize, axis: usize| 2.0 * ((n >> (2 - axis)) & 1) as f64;
    let shift = [0, 1, 2].map(|a| bench.upload(&(0..8).map(|n| (x[a][n] - site(n, a)) as f32).collect::<Vec<_>>()));
    let particles = MeshParticles::Displaced { lattice: &lattice, displacement: [&shift[0], &shift[1], &shift[2]] };
    let mesh = mesh_part([4; 3], [4.0; 3], alone(), 0, [[0; 2]; 3]);
    let painter = Painter::new(Window::Cic);
    let cells = bench.paint(&painter, particles, &mesh);
    assert_eq!(cells.iter().sum::<u64>(), 8 << 28, "mass is conserved to the last unit");
    let m: Vec<f64> = cells.iter().map(|&c| c as f64 / UNITS).collect();
    // Positions are rounded to f32: 4 * 2^-24 a coordinate, and the weights of one particle change
    // by as much.
    for (got, want) in m.iter().zip([0.128347497473, 0.13351581491, 0.784373713923, 0.338993862389]) {
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }
    let squares: f64 = m.iter().map(|m| m * m).sum();
    assert!((squares - 3.9653967156943377).abs() < 1e-5, "{squares}");

    let field = bench.upload(&white(64, 7).iter().map(|v| *v as f32).collect::<Vec<_>>());
    let out = bench.upload(&[0.0; 8]);
    painter.readout(&mut bench.recorder, particles, &mesh, &field, 0, &out).unwrap();
    let read = bench.recorder.download(&out, 0, 8).unwrap();
    for (got, want) in read.iter().zip([-0.283193935148, -0.110300388528, -0.836123403503]) {
        assert!((f64::from(*got) - want).abs() < 3e-6, "{got} {want}");
    }
    assert_eq!(bench.faults(), 0);
}

#[test]
fn every_window_equals_its_twin_and_reads_ones_as_one() {
    let shape = [6u64, 5, 7];
    let mut bench = Bench::new();
    let lattice = Lattice::new([5, 4, 3], alone(), 0);
    let mesh = mesh_part(shape, [12.0, 5.0, 3.5], alone(), 0, [[0; 2]; 3]);
    // Displacements of several boxes, and particles exactly on nodes and faces.
    let shift: [Vec<f32>; 3] = [0, 1, 2]
        .map(|a| (0..60).map(|n| if n % 7 == 0 { 0.0 } else { ((uniform(7 + a, n) - 0.5) * 40.0) as f32 }).collect());
    let arrays = [0, 1, 2].map(|a| bench.upload(&shift[a]));
    let particles = MeshParticles::Displaced { lattice: &lattice, displacement: [&arrays[0], &arrays[1], &arrays[2]] };
    for window in Window::ALL {
        let painter = Painter::new(window);
        let cells = bench.paint(&painter, particles, &mesh);
        assert_eq!(cells.iter().sum::<u64>(), 60 << 28, "{window}");
        let mut twin = vec![0.0; cells.len()];
        for n in 0..60usize {
            let site = [n / 12, n / 3 % 4, n % 3];
            let nodes = [0, 1, 2].map(|a| {
                let at = site[a] as f64 * shape[a] as f64 / lattice.sites[a] as f64
                    + f64::from(shift[a][n]) / mesh.cell_size()[a];
                window.nodes(at)
            });
            for i in 0..window.order() as usize {
                for j in 0..window.order() as usize {
                    for k in 0..window.order() as usize {
                        let at = [i, j, k];
                        let [i, j, k] =
                            [0, 1, 2].map(|a| (nodes[a].0 + at[a] as i64).rem_euclid(shape[a] as i64) as usize);
                        twin[(i * 5 + j) * 7 + k] += (0..3).map(|a| nodes[a].1[at[a]]).product::<f64>();
                    }
                }
            }
        }
        // A shift of 40 cells is known to 2^-19 in f32; a node of one particle changes by at most
        // about that, and up to 60 particles share a cell.
        for (got, want) in cells.iter().zip(&twin) {
            assert!(
                (*got as f64 / UNITS - want).abs() < 60.0 * 4.0 / 524288.0 / 8.0,
                "{window}: {} {want}",
                *got as f64 / UNITS
            );
        }
        let ones = bench.upload(&[1.0; 210]);
        let out = bench.upload(&[0.0; 60]);
        painter.readout(&mut bench.recorder, particles, &mesh, &ones, 0, &out).unwrap();
        // Weights are rounded once each: three roundings a product.
        let read = bench.recorder.download(&out, 0, 60).unwrap();
        assert!(read.iter().all(|one| (one - 1.0).abs() < 1e-6), "{window}: {read:?}");
    }
}

#[test]
fn particles_between_nodes_are_shared_evenly() {
    let mut bench = Bench::new();
    let lattice = Lattice::new([2, 1, 1], alone(), 0);
    let half = bench.upload(&[0.5, 0.5]);
    let particles = MeshParticles::Displaced { lattice: &lattice, displacement: [&half, &half, &half] };
    let mesh = mesh_part([4, 4, 4], [4.0; 3], alone(), 0, [[0; 2]; 3]);
    let cells = bench.paint(&Painter::new(Window::Cic), particles, &mesh);
    let expected = |c: usize| if [c / 4 % 4, c % 4].iter().all(|&n| n < 2) { 1u64 << 25 } else { 0 };
    for (c, got) in cells.into_iter().enumerate() {
        assert_eq!(got, expected(c), "cell {c}");
    }
}

#[test]
fn many_particles_in_one_cell_carry_into_the_high_word() {
    let mut bench = Bench::new();
    let lattice = Lattice::new([1000, 1, 1], alone(), 0);
    let mesh = mesh_part([2; 3], [2.0; 3], alone(), 0, [[0; 2]; 3]);
    let back = bench.upload(&(0..1000).map(|n| -(n as f32) * 2.0 / 1000.0).collect::<Vec<_>>());
    let zero = bench.upload(&[0.0; 1000]);
    let particles = MeshParticles::Displaced { lattice: &lattice, displacement: [&back, &zero, &zero] };
    let cells = bench.paint(&Painter::new(Window::Cic), particles, &mesh);
    assert_eq!(cells.iter().sum::<u64>(), 1000 << 28);
    assert!(cells[0] > 999 << 28, "nearly all of it lies on node 0: {cells:?}");
}

#[test]
fn points_are_painted_by_cell_and_offset() {
    let mut bench = Bench::new();
    let mesh = mesh_part([4; 3], [4.0; 3], alone(), 0, [[0; 2]; 3]);
    let cell = bench.recorder.gpu().array::<u32>("cell", 2).unwrap();
    bench.recorder.upload(&cell, 0, &[63, 0]).unwrap();
    let offset = bench.upload(&[0.25, 0.0]);
    let particles = MeshParticles::InCells { cell: &cell, offset: [&offset, &offset, &offset] };
    let cells = bench.paint(&Painter::new(Window::Cic), particles, &mesh);
    assert_eq!(cells[63], (27u64 << 28) / 64, "(3/4)^3 stays");
    assert_eq!(cells[0], (1u64 << 28) / 64 + (1 << 28), "(1/4)^3 comes around the corner to the other point");
}

#[test]
fn sites_are_found_on_axes_of_more_than_65536_cells() {
    let mut bench = Bench::new();
    let painter = Painter::new(Window::Cic);
    for (sites, cells, first) in [
        (100_000u64, 200_000u64, 99_700u64),
        (150_001, 200_000, 149_800),
        (1 << 31, 1 << 30, (1 << 31) - 300),
        (1 << 31, (1 << 30) - 7, 2_000_000_011),
        (3, 1 << 30, 0),
    ] {
        let count = (sites - first).min(200);
        let lattice = Lattice { sites: [sites, 1, 1], own: [first..first + count, 0..1, 0..1] };
        // Where each lies, in 128 bits.
        let place = |site: u64| (u128::from(site) * u128::from(cells)).div_euclid(u128::from(sites)) as u64;
        let rest = |site: u64| (u128::from(site) * u128::from(cells) % u128::from(sites)) as f64 / sites as f64;
        // A part of the axis for each particle, so that parts stay small.
        for site in [first, first + 1, first + count / 2, first + count - 1] {
            let lattice = Lattice { own: [site..site + 1, 0..1, 0..1], ..lattice.clone() };
            let parts = cells.div_ceil(16384);
            let grid = Grid::new([parts as usize, 1], parts as usize).unwrap();
            let rank = owner(cells, parts, place(site));
            let ghosts = [[1, 2], [0, 0], [0, 0]];
            let mesh = mesh_part([cells, 1, 1], [cells as f64, 1.0, 1.0], grid, rank as usize, ghosts);
            let (shift, zero) = (bench.upload(&[0.25]), bench.upload(&[0.0]));
            let particles = MeshParticles::Displaced { lattice: &lattice, displacement: [&shift, &zero, &zero] };
            let got = bench.paint(&painter, particles, &mesh);
            assert_eq!(bench.faults(), 0, "site {site} of {sites} on {cells} cells");
            let at = (1 + place(site) - mesh.own()[0].start) as f64 + rest(site) + 0.25;
            for (cell, units) in got.iter().enumerate() {
                let want = (1.0 - (at - cell as f64).abs()).max(0.0);
                let got = *units as f64 / UNITS;
                assert!((got - want).abs() < 1e-6, "site {site} of {sites} on {cells} cells: {got} {want} in {cell}");
            }
        }
    }
}

#[test]
fn what_kernels_cannot_hold_is_refused() {
    let mut bench = Bench::new();
    let painter = Painter::new(Window::Cic);
    let lattice = Lattice::new([2; 3], alone(), 0);
    let mesh = mesh_part([4; 3], [4.0; 3], alone(), 0, [[0; 2]; 3]);
    let (x, short) = (bench.upload(&[0.0; 8]), bench.upload(&[0.0; 7]));
    let gpu = bench.recorder.gpu().clone();
    let words = |len: u64| gpu.array::<u32>("words", len).unwrap();
    let (cells, few, faults) = (words(128), words(127), bench.faults.clone());
    let sites = |d| MeshParticles::Displaced { lattice: &lattice, displacement: [&x, &x, d] };
    let long = mesh_part([(1 << 30) + 1, 4, 4], [4.0; 3], alone(), 0, [[0; 2]; 3]);
    let open = MeshOptions { periodic: [true, true, false], ..mesh.options().clone() };
    let open = Mesh::new(&open, 1, 0).unwrap();
    let cell = words(8);
    let points = |d| MeshParticles::InCells { cell: &cell, offset: [&x, d, &x] };
    let r = &mut bench.recorder;
    for (refused, about) in [
        (painter.paint(r, sites(&short), &mesh, &cells, &faults), "7 values along an axis for 8 particles"),
        (painter.paint(r, points(&short), &mesh, &cells, &faults), "7 values along an axis for 8 particles"),
        (painter.paint(r, sites(&x), &mesh, &few, &faults), "128 are needed"),
        (painter.paint(r, sites(&x), &mesh, &cells, &words(0)), "1 are needed"),
        (painter.paint(r, sites(&x), &long, &cells, &faults), "2^30"),
        (painter.paint(r, sites(&x), &open, &cells, &faults), "axis 2 is open"),
        (painter.readout(r, sites(&x), &mesh, &x, 0, &x), "64 are needed"),
        (painter.readout(r, sites(&x), &mesh, &cells.cast().unwrap(), 2, &x), "192 are needed"),
        (painter.readout(r, sites(&x), &mesh, &cells.cast().unwrap(), 1, &short), "8 are needed"),
        (painter.reach(r, sites(&x), &mesh, &words(6)), "7 are needed"),
        (painter.density(r, &mesh, &few, &few.cast().unwrap(), 1.0, 0.0), "128 are needed"),
        (painter.density(r, &mesh, &cells, &x, 1.0, 0.0), "64 are needed"),
    ] {
        let Err(DeviceError::Misuse { why, .. }) = refused else { panic!("{about}: {refused:?}") };
        assert!(why.contains(about), "{why}");
    }
    let huge = Lattice { sites: [(1 << 31) + 1, 1, 1], own: [0..8, 0..1, 0..1] };
    let particles = MeshParticles::Displaced { lattice: &huge, displacement: [&x, &x, &x] };
    assert!(matches!(painter.paint(r, particles, &mesh, &cells, &faults), Err(DeviceError::Misuse { .. })));
    let mesh = mesh_part([4; 3], [4.0; 3], Grid::new([2, 1], 2).unwrap(), 0, [[1; 2]; 3]);
    assert!(matches!(painter.reach(r, points(&x), &mesh, &words(7)), Err(DeviceError::Misuse { .. })));
}

#[test]
fn lost_particles_are_counted_never_dropped_silently() {
    let mut bench = Bench::new();
    // Half of a mesh that is cut along x, without ghosts.
    let grid = Grid::new([2, 1], 2).unwrap();
    let lattice = Lattice::new([4; 3], grid, 0);
    let mesh = mesh_part([4; 3], [4.0; 3], grid, 0, [[0; 2]; 3]);
    let mut x = vec![0.0f32; 32];
    (x[3], x[5], x[9]) = (f32::NAN, f32::INFINITY, 5.5);
    let (x, zero) = (bench.upload(&x), bench.upload(&[0.0; 32]));
    let particles = MeshParticles::Displaced { lattice: &lattice, displacement: [&x, &zero, &zero] };
    let painter = Painter::new(Window::Cic);
    let cells = bench.paint(&painter, particles, &mesh);
    // The 16 particles of the second plane touch the third, whatever their weight there; of the
    // first plane three are bad.
    assert_eq!(bench.faults(), 16 + 3);
    assert_eq!(cells.iter().sum::<u64>(), 13 << 28);
    let reach = bench.recorder.gpu().array("reach", 7).unwrap();
    painter.reach(&mut bench.recorder, particles, &mesh, &reach).unwrap();
    let reach = bench.recorder.download(&reach, 0, 7).unwrap();
    assert_eq!((reach[0], reach[1], reach[6]), (0, 5, 2), "{reach:?}");
}

#[test]
fn linear_updates_are_those_of_the_host() {
    let mut bench = Bench::new();
    let axpby = Axpby::default();
    for n in [1u64, 63, 5000] {
        let values = |seed| (0..n).map(|i| (uniform(seed, i) - 0.5) as f32).collect::<Vec<f32>>();
        let (x, y, z) = (values(1), values(2), values(3));
        for (a, b) in [(0.75f64, -1.25f64), (1e-3, 1.0), (-2.0, 0.0)] {
            let [dx, dy, dz] = [&x, &y, &z].map(|values| bench.upload(values));
            // What was there before counts for nothing where its factor is 0, also NaN.
            let undefined = vec![f32::NAN; n as usize];
            let (before, dp) = if b == 0.0 { (&undefined, bench.upload(&undefined)) } else { (&y, bench.upload(&y)) };
            axpby.record(&mut bench.recorder, a, &dx, b, &dy).unwrap();
            axpby.record_product(&mut bench.recorder, a, [&dx, &dz], b, &dp).unwrap();
            let [linear, product] = [&dy, &dp].map(|array| bench.recorder.download(array, 0, n).unwrap());
            for i in 0..n as usize {
                let old = if b == 0.0 { 0.0 } else { b * f64::from(before[i]) };
                for (got, term) in [(linear[i], f64::from(x[i])), (product[i], f64::from(x[i]) * f64::from(z[i]))] {
                    // Each factor, product and sum is rounded once.
                    let bound = 4.0 * f64::from(f32::EPSILON) * ((a * term).abs() + old.abs());
                    assert!((f64::from(got) - (a * term + old)).abs() <= bound, "{n} {a} {b} {i}: {got}");
                }
            }
        }
    }
    let [one, two] = [1, 2].map(|n| bench.upload(&vec![0.0; n]));
    assert!(matches!(axpby.record(&mut bench.recorder, 1.0, &one, 1.0, &two), Err(DeviceError::Misuse { .. })));
}

#[test]
fn densities_are_those_of_the_cells_without_ghosts() {
    let mut bench = Bench::new();
    let grid = Grid::new([2, 2], 4).unwrap();
    let painter = Painter::new(Window::Cic);
    for rank in 0..4 {
        let mesh = mesh_part([7, 5, 6], [7.0, 5.0, 6.0], grid, rank, [[1, 2], [2, 1], [0, 0]]);
        let layout = mesh.layout();
        let words: Vec<u32> = (0..2 * layout.len())
            .map(|i| if i % 2 == 0 { (uniform(7, i) * 4294967295.0) as u32 } else { (uniform(8, i) * 9.0) as u32 })
            .collect();
        let own = layout.own.clone();
        let count: u64 = own.iter().map(|range| range.end - range.start).product();
        let gpu = bench.recorder.gpu().clone();
        let (cells, out) = (gpu.array("cells", words.len() as u64).unwrap(), gpu.array("out", count).unwrap());
        bench.recorder.upload(&cells, 0, &words).unwrap();
        painter.density(&mut bench.recorder, &mesh, &cells, &out, 3.0, -1.0).unwrap();
        let got = bench.recorder.download(&out, 0, count).unwrap();
        let with_ghosts = [0, 1, 2].map(|a| own[a].end - own[a].start + layout.ghosts[a][0] + layout.ghosts[a][1]);
        let mut at = 0;
        for i in 0..own[0].end - own[0].start {
            for j in 0..own[1].end - own[1].start {
                for k in 0..own[2].end - own[2].start {
                    let [x, y, z] = [i + layout.ghosts[0][0], j + layout.ghosts[1][0], k + layout.ghosts[2][0]];
                    let cell = 2 * ((x * with_ghosts[1] + y) * with_ghosts[2] + z) as usize;
                    let units = f64::from(words[cell]) + 4294967296.0 * f64::from(words[cell + 1]);
                    let want = units * 3.0 / UNITS - 1.0;
                    // Two words are rounded and summed, multiplied and shifted.
                    let bound = 4.0 * f64::from(f32::EPSILON) * (want.abs() + 1.0);
                    assert!((f64::from(got[at]) - want).abs() <= bound, "{rank}: {i} {j} {k}");
                    at += 1;
                }
            }
        }
    }
}
