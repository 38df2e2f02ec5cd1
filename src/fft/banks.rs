//! Replays the accesses of a line's stages to workgroup memory, so that the machine model of
//! `meshloom-sanitizer` can count their cost. Needs no device.

use super::line::{LineKernel, LineWorkgroup};

/// Returns the accesses of the exchanges of a transform: the cells that the invocations of a
/// workgroup access at the same time, in order. Each stage except the last writes the results of
/// its butterflies; each stage except the first reads their points.
fn replay(kernel: &LineKernel, shape: &LineWorkgroup, radices: &[u64]) -> Vec<Vec<u64>> {
    let LineWorkgroup { lanes, lines, exchange, cells, .. } = *shape;
    let n: u64 = radices.iter().product();
    let invocations: Vec<[u64; 2]> = (0..lanes * lines)
        .map(|local| if kernel.strided() { [local % lines, local / lines] } else { [local / lanes, local % lanes] })
        .collect();
    let mut accesses = Vec::new();
    let mut access = |at: &dyn Fn(u64) -> Option<u64>| {
        let at_once = exchange.lines_at_once(lines);
        let place = |&[column, lane]: &[u64; 2]| Some(column % at_once * cells.columns + cells.offset(at(lane)?));
        accesses.push(invocations.iter().filter_map(place).collect());
    };
    let mut done = 1;
    for (stage, &radix) in radices.iter().enumerate() {
        let butterflies = n / radix;
        for (b, i) in (0..butterflies.div_ceil(lanes)).flat_map(|b| (0..radix).map(move |i| (b, i))) {
            if stage > 0 {
                access(&|lane| Some((b * lanes + lane).min(butterflies - 1) + i * butterflies));
            }
            if stage + 1 < radices.len() {
                let to = |j: u64| (j - j % done) * radix + j % done + i * done;
                access(&|lane| Some(b * lanes + lane).filter(|j| *j < butterflies).map(to));
            }
        }
        done *= radix;
    }
    accesses
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::axis::{AxisPass, passes};
    use super::super::core::{Core, Limits};
    use super::super::line::{LineFormat, LineKernel, LineWorkgroup, Order, Side, Span, Work};
    use super::super::spec::Precision;
    use super::replay;
    use crate::gpu::ROW;
    use meshloom_sanitizer::machine::{GPUS, H100, Machine};

    const PLAIN: Side = Side { format: LineFormat::Complex, order: Order::Strided, span: Span::Whole };

    fn kernel(n: u64, axis: usize) -> LineKernel {
        let (work, precision) = (Work::Forward, Precision::Single);
        let [input, output] = [PLAIN; 2];
        LineKernel { precision, axis, n, points: n, work, input, output, four_step: None, in_place: false }
    }

    fn limits(bytes: u64, invocations: u64) -> Limits {
        Limits { workgroup_bytes: bytes, invocations, points: 16, alone: 16, shared: true, columns: 16, cache_bytes: 0 }
    }

    /// Returns the conflicts of the worst access of a subgroup, and the mean over all accesses.
    fn conflicts(machine: &Machine, n: u64, axis: usize, limits: Limits) -> [f64; 2] {
        let kernel = kernel(n, axis);
        conflicts_of(machine, &kernel, &kernel.shape(limits).unwrap(), limits)
    }

    fn conflicts_of(machine: &Machine, kernel: &LineKernel, shape: &LineWorkgroup, limits: Limits) -> [f64; 2] {
        let bytes = shape.exchange.cell_bytes(4) as u32;
        let mut radices = shape.core.stages().radices.clone();
        let mut accesses = replay(kernel, shape, &radices);
        let several = kernel.work != Work::Forward || matches!(shape.core, Core::Bluestein { .. });
        if several && shape.core.stages().turns() {
            radices.reverse();
            accesses.extend(replay(kernel, shape, &radices));
        }
        if accesses.is_empty() {
            return [1.0; 2];
        }
        let held = accesses.iter().flatten().max().map_or(0, |last| last + 1);
        assert!(
            held <= shape.cells.count && shape.cells.count * u64::from(bytes) <= limits.workgroup_bytes,
            "{shape:?}"
        );
        let subgroups = accesses.iter().flat_map(|access| access.chunks(machine.subgroup as usize));
        let all: Vec<f64> = subgroups.map(|places| machine.conflicts(places, bytes)).collect();
        [all.iter().fold(0.0, |worst: f64, &found| worst.max(found)), all.iter().sum::<f64>() / all.len() as f64]
    }

    #[test]
    fn lines_are_exchanged_with_few_conflicts() {
        for n in [64, 128, 256, 512, 1024, 2048, 4096] {
            for (axis, invocations) in [(1, 256), (1, 1024), (2, 256), (2, 1024)] {
                let [worst, mean] = conflicts(&H100, n, axis, limits(48 << 10, invocations));
                let _ = writeln!(
                    std::io::stdout(),
                    "{n} along {axis}, {invocations} invocations: {worst} at worst, {mean:.2}"
                );
                assert!(worst <= 2.0 && mean <= 1.5, "{n} along {axis}, {invocations} invocations: {worst}, {mean}");
            }
            for machine in GPUS {
                let memory = u64::from(machine.workgroup_memory[1]);
                let [worst, mean] = conflicts(&machine, n, 2, limits(memory, 256));
                assert!(worst <= 2.0 && mean <= 1.5, "{n} on {}: {worst}, {mean}", machine.name);
            }
        }
    }

    #[test]
    fn stages_in_reverse_have_few_conflicts() {
        for n in [60, 64, 120, 240, 256, 512, 1000, 1024, 2039, 2048, 4096] {
            for axis in [1, 2] {
                let (limits, work) = (limits(48 << 10, 1024), Work::Filter(3));
                let kernel = LineKernel { work, ..kernel(n, axis) };
                let [worst, mean] = conflicts_of(&H100, &kernel, &kernel.shape(limits).unwrap(), limits);
                assert!(worst <= 4.0, "{n} along {axis}: {worst}, {mean}");
            }
        }
    }

    #[test]
    fn lengths_of_meshes_have_few_conflicts() {
        for n in (33..=1024).filter(|&n| crate::fft::core::is_good_size(n)) {
            for axis in [1, 2] {
                let [worst, mean] = conflicts(&H100, n, axis, limits(48 << 10, 256));
                let _ = writeln!(std::io::stdout(), "{n} along {axis}: {worst} at worst, {mean:.2}");
                assert!(worst <= 4.0, "{n} along {axis}: {worst}");
            }
        }
    }

    #[test]
    fn strided_axes_take_whole_sectors_in_one_pass_or_two() {
        for machine in GPUS {
            let limits = limits(u64::from(machine.workgroup_memory[1]), u64::from(machine.invocations));
            let mut longest = 0;
            for n in (64..=4096).filter(|&n| crate::fft::core::is_good_size(n)) {
                let passes = passes(Precision::Single, 1, n, Work::Forward, [PLAIN; 2], limits).unwrap();
                let name = format!("{n} on {}", machine.name);
                assert!(passes.len() <= 2, "{name}: {} passes", passes.len());
                longest = if passes.len() == 1 { n } else { longest };
                for AxisPass { kernel, shape, .. } in &passes {
                    assert!(shape.lines >= 8, "{name}: {} lines side by side", shape.lines);
                    let bytes = shape.cells.count * shape.exchange.cell_bytes(4);
                    let invocations = shape.lanes * shape.lines;
                    let registers = invocations * (2 * shape.core.stages().held() + 32);
                    assert!(invocations <= limits.invocations, "{name}: {shape:?}");
                    assert!(registers <= machine.core_registers(), "{name}: {registers} registers, {shape:?}");
                    let [worst, mean] = conflicts_of(&machine, kernel, shape, limits);
                    // A tile that fills all workgroup memory has no space for free cells, but half
                    // the traffic of two passes.
                    let crammed = bytes == limits.workgroup_bytes;
                    let most = if n.is_power_of_two() && !crammed { [2.0, 1.5] } else { [4.0, 2.0] };
                    assert!(worst <= most[0] && mean <= most[1], "{name}: {worst}, {mean}, {shape:?}");
                }
                // Every byte of a moved sector is needed.
                let moved: u64 = passes.iter().map(|pass| pass.moved(u64::MAX)).sum();
                assert_eq!(moved, 16 * n * passes.len() as u64, "{name}");
            }
            assert!(longest >= 1024, "{}: one pass up to {longest}", machine.name);
        }
    }

    #[test]
    fn rows_along_strided_axes_are_long() {
        for machine in GPUS {
            let limits = limits(u64::from(machine.workgroup_memory[1]), u64::from(machine.invocations));
            let shape = |n: u64, points: u64| kernel(n, 1).shape(Limits { points, alone: points, ..limits }).unwrap();
            for n in [64, 96, 128, 256, 384, 512] {
                assert_eq!(8 * shape(n, 16).lines, ROW, "{n} on {}", machine.name);
            }
            // Two stages of 32 points, with cells for half of the lines at a time.
            let long = shape(1024, 32);
            assert_eq!((8 * long.lines, long.core.stages().radices.len()), (ROW, 2), "{}", machine.name);
            let [worst, mean] = conflicts_of(&machine, &kernel(1024, 1), &long, limits);
            assert!(worst <= 2.0 && mean <= 1.5, "{}: {worst}, {mean}", machine.name);
        }
    }

    #[test]
    fn what_narrow_tiles_leave_of_sectors_is_counted() {
        let moved = |n: u64, limits: Limits| {
            let kernel = kernel(n, 0);
            let shape = kernel.shape(limits).unwrap();
            (shape.lines, kernel.moved(shape.lines, u64::MAX), kernel.moved(shape.lines, shape.lines))
        };
        let gpu = limits(48 << 10, 1024);
        assert_eq!(moved(1024, gpu), (8, 16 * 1024, 16 * 1024));
        // Half a sector and an eighth are unused; nothing is, if the tile holds all lines.
        assert_eq!(moved(2048, gpu), (4, 2 * 16 * 2048, 16 * 2048));
        assert_eq!(moved(4096, limits(16 << 10, 256)), (1, 8 * 16 * 4096, 16 * 4096));
        // A prime in one pass of narrow tiles costs less than four.
        let of = |n: u64| passes(Precision::Single, 0, n, Work::Forward, [PLAIN; 2], gpu).unwrap();
        assert_eq!([2048, 2039, 4096, 4093].map(|n| of(n).len()), [2, 1, 2, 4]);
        // Software renderers keep to one pass.
        let software = Limits { shared: false, alone: 32, ..limits(32 << 10, 256) };
        assert_eq!(passes(Precision::Single, 0, 4096, Work::Forward, [PLAIN; 2], software).unwrap().len(), 1);
    }

    #[test]
    fn the_floor_takes_every_byte_and_conflicts() {
        let floor = limits(16384, 256);
        for n in [64, 128, 256, 512, 1024, 2048, 4096] {
            assert!(!kernel(n, 2).shape(floor).unwrap().cells.padded);
            let _ = writeln!(
                std::io::stdout(),
                "{n} on the floor: {:.2?} at worst and in the mean",
                conflicts(&H100, n, 2, floor)
            );
        }
        assert_eq!(conflicts(&H100, 256, 2, floor)[0], 16.0);
    }

    #[test]
    fn points_of_a_line_have_cells_of_their_own() {
        let lengths = [33, 60, 80, 96, 100, 143, 240, 336, 384, 1000, 2039, 4096];
        let shape = |n: u64| kernel(n, 2).shape(limits(48 << 10, 256)).unwrap();
        assert!(lengths.iter().filter(|n| shape(**n).cells.padded).count() > 3);
        for n in lengths {
            let shape = shape(n);
            let length = shape.core.exchanged(n);
            let mut places: Vec<u64> = (0..shape.lines)
                .flat_map(|column| (0..length).map(move |at| (column, at)))
                .map(|(column, at)| column * shape.cells.columns + shape.cells.offset(at))
                .collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len() as u64, shape.lines * length, "{n}");
            assert!(*places.last().unwrap() < shape.cells.count);
        }
    }
}
