//! Stages along two axes that run layer by layer through the cache of a device.
//!
//! ```text
//! an axis after the other   read z write   read y write        4 times the bytes of the array
//! layer by layer            read z [cache] y write             2 times
//! ```
//!
//! Lines along z and y lie in a plane of x. A layer is a range of planes of a group of fields.
//! Where the second stage works in place in what the first one writes, it does so for each
//! layer. Elsewhere the elements between the axes lie in two arrays of a layer each, in turn: the
//! second stage of a layer and the first stage of the next one then share no array that either
//! writes, and the device overlaps both. Layers are half as thick, since the cache holds two.
//!
//! Both forms run the kernels of the plain passes over parts of their lines, so bits are the same.
//!
//! Cost on an H100, predicted for complex fields in single precision: bytes of device memory by
//! count, at the 2.77 TB/s of its copy kernel, and 3 us until it has drained after a dispatch; with
//! 17.5 MB of its cache. Plain transforms drain three times.
//!
//! | cells | plain: GB, us | layers, GB, drains, us |
//! |---|---|---|
//! | 128^3 | 0.10, 45 | fit the cache: plain |
//! | 256^3 | 0.81, 300 | 8, 0.54, 17, 245 |
//! | 512^3 | 6.4, 2335 | 64, 4.3, 129, 1938 |
//! | 1024^3 | 51.5, 18615 | 512, 34.4, 1025, 15479 |
//!
//! A layer takes two dispatches. Layers of less than 8 MB, or 4 MB where two overlap, would save
//! less than their drains take. On several ranks nothing changes between them: no message and no
//! byte.

use std::ops::Range;

use super::stage::Stage;
use crate::fft::core::Limits;
use crate::grid::split;

/// Two stages that run layer by layer. Each of them has one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Number of the first stage in its route. The second one follows it.
    pub first: usize,
    /// Groups of fields, which layers take one after the other.
    pub groups: u64,
    /// Layers of a group.
    pub count: u64,
    /// Planes of x of all layers of a group.
    pub planes: u64,
    /// Whether the second stage works in place, in the array that the first one writes.
    pub in_place: bool,
}

/// The part of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Number of the group of fields.
    pub group: u64,
    /// Planes of x of this rank's part.
    pub planes: Range<u64>,
}

impl Layers {
    /// Returns the layers of stage `first` of a route and the next one, without an exchange between
    /// them; `None` if they have no common planes, several passes, or elements that the cache
    /// holds all or no plane of.
    pub fn new(first: usize, [writer, reader]: [&Stage; 2], in_place: bool, limits: Limits) -> Option<Self> {
        let ([write], [read]) = (&writer.passes[..], &reader.passes[..]) else { return None };
        let units = [(writer, write), (reader, read)].map(|(stage, pass)| stage.fields[0] / pass.kernel.fields());
        let (groups, planes, bytes) = (common_divisor(units[0], units[1]), writer.after[0], writer.written_bytes());
        let has_planes = writer.axis > 0 && reader.axis > 0 && planes > 1 && groups > 0;
        if !has_planes || bytes <= limits.cache_bytes {
            return None;
        }
        let of_layer = if in_place { limits.cache_bytes } else { limits.cache_bytes / 2 };
        let together = of_layer / (bytes / (groups * planes)).max(1);
        (together > 0).then(|| Layers { first, groups, count: planes.div_ceil(together), planes, in_place })
    }

    /// Returns all layers, in order.
    pub fn all(&self) -> impl Iterator<Item = Layer> + '_ {
        let of_group =
            move |group| (0..self.count).map(move |n| Layer { group, planes: split(self.planes, self.count, n) });
        (0..self.groups).flat_map(of_group)
    }

    /// Returns the fields of a stage in a group; those whose lines are transformed together count
    /// once.
    pub fn fields(&self, stage: &Stage, group: u64) -> Range<u64> {
        let each = stage.fields[0] / stage.passes[0].kernel.fields() / self.groups;
        group * each..(group + 1) * each
    }

    /// Returns the extent of the array between the stages, and the fields in it. It holds the
    /// thickest layer.
    pub fn array(&self, writer: &Stage) -> ([u64; 3], u64) {
        let [_, lines, points] = writer.after;
        ([self.planes.div_ceil(self.count), lines, points], writer.fields[1] / self.groups)
    }

    /// Returns the elements of the array between the stages.
    pub fn array_len(&self, writer: &Stage) -> u64 {
        let (extent, fields) = self.array(writer);
        extent.iter().product::<u64>() * fields
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::axis::AxisPass;
    use crate::fft::core::FLOOR;
    use crate::fft::line::LineParams;
    use crate::fft::plan::{Placement, Plan, Route, StagePart};
    use crate::fft::spec::{Spec, Values};
    use crate::grid::Grid;
    use meshloom_sanitizer::memory_system::{H100_MEMORY, MemorySystem};

    /// An H100, with 17.5 MB of its cache for layers.
    const H100: Limits = Limits { workgroup_bytes: 48 << 10, invocations: 1024, cache_bytes: 17_500_000, ..FLOOR };

    fn plan(values: Values, cells: [u64; 3], parts: [usize; 2], limits: Limits) -> Plan {
        let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
        Plan::new(&Spec { values, ..Spec::of::<f32>(cells) }, grid, 0, limits, 4).unwrap()
    }

    /// Returns the number of layers and dispatches of a route, and whether it works in place.
    fn layers(route: &Route) -> Vec<(u64, u64, bool)> {
        route.layers.iter().map(|layers| (layers.count, route.dispatches(), layers.in_place)).collect()
    }

    #[test]
    fn layers_are_made_where_they_save_memory_traffic() {
        let of = |values: Values, n: u64| {
            let plan = plan(values, [n; 3], [1, 1], H100);
            [&plan.forward, &plan.inverse].map(layers)
        };
        assert_eq!(of(Values::Complex, 128), [vec![], vec![]]);
        for (n, count) in [(256, 8), (512, 64), (1024, 512)] {
            assert_eq!(of(Values::Complex, n), [(); 2].map(|()| vec![(count, 2 * count + 1, true)]));
        }
        // The array that z reads has no room for its output.
        assert_eq!(of(Values::Real, 512), [vec![(32, 65, true)], vec![(64, 129, false)]]);
        // No plane fits.
        let thick = plan(Values::Complex, [8, 2048, 2048], [1, 1], H100);
        assert_eq!([&thick.forward, &thick.inverse].map(layers), [vec![], vec![]]);
        let forward = plan(Values::Complex, [512; 3], [1, 1], H100).forward;
        let plain = plan(Values::Complex, [512; 3], [1, 1], Limits { cache_bytes: 0, ..H100 }).forward;
        let cells = 512u64.pow(3);
        assert_eq!([plain.traffic(), forward.traffic()], [48 * cells, 32 * cells]);
    }

    #[test]
    fn slabs_have_layers_and_pencils_have_none() {
        let count = |parts: [usize; 2]| {
            let plan = plan(Values::Real, [512; 3], parts, H100);
            [&plan.forward, &plan.inverse].map(|route| layers(route).len())
        };
        assert_eq!([count([4, 1]), count([2, 2]), count([1, 4])], [[1, 1], [0, 0], [0, 0]]);
        // Two layers take the place of the array between z and y.
        let plan = |cache_bytes| plan(Values::Complex, [512; 3], [4, 1], Limits { cache_bytes, ..H100 });
        let part = 512u64.pow(3) / 4;
        let working = |plan: &Plan| plan.forward.working(0, &|len| len)[0];
        assert_eq!(working(&plan(0)), 3 * part);
        assert_eq!(working(&plan(17_500_000)), 2 * part + 2 * 4 * 512 * 512);
    }

    #[test]
    fn layers_cover_all_planes_of_all_fields_once() {
        for (fields, values) in [(1, Values::Complex), (3, Values::Real)] {
            let spec = Spec { values, ..Spec::of::<f32>([13, 6, 10]) }.fields(fields);
            let limits = Limits { cache_bytes: 2000, shared: false, ..FLOOR };
            let plan = Plan::new(&spec, Grid::new([1, 1], 1).unwrap(), 0, limits, 1).unwrap();
            for route in [&plan.forward, &plan.inverse] {
                let [layers] = &route.layers[..] else { panic!("{route:?}") };
                let stage = &route.stages[layers.first];
                let mut planes = Vec::new();
                for layer in layers.all() {
                    let thickness = layer.planes.end - layer.planes.start;
                    assert!(thickness <= layers.array(stage).0[0] && thickness > 0);
                    let group = layers.fields(stage, layer.group);
                    planes.extend(group.flat_map(|field| layer.planes.clone().map(move |plane| (field, plane))));
                }
                let expected = (0..fields).flat_map(|field| (0..13).map(move |plane| (field, plane)));
                assert!(planes.into_iter().eq(expected));
            }
        }
    }

    /// A dispatch: the lines of its workgroups and where its arrays begin in memory.
    struct Replayed<'a> {
        pass: &'a AxisPass,
        params: LineParams,
        bases: [u64; 2],
    }

    impl Replayed<'_> {
        /// Returns the first bytes of the sectors that each workgroup reads and then writes.
        fn workgroups(&self) -> Vec<Vec<(u64, bool)>> {
            let (kernel, params) = (&self.pass.kernel, &self.params);
            let [c0, c1, _, lines] = params.line_sizes;
            let sides = [
                (&kernel.input, params.line_input, params.line_input_more[0], self.bases[0]),
                (&kernel.output, params.line_output, params.line_output_more[0], self.bases[1]),
            ];
            let together = self.pass.shape.lines;
            let of_workgroup = |first: u64| {
                let lines = (first..(first + together).min(lines.into())).map(|line| line as u32);
                let side = |(number, (side, [offset, s0, s1, s2], stride, base)): (usize, (_, [u32; 4], u32, u64))| {
                    let side: &crate::fft::line::Side = side;
                    let start = |line: u32| offset + line % c0 * s0 + line / c0 % c1 * s1 + line / c0 / c1 * s2;
                    let points = || 0..side.stored(kernel.n);
                    let at = |line: u32, p: u64| {
                        (u64::from(start(line)) + p * u64::from(stride)) * side.number(kernel.precision)
                    };
                    let mut sectors: Vec<u64> =
                        lines.clone().flat_map(|line| points().map(move |p| (base + at(line, p)) / 32 * 32)).collect();
                    sectors.sort_unstable();
                    sectors.dedup();
                    sectors.into_iter().map(move |sector| (sector, number == 1))
                };
                sides.into_iter().enumerate().flat_map(side).collect()
            };
            (0..u64::from(lines)).step_by(together as usize).map(of_workgroup).collect()
        }
    }

    /// Returns the bytes that memory moves for dispatches, one after the other. Sectors are written
    /// whole, so that nothing is read before.
    fn moved(memory: MemorySystem, dispatches: &[Replayed<'_>]) -> f64 {
        let mut replay = memory.replay();
        for (sector, writes) in dispatches.iter().flat_map(Replayed::workgroups).flatten() {
            if writes { replay.overwrite(sector) } else { replay.access(sector, false) }
        }
        let moved = replay.finish();
        (moved.read + moved.written) as f64
    }

    const CELLS: [u64; 3] = [96, 64, 64];

    /// Returns the dispatches of both stages over planes of x. `places` are those of the input, of
    /// the elements between the stages and of the output, with the bytes at which each begins.
    fn both<'a>(route: &'a Route, planes: &Range<u64>, places: [(Placement<'_>, u64); 3]) -> [Replayed<'a>; 2] {
        let first = route.stages.iter().position(|stage| stage.axis > 0).unwrap();
        [0, 1].map(|which| {
            let stage = &route.stages[first + which];
            let (pass, [read, written]) = (&stage.passes[0], [places[which], places[which + 1]]);
            let mut cells = stage.before.map(|n| 0..n);
            cells[0] = planes.clone();
            let params = stage.params(&pass.kernel, &StagePart { cells, fields: 0..1 }, read.0, written.0);
            Replayed { pass, params, bases: [read.1, written.1] }
        })
    }

    /// Returns the dispatches of both stages in the order in which a device starts them: each axis
    /// alone, or in layers. `starts` are the places in memory without layers.
    fn dispatches<'a>(route: &'a Route, layers: Option<&Layers>, starts: [u64; 3]) -> Vec<Replayed<'a>> {
        let first = route.stages.iter().position(|stage| stage.axis > 0).unwrap();
        let [writer, reader] = [&route.stages[first], &route.stages[first + 1]];
        let whole = |extent: [u64; 3], start: u64| (Placement::Array { origin: [0; 3], extent, first: 0 }, start);
        let ends = [whole(writer.before, starts[0]), whole(writer.after, starts[1]), whole(reader.after, starts[2])];
        let Some(layers) = layers else { return both(route, &(0..CELLS[0]), ends).into() };
        if layers.in_place {
            return layers.all().flat_map(|layer| both(route, &layer.planes, ends)).collect();
        }
        let (mut all, mut last) = (Vec::new(), None);
        for (number, Layer { planes, .. }) in layers.all().enumerate() {
            let (mut extent, start) = (layers.array(writer).0, (2 << 30) + (number as u64 % 2) * (1 << 20));
            extent[0] = planes.end - planes.start;
            let between = Placement::Array { origin: [planes.start, 0, 0], extent, first: 0 };
            let [write, read] = both(route, &planes, [ends[0], (between, start), ends[2]]);
            all.extend(last.replace(read));
            all.push(write);
        }
        all.into_iter().chain(last).collect()
    }

    /// Planes of 512 x 512 complex numbers, cache and layers, all of them a 64th.
    #[test]
    fn layers_halve_the_traffic_of_an_h100() {
        let limits = Limits { cache_bytes: H100.cache_bytes / 64, ..H100 };
        let [complex, real] = [Values::Complex, Values::Real].map(|values| plan(values, CELLS, [1, 1], limits));
        let place = 1 << 30;
        for (name, route, starts, planes) in [
            ("complex, forward", &complex.forward, [0, place, place], 8),
            ("complex, inverse", &complex.inverse, [place; 3], 8),
            ("real, inverse", &real.inverse, [0, 0, place], 8),
        ] {
            let layers = &route.layers[0];
            assert_eq!(layers.planes.div_ceil(layers.count), planes, "{name}");
            let bytes = route.stages[layers.first].written_bytes() as f64;
            let of = |sets: u64, layers: Option<&Layers>| {
                let memory = MemorySystem { cache: sets * 16 * 128, ..H100_MEMORY };
                moved(memory, &dispatches(route, layers, starts)) / bytes
            };
            // 50 and 25 MB, in numbers of sets over which the model spreads lines evenly.
            let [plain, layered, half] = [of(384, None), of(384, Some(layers)), of(192, Some(layers))];
            let found = format!("{name}: plain {plain:.2}, layers {layered:.2}, with half of the cache {half:.2}");
            assert!((3.8..4.01).contains(&plain) && layered < 2.4 && half < 3.3, "{found}");
        }
    }
}
