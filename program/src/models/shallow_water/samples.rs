//! Which cells are in pictures.

use super::ShallowWaterError;
use super::plan::Part;
use meshloom::Rank;
use meshloom::gpu::Array;

/// Longest side of a picture.
const LONGEST_SIDE: u64 = 480;

/// The cells of this rank that are in pictures: those in the middle of blocks, so large that no
/// side has too many.
pub(super) struct Samples {
    /// Their places in the array of the state.
    pub index: Array<u32>,
    /// Their numbers in the picture, whose first row is the northern one.
    pub pixels: Vec<u64>,
    /// Columns and rows of the picture.
    pub size: [u64; 2],
}

impl Samples {
    /// Chooses them. Submits an upload.
    pub fn new(rank: &mut Rank, part: &Part) -> Result<Self, ShallowWaterError> {
        let [_, _, nx, ny] = part.params.first.map(u64::from);
        let stride = nx.max(ny).div_ceil(LONGEST_SIDE);
        let size = [nx, ny].map(|n| n.div_ceil(stride));
        let (own, strides, offset) = (&part.layout().own, part.layout().strides(), part.layout().offset());
        // The last block may be cut.
        let chosen = |n: u64| (0..n.div_ceil(stride)).map(move |k| (k, (k * stride + stride / 2).min(n - 1)));
        let (mut index, mut pixels) = (Vec::new(), Vec::new());
        for (row, y) in chosen(ny).filter(|(_, y)| own[0].contains(y)) {
            for (column, x) in chosen(nx).filter(|(_, x)| own[1].contains(x)) {
                index.push((offset + (y - own[0].start) * strides[0] + x - own[1].start) as u32);
                pixels.push((size[1] - 1 - row) * size[0] + column);
            }
        }
        let array = rank.gpu.array("shallow_water::samples", index.len() as u64)?;
        rank.recorder.upload(&array, 0, &index)?;
        Ok(Samples { index: array, pixels, size })
    }
}
