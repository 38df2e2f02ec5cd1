//! The picture of an inference: data, signal and uncertainty as maps side by side, or as curves if
//! there is one axis.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::io::{IoError, NpyFile, RgbImage};
use meshloom_program::plots::{Axis, Band, Blocks, ColorScale, Curve, LinePlot, MapFigure, Means, Panel, Points, Rows};

use super::problem::Grids;

/// Most points of a curve.
const POINTS: u64 = 1000;

/// Elements of a file that are read at a time at most.
const CHUNK: u64 = 1 << 20;

const DATA: [u8; 3] = [62, 29, 102];
const SIGNAL: [u8; 3] = [226, 118, 62];

/// Values of a field at the data's cells on a rank: the position of each line in the file, and its
/// numbers. A line is a part of a row.
pub type Lines = Vec<(u64, Vec<f32>)>;

/// The middle slice of the data's grid, as means over blocks of cells.
pub struct Slice<'a> {
    pub grids: &'a Grids,
    /// Files of the data, and of which of them count, and of the exposure of counts.
    pub data: &'a Path,
    pub mask: Option<&'a Path>,
    pub exposure: Option<&'a Path>,
    /// Whether the signal is positive, and shown by its logarithm.
    pub lognormal: bool,
    /// Whether data are counts, and the signal their rate.
    pub counts: bool,
}

/// The means to draw.
struct Drawn {
    data: Vec<f32>,
    signal: Vec<f32>,
    std: Option<Vec<f32>>,
}

impl Slice<'_> {
    /// Returns the first element of the slice, and its rows and columns.
    fn place(&self) -> (u64, [u64; 2]) {
        let [first, rows, columns] = self.grids.cells;
        (first / 2 * rows * columns, [rows, columns])
    }

    /// Returns `true` if the data have one axis.
    fn is_curve(&self) -> bool {
        self.grids.shape.len() == 1
    }

    fn blocks(&self, panels: usize) -> Blocks {
        let most = if self.is_curve() { POINTS } else { MapFigure::most_cells(panels) };
        Blocks::new(self.place().1, most)
    }

    /// Returns the mean over each block of a field of which ranks have lines. Values of a block
    /// with several cells are rounded to multiples of a number, so that their sum is exact and does
    /// not depend on which rank has which. Collective.
    fn field(&self, comm: &Communicator, blocks: Blocks, lines: &Lines) -> Result<Vec<f32>, Error> {
        let (start, [rows, columns]) = self.place();
        let inside = lines.iter().filter_map(|(at, line)| {
            let at = at.checked_sub(start).filter(|at| *at < rows * columns)?;
            Some((at / columns, at % columns, line))
        });
        let mut greatest = [0.0];
        let finite = inside.clone().flat_map(|(_, _, line)| line).filter(|value| value.is_finite());
        finite.for_each(|value| greatest[0] = f64::max(greatest[0], f64::from(value.abs())));
        comm.all_reduce(&mut greatest, Op::Max)?;
        let unit = rounding(greatest[0], blocks.largest());
        let mut means = Means::new(blocks)?;
        for (row, column, line) in inside {
            means.add(
                row,
                column,
                line.iter().map(|&value| unit.map_or(f64::from(value), |unit| (f64::from(value) / unit).round())),
            );
        }
        means.exchange(|sums| comm.all_reduce(sums, Op::Sum))?;
        means.scale(unit.unwrap_or(1.0));
        Ok(means.finish()?)
    }

    /// Returns the mean over each block of a file of the shape of the data, without cells that are
    /// masked: these may be any number.
    fn file(&self, path: &Path, blocks: Blocks) -> Result<Vec<f32>, IoError> {
        let (start, [rows, columns]) = self.place();
        let open = |path: &Path| Ok::<_, IoError>(NpyFile::open(path)?.accept_integers());
        let (file, mask) = (open(path)?, self.mask.map(open).transpose()?);
        let mut means = Means::new(blocks)?;
        for row in 0..rows {
            for column in (0..columns).step_by(CHUNK as usize) {
                let first = start + row * columns + column;
                let elements = first..first + CHUNK.min(columns - column);
                let mut values = file.read_f64(elements.clone())?;
                if let Some(mask) = &mask {
                    let counts = mask.read_f64(elements)?;
                    let masked = values.iter_mut().zip(counts).filter(|(_, counts)| *counts != 1.0);
                    masked.for_each(|(value, _)| *value = f64::NAN);
                }
                means.add(row, column, values);
            }
        }
        Ok(means.finish()?)
    }

    /// Returns the picture as a file's bytes, on the first rank of each group. Collective over a
    /// group.
    ///
    /// # Errors
    /// Errors of the data's files, and of pictures that cannot be encoded.
    pub fn draw(
        &self,
        comm: &Communicator,
        signal: &Lines,
        std: Option<&Lines>,
        path: &Path,
    ) -> Result<Option<Vec<u8>>, Error> {
        let blocks = self.blocks(2 + usize::from(std.is_some()));
        let signal = self.field(comm, blocks, signal)?;
        let std = std.map(|std| self.field(comm, blocks, std)).transpose()?;
        if comm.rank() != 0 {
            return Ok(None);
        }
        let drawn = Drawn { data: self.file(self.data, blocks)?, signal, std };
        let picture =
            if self.is_curve() { self.curve(&drawn, blocks, path)? } else { self.maps(&drawn, blocks, path)? };
        Ok(Some(picture.png_bytes(path)?))
    }

    /// Returns what the signal is called.
    fn signal_name(&self, has_samples: bool) -> &'static str {
        if has_samples { "posterior mean" } else { "most probable signal" }
    }

    /// Draws data, signal and uncertainty side by side.
    fn maps(&self, drawn: &Drawn, blocks: Blocks, path: &Path) -> Result<RgbImage, IoError> {
        let positive = self.lognormal;
        let relative = drawn.std.as_ref().map(|std| {
            let each = std.iter().zip(&drawn.signal);
            each.map(|(std, mean)| if positive { std / mean } else { *std }).collect::<Vec<f32>>()
        });
        let scale = |map: &[f32]| if positive { ColorScale::logarithmic(&[map]) } else { ColorScale::linear(&[map]) };
        // Zero is a count, too.
        let of_data = if self.counts { ColorScale::linear(&[&drawn.data]) } else { scale(&drawn.data) };
        let colors = [of_data?, scale(&drawn.signal)?];
        let of_std = relative.as_deref().map(|relative| ColorScale::linear(&[relative])).transpose()?;
        let unit = if self.counts { "[counts per cell]" } else { "[unit of the data]" };
        let unit_of_rate = if self.counts && self.exposure.is_some() { "[counts per unit of exposure]" } else { unit };
        let labels = [
            if self.counts { format!("counts {unit}") } else { format!("data {unit}") },
            format!("{} {unit_of_rate}", if self.counts { "rate" } else { "signal" }),
            if positive { "standard deviation / mean".into() } else { format!("standard deviation {unit}") },
        ];
        let ([rows, columns], axes) = (self.place().1, self.grids.shape.len());
        let names = [axes - 2, axes - 1].map(|axis| format!("axis {axis} [cells]"));
        let panel = |title, values, colors, label| Panel {
            title,
            values,
            size: blocks.size(),
            x: Axis::linear(&names[1], [0.0, columns as f64]),
            y: Axis::linear(&names[0], [0.0, rows as f64]),
            rows: Rows::DownWithAxis,
            colors,
            color_label: Some(label),
            smooth: false,
        };
        let signal_name = self.signal_name(drawn.std.is_some());
        let mut panels = vec![
            panel("data", &drawn.data[..], &colors[0], &labels[0][..]),
            panel(signal_name, &drawn.signal[..], &colors[1], &labels[1][..]),
        ];
        if let Some((relative, colors)) = relative.as_deref().zip(of_std.as_ref()) {
            let title = if positive { "relative uncertainty" } else { "uncertainty" };
            panels.push(panel(title, relative, colors, &labels[2]));
        }
        let title = match self.grids.cells[0] {
            planes if axes == 3 => format!("Inferred signal, plane {} of axis 0", planes / 2),
            _ => "Inferred signal".into(),
        };
        MapFigure { title: &title, panels: &panels }.draw(path)
    }

    /// Draws data as points, the signal as a curve and its uncertainty as a band.
    fn curve(&self, drawn: &Drawn, blocks: Blocks, path: &Path) -> Result<RgbImage, IoError> {
        let mut data = drawn.data.clone();
        let mut label = if self.counts { "counts, rate [counts per cell]" } else { "data, signal [unit of the data]" };
        if let Some(exposure) = self.exposure {
            // Data as what the rate predicts.
            let exposures = self.file(exposure, blocks)?;
            data.iter_mut().zip(exposures).for_each(|(counts, exposure)| *counts /= exposure);
            label = "counts / exposure, rate [counts per unit of exposure]";
        }
        let (cells, points) = (self.place().1[1] as f64, drawn.signal.len());
        let at = |i: usize| (i as f64 + 0.5) * cells / points as f64;
        let each = |values: &[f32]| values.iter().map(|&value| f64::from(value)).enumerate().collect::<Vec<_>>();
        let data: Vec<_> = each(&data).into_iter().map(|(i, value)| (at(i), value, 0.0)).collect();
        let signal: Vec<_> = each(&drawn.signal).into_iter().map(|(i, value)| (at(i), value)).collect();
        let band = drawn.std.iter().flat_map(|std| each(std)).zip(&signal);
        let band: Vec<_> = band.map(|((i, std), (_, mean))| (at(i), mean - std, mean + std)).collect();
        let ends = band.iter().flat_map(|(_, low, high)| [*low, *high]);
        let all = data.iter().map(|(_, value, _)| *value).chain(signal.iter().map(|(_, value)| *value)).chain(ends);
        let plot = LinePlot {
            title: "Inferred signal",
            x: Axis::linear("axis 0 [cells]", [0.0, cells]),
            y: Axis::linear(label, with_margin(all)),
            bands: &[Band {
                name: if band.is_empty() { "" } else { "one standard deviation" },
                at: &band,
                color: SIGNAL,
            }],
            curves: &[Curve { name: self.signal_name(drawn.std.is_some()), at: &signal, color: SIGNAL, dashed: false }],
            points: &[Points { name: "data", at: &data, color: DATA }],
        };
        plot.draw(path)
    }
}

/// Returns the power of two that values up to `greatest` are rounded to multiples of, so that the
/// sum of `count` of them is exact; `None` for one value, which is its own sum.
fn rounding(greatest: f64, count: u64) -> Option<f64> {
    let bits = 52 - count.next_power_of_two().ilog2() as i32;
    (count > 1 && greatest > 0.0).then(|| 2f64.powi(greatest.log2().ceil() as i32 - bits))
}

/// Returns the range of the finite values with a margin; from 0 to 1 if there are none.
fn with_margin(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return [0.0, 1.0];
    }
    let margin = 0.05 * (high - low);
    if margin > 1e-6 * low.abs().max(high.abs()) {
        [low - margin, high + margin]
    } else {
        let margin = if high == 0.0 { 1.0 } else { 0.1 * high.abs() };
        [low - margin, high + margin]
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use meshloom::comm::run_threads;
    use meshloom::io::{NpyElement, NpyWriter, token};

    use super::*;

    fn file<T: NpyElement>(what: &str, shape: &[u64], values: &[T]) -> PathBuf {
        let token = token();
        let path = std::env::temp_dir().join(format!("meshloom-picture-{what}-{token}.npy"));
        let file = NpyWriter::create(&path, shape, &token).unwrap();
        file.write(0, values).unwrap();
        file.finish().unwrap();
        path
    }

    fn grids(shape: &[u64]) -> Grids {
        let mut cells = [1; 3];
        cells[3 - shape.len()..].copy_from_slice(shape);
        Grids { shape: shape.to_vec(), cells, padded: cells, distances: [1.0; 3] }
    }

    fn slice<'a>(grids: &'a Grids, data: &'a Path) -> Slice<'a> {
        Slice { grids, data, mask: None, exposure: None, lognormal: false, counts: false }
    }

    /// Returns the lines of rank `rank` of `ranks`, which have every `ranks`th row cut in two.
    fn lines(values: &[f32], columns: usize, (rank, ranks): (usize, usize)) -> Lines {
        let cut = columns / 3;
        let halves = (0..).step_by(columns).zip(values.chunks(columns)).flat_map(|(at, row)| {
            let [head, tail] = [&row[..cut], &row[cut..]].map(<[f32]>::to_vec);
            [(at, head), (at + cut as u64, tail)]
        });
        halves.enumerate().filter(|(number, _)| number % ranks == rank).map(|(_, line)| line).collect()
    }

    #[test]
    fn means_of_blocks_are_the_same_on_any_number_of_ranks() {
        // A plane of 3, whose middle one is drawn, with values from 1e-6 to 1e6.
        let shape = [3, 40, 5000];
        let value =
            |i: u32| (1.0 + (i % 7) as f32 / 7.0) * 10f32.powi((i.wrapping_mul(2_654_435_761) >> 16) as i32 % 7 - 3);
        let values: Vec<f32> = (0..3 * 40 * 5000).map(value).collect();
        let grids = grids(&shape);
        let slice = slice(&grids, Path::new("none.npy"));
        let blocks = slice.blocks(3);
        assert_eq!((blocks.size(), blocks.largest()), ([5, 556], 72));
        let means = |ranks: usize| {
            let each = |comm: Communicator| {
                let lines = lines(&values, 5000, (comm.rank(), comm.size()));
                slice.field(&comm, blocks, &lines)
            };
            run_threads(ranks, each).unwrap().swap_remove(0)
        };
        let one = means(1);
        for ranks in [2, 3, 7] {
            assert_eq!(means(ranks), one, "{ranks}");
        }
        let plain = blocks.means(&values[40 * 5000..2 * 40 * 5000]).unwrap();
        assert!(one.iter().zip(&plain).all(|(a, b)| (a / b - 1.0).abs() < 1e-6));
    }

    #[test]
    fn masked_numbers_may_be_beyond_f32_and_a_line_may_be_long() {
        let cells = 100_000;
        let mut values: Vec<f64> = (0..cells).map(f64::from).collect();
        values[50] = 1e300;
        let mut counts = vec![1i64; cells as usize];
        counts[50] = 0;
        counts[99_000..].fill(0);
        let shape = [cells as u64];
        let (data, mask) = (file("data", &shape, &values), file("mask", &shape, &counts));
        let grids = grids(&shape);
        let slice = Slice { mask: Some(&mask), ..slice(&grids, &data) };
        let drawn = slice.file(&data, slice.blocks(2));
        let signal = vec![(0, vec![1.0f32; cells as usize])];
        let bytes = slice.draw(&Communicator::solo(), &signal, Some(&signal), Path::new("picture.png"));
        [&data, &mask].iter().for_each(|path| std::fs::remove_file(path).unwrap());
        let drawn = drawn.unwrap();
        assert!(drawn.len() == 1000 && drawn[0] == (99.0 * 49.5 - 50.0 + 49.5) / 99.0 && drawn[989] == 98_949.5);
        assert!(drawn[990].is_nan());
        assert!(bytes.unwrap().unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn pictures_are_of_any_data() {
        let shapes: [&[u64]; 6] = [&[2], &[1, 2], &[5, 1], &[1, 1, 2], &[3, 2, 4], &[2000, 3]];
        for shape in shapes {
            let (grids, cells) = (grids(shape), shape.iter().product::<u64>() as usize);
            for value in [0.0, f64::NAN, 1e300] {
                let data = file("any", shape, &vec![value; cells]);
                for (lognormal, counts) in [(false, false), (true, true)] {
                    let slice = Slice { exposure: counts.then_some(&data), lognormal, counts, ..slice(&grids, &data) };
                    let columns = shape[shape.len() - 1] as usize;
                    let field = lines(&vec![value as f32; cells], columns, (0, 1));
                    for std in [None, Some(&field)] {
                        let bytes = slice.draw(&Communicator::solo(), &field, std, Path::new("picture.png"));
                        assert!(bytes.unwrap().unwrap().starts_with(b"\x89PNG"), "{shape:?}, {value}");
                    }
                }
                std::fs::remove_file(data).unwrap();
            }
        }
    }

    #[test]
    fn sums_of_rounded_values_are_exact() {
        for (greatest, count) in [(1.0, 2), (3.5, 1000), (f64::from(f32::MAX), 65), (1e-45, 4096)] {
            let unit = rounding(greatest, count).unwrap();
            assert!((greatest / unit).round() * count as f64 <= 2f64.powi(53), "{greatest}, {count}");
        }
        assert_eq!([rounding(1.0, 1), rounding(0.0, 8)], [None; 2]);
    }
}
