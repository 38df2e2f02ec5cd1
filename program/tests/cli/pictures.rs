//! Pictures that commands write: maps with axes and color bars, in place, and errors.

use std::fs;
use std::path::{Path, PathBuf};

use super::cli::{Call, Scratch};
use meshloom::io::{NpyElement, NpyFile, NpyWriter, token};

/// The first frame of a PNG file.
pub struct Picture {
    pub width: usize,
    pub height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    pub fn read(path: &Path) -> Self {
        let file = std::io::Cursor::new(fs::read(path).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let pixels = bytes.as_chunks::<3>().0.to_vec();
        Self { width: info.width as usize, height: info.height as usize, pixels }
    }

    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        self.pixels[y * self.width + x]
    }

    /// Returns the pieces of a row or a column between white pixels, as first pixel and length.
    fn pieces(line: impl Iterator<Item = [u8; 3]>) -> Vec<[usize; 2]> {
        let mut found: Vec<[usize; 2]> = Vec::new();
        for (at, _) in line.enumerate().filter(|(_, color)| *color != [255; 3]) {
            match found.last_mut() {
                Some([first, length]) if *first + *length == at => *length += 1,
                _ => found.push([at, 1]),
            }
        }
        found
    }

    /// Returns the maps from left to right: left, top, width and height in pixels.
    pub fn maps(&self) -> Vec<[usize; 4]> {
        let across = Self::pieces((0..self.width).map(|x| self.at(x, self.height / 2)));
        let maps = across.into_iter().filter(|[_, width]| *width >= 100).map(|[left, width]| {
            let up = Self::pieces((0..self.height).map(|y| self.at(left + width / 2, y)));
            let [top, height] = up.into_iter().max_by_key(|[_, height]| *height).unwrap();
            [left, top, width, height]
        });
        maps.collect()
    }

    /// Returns the number of color bars.
    pub fn bars(&self) -> usize {
        let across = Self::pieces((0..self.width).map(|x| self.at(x, self.height / 2)));
        // A tick may stand at this height.
        across.iter().filter(|[_, width]| (28..50).contains(width)).count()
    }

    /// Returns `true` if there is text in a part of the picture.
    fn has_text(&self, columns: std::ops::Range<usize>, rows: std::ops::Range<usize>) -> bool {
        rows.flat_map(|y| columns.clone().map(move |x| (x, y))).any(|(x, y)| self.at(x, y).iter().all(|c| *c < 90))
    }

    /// Checks the number of maps, and that each has its numbers below and to the left, and bars.
    #[track_caller]
    pub fn check(&self, maps: usize, bars: usize) {
        let found = self.maps();
        assert_eq!((found.len(), self.bars()), (maps, bars));
        for [left, top, width, height] in found {
            assert!(self.has_text(left..left + width, top + height + 10..top + height + 45), "numbers below");
            assert!(self.has_text(left..left + width, top + height + 50..self.height), "a name below");
            assert!(self.has_text(left - 40..left - 10, top..top + height), "numbers to the left");
            assert!(self.has_text(left..left + width, 0..top - 5), "a title");
        }
    }
}

fn write<T: NpyElement>(scratch: &Scratch, name: &str, shape: &[u64], values: &[T]) -> String {
    let file = NpyWriter::create(scratch.join(name), shape, &token()).unwrap();
    file.write(0, values).unwrap();
    file.finish().unwrap();
    scratch.word(name)
}

#[test]
fn the_density_of_a_run_lies_where_the_axes_say() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let size = ["--particles", "16", "--mesh", "32", "--linking-length", "0", "--save-density"];
    Call::simulate(&out, &size).succeeds();
    let picture = Picture::read(&out.join("density.png"));
    picture.check(1, 1);
    let density = NpyFile::open(out.join("density.npy")).unwrap().read_f64(0..32 * 32 * 32).unwrap();
    let columns: Vec<f64> = density.chunks(32).map(|column| column.iter().sum()).collect();
    let [left, top, width, height] = picture.maps()[0];
    let light = |column: usize| {
        let (x, y) = (column / 32, column % 32);
        let at = |n: usize, pixels: usize| (2 * n + 1) * pixels / 64;
        picture.at(left + at(x, width), top + height - at(y, height)).iter().map(|&c| u32::from(c)).sum::<u32>()
    };
    // Columns in the order of their density are in the order of their lightness.
    let mut order: Vec<usize> = (0..32 * 32).collect();
    order.sort_by(|&a, &b| columns[a].total_cmp(&columns[b]));
    let later = order.iter().zip(&order[100..]);
    let wrong = later.filter(|(low, high)| light(**low) >= light(**high) + 20).count();
    assert!(wrong < 10, "{wrong} of 924 pairs");
    assert!(light(order[0]) < 150 && light(order[1023]) > 600);
}

#[test]
fn an_inference_draws_as_many_maps_as_it_has_or_curves() {
    let scratch = Scratch::new();
    let out = scratch.word("out");
    let infer = |data: &str, words: &str| {
        let fixed = ["infer", "--data", data, "-o", &out, "--periodic", "--iterations", "1"].into_iter();
        let outcome = Call::new(&fixed.chain(words.split_whitespace()).collect::<Vec<_>>()).run();
        assert!(outcome.status.success(), "{outcome:#?}");
        Picture::read(&PathBuf::from(&out).join("picture.png"))
    };
    let counts: Vec<i64> = (0..60).map(|i| i % 5).collect();
    let plane = write(&scratch, "plane.npy", &[6, 10], &counts);
    infer(&plane, "--samples 1").check(3, 3);
    infer(&plane, "--samples 0").check(2, 2);
    let cube = write(&scratch, "cube.npy", &[3, 4, 5], &counts);
    infer(&cube, "--samples 1").check(3, 3);
    let line = write(&scratch, "line.npy", &[60], &counts);
    let curve = infer(&line, "--samples 1");
    assert_eq!((curve.width, curve.height, curve.bars()), (1200, 840, 0));
    // Constant data, and reals of which some are masked and no numbers.
    infer(&write(&scratch, "zeros.npy", &[4, 4], &[0i64; 16]), "--samples 0").check(2, 2);
    let mut values = [-1.0; 16];
    values[5] = f64::NAN;
    let mask = write(&scratch, "mask.npy", &[4, 4], &values.map(|value| i64::from(value.is_finite())));
    let reals = write(&scratch, "reals.npy", &[4, 4], &values);
    infer(&reals, &format!("--noise 0.5 --samples 1 --mask {mask}")).check(3, 3);
}

#[test]
fn the_flow_of_water_has_axes_in_every_frame() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let words = ["shallow-water", "--cells", "24x12", "--steps", "4", "--every", "2", "--out", out.to_str().unwrap()];
    Call::new(&words).succeeds();
    let still = Picture::read(&out.join("height.png"));
    still.check(1, 1);
    let moving = Picture::read(&out.join("animation.png"));
    moving.check(1, 1);
    assert_eq!((still.width, still.height), (moving.width, moving.height));
    // High water in the south.
    let [left, top, width, height] = still.maps()[0];
    let red = |y: usize| i32::from(still.at(left + width / 2, y)[0]) - i32::from(still.at(left + width / 2, y)[2]);
    assert!(red(top + 20) < 0 && red(top + height - 20) > 0);
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    fs::create_dir_all(out.join("density.png")).unwrap();
    let run = Call::simulate(&out, &["--linking-length", "0"]);
    run.run().is_error("a directory in its place", 1, &["density.png"]);
    assert!(!out.join("run.json").exists());
}
