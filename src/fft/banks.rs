//! What the stages of a line access in workgroup memory, replayed, for `gpu::machine` to price. Pure.

use super::line::{LineKernel, LineWorkgroup};

/// Accesses of the workgroup's first exchange and all later ones: the cells that its invocations access at once, in their order. Each
/// stage but the last writes the results of its butterflies, each but the first reads their points.
fn replay(kernel: &LineKernel, shape: &LineWorkgroup) -> Vec<Vec<u64>> {
    let LineWorkgroup { ref core, lanes, lines, cells, .. } = *shape;
    let radices = &core.stages().radices;
    let n: u64 = radices.iter().product();
    let invocations: Vec<[u64; 2]> = (0..lanes * lines)
        .map(|local| if kernel.strided() { [local % lines, local / lines] } else { [local / lanes, local % lanes] })
        .collect();
    let mut accesses = Vec::new();
    let mut access = |at: &dyn Fn(u64) -> Option<u64>| {
        let place = |&[column, lane]: &[u64; 2]| Some(column * cells.columns + cells.offset(at(lane)?));
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

    use super::super::core::Limits;
    use super::super::line::{LineFormat, LineKernel, Order, Side, Span, Work};
    use super::super::precision::Precision;
    use super::replay;
    use crate::gpu::machine::{GPUS, H100, Machine};

    const PLAIN: Side = Side { format: LineFormat::Complex, order: Order::Strided, span: Span::Whole };

    fn kernel(n: u64, axis: usize) -> LineKernel {
        let work = Work::Forward;
        let precision = Precision::Single;
        LineKernel {
            precision,
            axis,
            n,
            points: n,
            work,
            input: PLAIN,
            output: PLAIN,
            four_step: None,
            in_place: false,
        }
    }

    fn limits(bytes: u64, invocations: u64) -> Limits {
        Limits { workgroup_bytes: bytes, invocations, points: 16, alone: 16, shared: true, columns: 16 }
    }

    /// The worst access of a subgroup, and the mean of all.
    fn conflicts(machine: &Machine, n: u64, axis: usize, limits: Limits) -> [f64; 2] {
        let kernel = kernel(n, axis);
        let shape = kernel.shape(limits).unwrap();
        let bytes = if shape.together { 8 } else { 4 };
        let accesses = replay(&kernel, &shape);
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
    fn lengths_of_meshes_have_few_conflicts() {
        for n in (33..=1024).filter(|&n| crate::fft::size::is_good_size(n)) {
            for axis in [1, 2] {
                let [worst, mean] = conflicts(&H100, n, axis, limits(48 << 10, 256));
                let _ = writeln!(std::io::stdout(), "{n} along {axis}: {worst} at worst, {mean:.2}");
                assert!(worst <= 4.0, "{n} along {axis}: {worst}");
            }
        }
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
