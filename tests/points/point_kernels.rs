//! Kernels of points, each by itself, against plain Rust.

use std::sync::Arc;

use super::clouds::{Kind, points, uniform};
use super::point_twins::{Found, accumulated, found, roots, tree_box};
use meshloom::gpu::{Array, DeviceElement, Gpu, Kernel, KernelSource, Options, Recorder};
use meshloom::kernel_params;
use meshloom::points::tree::{Builder, Tree};
use meshloom::points::{Cloud, Domain, Frame};
use meshloom_sanitizer::Sanitizer;

kernel_params! {
    struct Count { count: u32 }
}
kernel_params! {
    struct Accumulate { count: u32, width: u32 }
}
kernel_params! {
    struct Entries { entries: u32, rows: u32, index_bits: u32 }
}
kernel_params! {
    struct Probe { keys: u32, probes: u32 }
}
kernel_params! {
    struct Recipients { count: u32, ranks: u32 }
}
kernel_params! {
    struct Last { queries: u32, k: u32, within: f32 }
}
kernel_params! {
    struct Flatten { count: u32, max_hops: u32 }
}
kernel_params! {
    struct Prepare {
        count: u32,
        dims: u32,
        pad: [u32; 2],
        sides: [f32; 4],
        rests: [f32; 4],
        periods_low: [u32; 4],
        periods_high: [u32; 4],
        exponents: [i32; 4],
    }
}
kernel_params! {
    #[derive(Default)]
    struct Search {
        side: [f32; 4],
        starts: [[u32; 4]; 3],
        levels: u32,
        sources: u32,
        queries: u32,
        first: u32,
        reach: f32,
        unit: f32,
        infinity: f32,
        k: u32,
        done: u32,
        write: u32,
        by_number: u32,
        skip: u32,
        base: u32,
        radius: f32,
        rounds: u32,
        leaf_rounds: u32,
        load_scale: f32,
        square_scale: f32,
        max_difference: f32,
        blocks: u32,
        nothing: u32,
        offset_unit: f32,
        pad: [u32; 2],
    }
}

struct Bench {
    gpu: Gpu,
    recorder: Recorder,
}

impl Bench {
    fn new() -> Self {
        let gpu = Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap();
        Bench { recorder: Recorder::new(&gpu).unwrap(), gpu }
    }

    fn up<T: DeviceElement>(&mut self, data: &[T]) -> Array<T> {
        let array = self.gpu.array("data", data.len() as u64).unwrap();
        self.recorder.upload(&array, 0, data).unwrap();
        array
    }

    fn down<T: DeviceElement>(&mut self, array: &Array<T>) -> Vec<T> {
        self.recorder.download(array, 0, array.len()).unwrap()
    }

    fn tree(&mut self, domain: &Domain, points: &[f32]) -> Tree {
        let cloud = Cloud::from_host(&mut self.recorder, domain, points).unwrap();
        let frame = Frame::new(domain, cloud.bounds());
        Builder::new(&self.gpu).build(&mut self.recorder, &cloud, &frame).unwrap()
    }
}

/// Returns the library's kernel of this name.
fn kernel(label: &str) -> Kernel {
    Kernel::new(meshloom::kernels().into_iter().find(|source| source.label() == label).unwrap())
}

fn random(seed: u64, count: usize, below: u32) -> Vec<u32> {
    (0..count as u64).map(|i| (uniform(seed, i) * f64::from(below)) as u32).collect()
}

#[test]
fn preparing_finds_bounds_and_what_is_not_finite() {
    let mut bench = Bench::new();
    let reals = |seed, n| (0..n).map(|i| (uniform(seed, i) - 0.5) as f32).collect::<Vec<f32>>();
    let mut cases: Vec<(usize, Vec<f32>)> = vec![
        (2, vec![3.0, -2.0]),
        (3, reals(1, 3 * 5001)),
        (2, vec![0.0, -0.0, 1e-40, -1e-39, 3e38, -1e-30]),
        (3, vec![0.0; 9]),
        (2, reals(2, 2 * 700)),
    ];
    (cases[4].1[1001], cases[4].1[77]) = (f32::NEG_INFINITY, f32::NAN);
    for (dims, positions) in cases {
        let device = bench.up(&positions);
        let words = bench.up(&[u32::MAX, u32::MAX, u32::MAX, u32::MAX, 0, 0, 0, u32::MAX]);
        let count = (positions.len() / dims) as u32;
        let (pad, none) = ([0; 2], [0; 4]);
        let params = Prepare {
            count,
            dims: dims as u32,
            pad,
            sides: [0.0; 4],
            rests: [0.0; 4],
            periods_low: none,
            periods_high: none,
            exponents: [0; 4],
        };
        bench.recorder.each(&kernel("points::prepare"), &[device.raw(), words.raw()], &params, count.into()).unwrap();
        assert!(
            bench.down(&device).iter().zip(&positions).all(|(a, b)| a.to_bits() == b.to_bits()),
            "left as they were"
        );
        let words = bench.down(&words);
        let some = |word: u32| (word != u32::MAX).then_some(word);
        let real = |word: u32| f32::from_bits(if word >> 31 == 1 { word ^ 1 << 31 } else { !word });
        let want = found(&positions, dims);
        let not_finite = some(words[0]).map(|at| at as usize);
        assert_eq!(not_finite, want.not_finite);
        if not_finite.is_none() {
            let [low, high] = [1, 4].map(|at| words[at..at + dims].iter().map(|&word| real(word)).collect());
            assert_eq!(Found { not_finite, low, high, smallest: some(words[7]).map(f32::from_bits) }, want);
        }
    }
}

#[test]
fn boxes_of_a_tree_hold_their_points() {
    let mut bench = Bench::new();
    for (dims, kind, n) in [(2, Kind::Uniform, 1), (3, Kind::Uniform, 2500), (2, Kind::Two, 700), (3, Kind::Same, 300)]
    {
        let cloud = points(kind, n, dims, 31);
        let tree = bench.tree(&Domain::open(dims).unwrap(), &cloud);
        let (order, boxes, sorted) = (bench.down(tree.order()), bench.down(tree.boxes()), bench.down(tree.positions()));
        let rows = order.iter().flat_map(|&i| &cloud[i as usize * dims..][..dims]);
        assert!(sorted.iter().eq(rows), "{kind:?}");
        let levels = tree.levels();
        for level in 0..levels.count() {
            for node in 0..levels.nodes(level) {
                let range = levels.points(level, node);
                let (bounds, least, diagonal) =
                    tree_box(&cloud, dims, &order, range.start as usize..range.end as usize);
                let words = &boxes[8 * (levels.start(level) + node) as usize..][..8];
                assert_eq!(words[..6], bounds.map(f32::to_bits), "{kind:?} {level} {node}");
                assert_eq!(words[6], least);
                assert!((f64::from(f32::from_bits(words[7])) - diagonal).abs() <= 1e-6 * diagonal);
            }
        }
    }
}

#[test]
fn words_of_a_leaf_lie_between_its_least_and_greatest() {
    let mut bench = Bench::new();
    let kernel = kernel("tree::leaf_ranges");
    for count in [1, 31, 32, 33, 64 * 32, 64 * 32 + 1, 5000] {
        let words = random(7, count, u32::MAX);
        let want: Vec<u32> =
            words.chunks(32).flat_map(|leaf| [*leaf.iter().min().unwrap(), *leaf.iter().max().unwrap()]).collect();
        let (values, ranges) = (bench.up(&words), bench.up(&vec![7_u32; want.len() + 1]));
        let params = Count { count: count as u32 };
        let groups = count.div_ceil(64 * 8) as u64;
        bench.recorder.dispatch(&kernel, &[values.raw(), ranges.raw()], &params, groups).unwrap();
        let have = bench.recorder.download(&ranges, 0, ranges.len()).unwrap();
        assert_eq!(have, [&want[..], &[7]].concat(), "{count}");
    }
}

#[test]
fn contributions_of_ghosts_are_summed_in_order() {
    let mut bench = Bench::new();
    let (width, rows) = (3, 40);
    let values: Vec<f32> = (0..width * rows).map(|i| uniform(32, i as u64) as f32).collect();
    let contributions: Vec<(u32, Vec<f32>)> = random(33, 500, rows as u32 - 5)
        .into_iter()
        .zip(0u64..)
        .map(|(row, i)| (row, (0..width as u64).map(|c| uniform(34, 3 * i + c) as f32 - 0.3).collect()))
        .collect();
    // By row, then in their order.
    let mut places: Vec<u32> = (0..500).collect();
    places.sort_by_key(|&place| contributions[place as usize].0);
    let mut targets: Vec<u32> = contributions.iter().map(|(row, _)| *row).collect();
    targets.sort_unstable();
    let ends: Vec<u32> = targets
        .chunk_by(|a, b| a == b)
        .scan(0, |end, rows| {
            Some({
                *end += rows.len() as u32;
                *end
            })
        })
        .collect();
    targets.dedup();
    let incoming: Vec<f32> = contributions.iter().flat_map(|(_, ghost)| ghost.clone()).collect();
    let offsets: Vec<u32> = [0].into_iter().chain(ends).collect();
    let index = [&targets, &offsets, &places].map(|words| bench.up(words));
    let (incoming, device) = (bench.up(&incoming), bench.up(&values));
    let arrays: Vec<_> = index.iter().map(Array::raw).chain([incoming.raw(), device.raw()]).collect();
    let count = targets.len() as u32;
    bench
        .recorder
        .each(&kernel("ghosts::accumulate"), &arrays, &Accumulate { count, width: width as u32 }, count.into())
        .unwrap();
    assert_eq!(bench.down(&device), accumulated(&values, width, &contributions));
}

#[test]
fn rows_are_counted_numbered_and_sorted() {
    let mut bench = Bench::new();
    // Their sum takes more than 32 bits.
    let counts: Vec<u32> = random(35, 7000, u32::MAX);
    let (device, total) = (bench.up(&counts), bench.up(&[0u32, 0]));
    bench
        .recorder
        .each(&kernel("neighbors::total"), &[device.raw(), total.raw()], &Count { count: 7000 }, 7000)
        .unwrap();
    let words = bench.down(&total);
    let want: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    assert_eq!(u64::from(words[0]) | u64::from(words[1]) << 32, want);

    let lengths: Vec<u32> = random(36, 300, 65).into_iter().map(|n| if n % 3 == 0 { 0 } else { n }).collect();
    let rows: Vec<Vec<u32>> = lengths.iter().zip(37..).map(|(&n, seed)| random(seed, n as usize, 1 << 30)).collect();
    let index = rows.concat();
    let offset: Vec<u32> = [0]
        .into_iter()
        .chain(lengths.iter().scan(0, |end, n| {
            Some({
                *end += n;
                *end
            })
        }))
        .collect();
    let entries = index.len() as u32;
    let distance: Vec<f32> = index.iter().map(|&i| i as f32).collect();
    let (offset, index, distance) = (bench.up(&offset), bench.up(&index), bench.up(&distance));
    let words = [bench.up(&vec![0u32; entries as usize]), bench.up(&vec![0u32; entries as usize])];
    for index_bits in [30, 31, 32] {
        let params = Entries { entries, rows: 300, index_bits };
        let arrays = [offset.raw(), index.raw(), words[0].raw(), words[1].raw()];
        bench.recorder.each(&kernel("neighbors::entry_keys"), &arrays, &params, entries.into()).unwrap();
        let [high, low] = words.each_ref().map(|words| bench.down(words));
        let got = high.into_iter().zip(low).map(|(high, low)| u64::from(high) << 32 | u64::from(low));
        let row =
            |(entries, row): (&Vec<u32>, u64)| entries.iter().map(move |&i| row << index_bits | u64::from(i)).collect();
        assert!(got.eq(rows.iter().zip(0u64..).flat_map(|pair| -> Vec<u64> { row(pair) })));
    }
    let arrays = [offset.raw(), index.raw(), distance.raw()];
    bench
        .recorder
        .dispatch(&kernel("neighbors::sort_rows"), &arrays, &Count { count: 300 }, 300u64.div_ceil(4))
        .unwrap();
    let want: Vec<u32> = rows
        .into_iter()
        .flat_map(|mut row| {
            row.sort_unstable();
            row
        })
        .collect();
    assert!(bench.down(&distance).iter().zip(&want).all(|(&d, &i)| d == i as f32));
    assert_eq!(bench.down(&index), want);
}

#[test]
fn forests_begin_with_small_nodes() {
    let mut bench = Bench::new();
    let cloud = points(Kind::Two, 3000, 3, 38);
    let tree = bench.tree(&Domain::open(3).unwrap(), &cloud);
    let (levels, boxes) = (tree.levels(), bench.down(tree.boxes()));
    for reach in [0.0f32, 0.01, 0.1, 10.0] {
        let start = |level: usize| if level <= levels.count() { levels.start(level) as u32 } else { 0 };
        let params = Search {
            starts: std::array::from_fn(|i| std::array::from_fn(|j| start(4 * i + j))),
            sources: 3000,
            levels: levels.count() as u32,
            reach: reach * reach,
            load_scale: 1.0,
            square_scale: 1.0,
            max_difference: 1e18,
            ..Search::default()
        };
        let parent = bench.up(&[0u32; 3000]);
        bench
            .recorder
            .each(&kernel("neighbors::link_begin"), &[tree.boxes().raw(), parent.raw()], &params, 3000)
            .unwrap();
        let want = (0..3000u64).map(|i| {
            let nodes = (0..levels.count()).map(|level| {
                let node = (0..levels.nodes(level)).find(|&node| levels.points(level, node).contains(&i)).unwrap();
                (level, node)
            });
            let small = nodes.take_while(|&(level, node)| {
                let diagonal = f32::from_bits(boxes[8 * (levels.start(level) + node) as usize + 7]);
                diagonal * diagonal * 1.000_004 <= reach * reach
            });
            small.last().map_or(i, |(level, node)| levels.points(level, node).start) as u32
        });
        assert!(bench.down(&parent).into_iter().eq(want), "{reach}");
    }
}

#[test]
fn forests_are_flattened_and_labelled() {
    let mut bench = Bench::new();
    // A chain, and a forest of random trees.
    let chain: Vec<u32> = (0..1000u32).map(|i| i.saturating_sub(1)).collect();
    let forest: Vec<u32> = random(39, 5000, u32::MAX)
        .into_iter()
        .zip(0..)
        .map(|(r, i)| if r % 50 == 0 { i } else { r % (i + 1) })
        .collect();
    for parent in [chain, forest] {
        let n = parent.len() as u32;
        let want = roots(&parent);
        for max_hops in [3, u32::MAX] {
            let (device, left) = (bench.up(&parent), bench.up(&[0u32]));
            bench
                .recorder
                .each(
                    &kernel("neighbors::link_flatten"),
                    &[device.raw(), left.raw()],
                    &Flatten { count: n, max_hops },
                    n.into(),
                )
                .unwrap();
            let (flat, left) = (bench.down(&device), bench.down(&left)[0]);
            // Invocations shorten the paths of others.
            let far = want.iter().filter(|(_, steps)| *steps > max_hops).count() as u32;
            assert!(left <= far, "{left} of {far}");
            assert!(flat.iter().zip(&parent).all(|(new, old)| new <= old));
            assert!(roots(&flat).iter().zip(&want).all(|(have, want)| have.0 == want.0), "trees stay");
            if left == 0 {
                assert!(flat.iter().zip(&want).all(|(&have, want)| have == want.0));
            }
        }
        // The numbers of the points along the curve: a permutation.
        let order: Vec<u32> = (0..n).map(|i| (i * 7 + 3) % n).collect();
        let flat: Vec<u32> = want.iter().map(|&(root, _)| root).collect();
        let (device, numbers) = (bench.up(&flat), bench.up(&order));
        let (least, label) = (bench.up(&vec![0u32; n as usize]), bench.up(&vec![0u32; n as usize]));
        bench
            .recorder
            .each(
                &kernel("neighbors::link_least"),
                &[device.raw(), numbers.raw(), least.raw()],
                &Count { count: n },
                n.into(),
            )
            .unwrap();
        let arrays = [device.raw(), numbers.raw(), least.raw(), label.raw()];
        bench.recorder.each(&kernel("neighbors::link_label"), &arrays, &Count { count: n }, n.into()).unwrap();
        let mut by_root = std::collections::HashMap::<u32, Vec<u32>>::new();
        flat.iter().zip(&order).for_each(|(root, number)| by_root.entry(*root).or_default().push(*number));
        let labels = bench.down(&label);
        for members in by_root.values() {
            let least = members.iter().min().unwrap();
            assert!(members.iter().all(|&number| labels[number as usize] == *least));
        }
    }
}

#[test]
fn keys_are_counted_and_rows_told_where_they_go() {
    let mut bench = Bench::new();
    // Few high words, so that low ones decide, and keys that occur many times.
    let words = |seed, n| random(seed, n, 5).into_iter().zip(random(seed + 1, n, 40));
    let mut keys: Vec<(u32, u32)> = words(40, 3000).map(|(h, l)| (h * 0x3fff_ffff, l * 0x0666_6666)).collect();
    keys.sort_unstable();
    let mut probes: Vec<(u32, u32)> = words(42, 500).map(|(h, l)| (h * 0x3fff_ffff, l * 0x0666_6666 + l % 3)).collect();
    probes.extend([(0, 0), (u32::MAX, u32::MAX)]);
    for count in [0, 1, 3000] {
        let keys = &keys[..count];
        let split = |pairs: &[(u32, u32)]| -> [Vec<u32>; 2] {
            [pairs.iter().map(|p| p.0).collect(), pairs.iter().map(|p| p.1).collect()]
        };
        let arrays =
            [split(keys), split(&probes)].concat().into_iter().map(|words| bench.up(&words)).collect::<Vec<_>>();
        let places = bench.up(&vec![0u32; probes.len()]);
        let arrays: Vec<_> = arrays.iter().map(Array::raw).chain([places.raw()]).collect();
        let params = Probe { keys: count as u32, probes: probes.len() as u32 };
        bench.recorder.each(&kernel("sort::probe"), &arrays, &params, probes.len() as u64).unwrap();
        let want = probes.iter().map(|probe| keys.iter().filter(|key| *key <= probe).count() as u32);
        assert!(bench.down(&places).into_iter().eq(want), "{count} keys");
    }

    // Parts of which some are empty.
    let order: Vec<u32> = (0..1000u32).map(|i| i * 7 % 1000).collect();
    let cuts = [0u32, 0, 10, 10, 700, 1000, 1000];
    let (device, places) = (bench.up(&order), bench.up(&cuts));
    let [recipients, inverse] = [bench.up(&[0u32; 1000]), bench.up(&[0u32; 1000])];
    let arrays = [device.raw(), places.raw(), recipients.raw()];
    let params = Recipients { count: 1000, ranks: cuts.len() as u32 };
    bench.recorder.each(&kernel("sort::recipients"), &arrays, &params, 1000).unwrap();
    let arrays = [device.raw(), inverse.raw()];
    bench.recorder.each(&kernel("points::inverse"), &arrays, &Count { count: 1000 }, 1000).unwrap();
    let (recipients, inverse) = (bench.down(&recipients), bench.down(&inverse));
    for (place, &row) in order.iter().enumerate() {
        assert_eq!(inverse[row as usize], place as u32);
        let rank = cuts.iter().filter(|&&cut| cut <= place as u32).count() - 1;
        assert_eq!(recipients[row as usize], rank as u32);
    }
}

#[test]
fn lists_change_their_order_with_their_entries() {
    let mut bench = Bench::new();
    let lengths: Vec<u32> = random(44, 300, 9).into_iter().map(|n| n.saturating_sub(3)).collect();
    let ends = |lengths: &[u32]| -> Vec<u32> { (0..=lengths.len()).map(|i| lengths[..i].iter().sum()).collect() };
    let rows: Vec<u32> = (0..300u32).map(|i| (i * 77 + 5) % 300).collect();
    let mut moved = vec![0; 300];
    rows.iter().zip(&lengths).for_each(|(&row, &n)| moved[row as usize] = n);
    let (offset, start) = (ends(&lengths), ends(&moved));
    let entries = offset[300];
    let [old, new, to] = [&offset, &start, &rows].map(|words| bench.up(words));
    let [found, places] = [bench.up(&vec![0u32; 300]), bench.up(&vec![0u32; entries as usize])];
    bench
        .recorder
        .each(&kernel("neighbors::row_lengths"), &[old.raw(), found.raw()], &Count { count: 300 }, 300)
        .unwrap();
    assert_eq!(bench.down(&found), lengths);
    let arrays = [&old, &to, &new, &places].map(Array::raw);
    let params = Entries { entries, rows: 300, index_bits: 0 };
    bench.recorder.each(&kernel("neighbors::entry_places"), &arrays, &params, entries.into()).unwrap();
    let row = |row: usize| (0..lengths[row]).map(move |entry| (row, entry));
    let want = (0..300).flat_map(row).map(|(row, entry)| start[rows[row] as usize] + entry);
    assert!(bench.down(&places).into_iter().eq(want));

    let k = 3;
    let distance: Vec<f32> = (0..300 * k).map(|i| uniform(45, i) as f32).collect();
    let (lists, reach) = (bench.up(&distance), bench.up(&[0f32; 300]));
    let params = Last { queries: 300, k: k as u32, within: 0.5 };
    let arrays = [to.raw(), lists.raw(), reach.raw()];
    bench.recorder.each(&kernel("neighbors::last_distance"), &arrays, &params, 300).unwrap();
    let want = rows.iter().map(|&row| distance[3 * row as usize + 2].min(0.5));
    assert!(bench.down(&reach).into_iter().eq(want));
}

/// Roots that are up to four units of the last place away, as drivers may have them, become those
/// that IEEE 754 rounds. In the sanitizer, whose `fma` is fused, as GPUs have it.
#[test]
fn roots_are_rounded_from_whatever_a_device_makes() {
    let text = include_str!("../../shaders/points/neighbors/rounded_sqrt.wgsl");
    assert!(text.contains("var root = sqrt(d);"));
    let rough = text.replace("var root = sqrt(d);", "var root = rough_sqrt(d);");
    let text = format!(
        "var<uniform> params: Params;
         var<storage, read> from: array<f32>;
         var<storage, read_write> to: array<f32>;
         var<private> away: u32;
         fn rough_sqrt(d: f32) -> f32 {{ return select(bitcast<f32>(bitcast<u32>(sqrt(d)) + away - 4u), 0.0, d == 0.0); }}
         {rough}
         fn each(i: u32) {{
             away = i % 9u;
             store_to(i, rounded_sqrt(load_from(i)));
         }}
         #each params.count"
    );
    let kernel = Kernel::new(KernelSource::new("test::roots", text).params::<Count>());
    // Numbers beside powers of two, whose roots are nearly halfway between two numbers; any; large
    // and small ones.
    let beside =
        [1.0f32, 2.0, 4.0].into_iter().flat_map(|one| (0..20).map(move |n| f32::from_bits(one.to_bits() + n - 10)));
    let any = (0..80u32).map(|n| f32::from_bits(0x3f80_0000 + n.wrapping_mul(2_654_435_769) % (1 << 24)));
    let numbers: Vec<f32> = beside.chain(any).chain([0.0, 6.25, 1e-20, 3e38]).collect();
    let from: Vec<f32> = numbers.iter().flat_map(|&number| [number; 9]).collect();
    let options =
        Options { observer: Some(Arc::new(Sanitizer::Run { subgroup: 32 })), ..meshloom_sanitizer::options().unwrap() };
    let gpu = Gpu::open(&options, 0).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let count = from.len() as u64;
    let (before, to) = (gpu.array::<f32>("from", count).unwrap(), gpu.array::<f32>("to", count).unwrap());
    recorder.upload(&before, 0, &from).unwrap();
    recorder.each(&kernel, &[before.raw(), to.raw()], &Count { count: count as u32 }, count).unwrap();
    let found = recorder.download(&to, 0, count).unwrap();
    for (n, (found, from)) in found.iter().zip(&from).enumerate() {
        assert_eq!(found.to_bits(), from.sqrt().to_bits(), "{from:e}, {} away", n as i64 % 9 - 4);
    }
}
