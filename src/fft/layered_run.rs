//! Runs two stages of a route layer by layer; see [`Layers`].

use super::plan::{Buffer, Layer, Layers, Placement, Stage, StagePart, restricted};
use super::run::{BufferView, Elements, Executor, Pieces, ReadyRoute, StageInput};
use crate::exchange::ExchangeError;
use crate::gpu::{DeviceElement, DeviceError};
use crate::grid::Box3;

/// Layers that are submitted together, so that the device does not wait for the host to record all
/// of them: 1.1 us for a dispatch and up to 1.9 us for a pass (record 0039).
const SUBMITTED: usize = 16;

/// A tile of the input of the first stage.
struct Tile<'a> {
    cells: Box3,
    elements: Elements<'a>,
}

/// A piece of the output of the second stage.
struct Piece<'a> {
    cells: Box3,
    view: BufferView<'a>,
}

impl<'a, C: DeviceElement> Executor<'_, 'a, C> {
    /// Runs both stages of `layers`, which write `buffers`, and begins the exchange after them.
    /// Returns the input of the next stage.
    ///
    /// Waits for all of the input first. Needs arrays of two layers where the second stage does not
    /// work in place.
    pub(super) fn layers(
        &mut self,
        layers: &Layers,
        buffers: [Buffer; 2],
        mut input: StageInput<'a>,
    ) -> Result<StageInput<'a>, ExchangeError> {
        let ReadyRoute { route, .. } = self.run.ready;
        let [first, second] = [layers.first, layers.first + 1];
        // The memory of the pieces that were sent is free then.
        input.wait_for(usize::MAX, self.recorder)?;
        let (between, views) = self.arrays(layers, buffers, &input)?;
        let tiles = self.tiles(first, input)?;
        let is_source = tiles.iter().any(|tile| matches!(tile.elements, Elements::Source(_)));
        let pieces: Vec<Piece<'a>> =
            route.pieces(second).into_iter().zip(views).map(|(cells, view)| Piece { cells, view }).collect();
        for (number, layer) in layers.all().enumerate() {
            self.layer((layers, &layer), &tiles, &between[number % between.len()], &pieces)?;
            if number % SUBMITTED == SUBMITTED - 1 {
                self.recorder.submit_part()?;
            }
        }
        drop(tiles);
        // The source is dropped: its arrays return to the pool.
        if is_source {
            self.recorder.submit()?;
        }
        let Some(transpose) = route.between.get(second).and_then(Option::as_ref) else {
            return Ok(StageInput::Whole(pieces.into_iter().next().map(|piece| Elements::Array(piece.view))));
        };
        let mut sent = Pieces::default();
        for (number, piece) in pieces.iter().enumerate() {
            self.send((&route.stages[second], Some(transpose)), number, &piece.view, &mut sent)?;
        }
        // The exchange has submitted what was recorded before it.
        self.scratch.clear();
        Ok(StageInput::Pieces(sent))
    }

    /// Returns the arrays between the stages, which layers take in turn, and those of the output.
    fn arrays(
        &self,
        layers: &Layers,
        buffers: [Buffer; 2],
        input: &StageInput<'a>,
    ) -> Result<(Vec<BufferView<'a>>, Vec<BufferView<'a>>), ExchangeError> {
        let [first, second] = [layers.first, layers.first + 1];
        if buffers[0] != Buffer::Layers {
            let between = self.outputs(first, buffers[0], input)?;
            let output =
                if buffers[1] == Buffer::InPlace { between.clone() } else { self.outputs(second, buffers[1], input)? };
            return Ok((between, output));
        }
        let stage = &self.run.ready.route.stages[first];
        let array = || -> Result<BufferView<'a>, DeviceError> {
            let array = self.recorder.gpu().array::<C>("fft::layer", layers.array_len(stage))?;
            let place = Placement::whole(layers.array(stage).0);
            Ok(BufferView { array: array.raw().clone(), place })
        };
        Ok((vec![array()?, array()?], self.outputs(second, buffers[1], input)?))
    }

    /// Waits for all tiles of stage `i`.
    fn tiles(&mut self, i: usize, mut input: StageInput<'a>) -> Result<Vec<Tile<'a>>, ExchangeError> {
        let mut tiles = Vec::new();
        for cells in self.run.ready.route.tiles(i) {
            let Some(elements) = input.next(self.recorder)? else { continue };
            tiles.push(Tile { cells, elements });
        }
        Ok(tiles)
    }

    /// Records both stages of one layer.
    fn layer(
        &mut self,
        (layers, layer): (&Layers, &Layer),
        tiles: &[Tile<'a>],
        between: &BufferView<'a>,
        pieces: &[Piece<'a>],
    ) -> Result<(), DeviceError> {
        let ReadyRoute { route, passes, .. } = self.run.ready;
        let [first, second] = [layers.first, layers.first + 1].map(|i| (&route.stages[i], &passes[i][0]));
        let part = |stage: &Stage, cells: &Box3| StagePart {
            cells: restricted(cells, 0, &layer.planes),
            fields: layers.fields(stage, layer.group),
        };
        let between = match between.place {
            Placement::Array { mut extent, .. } if !layers.in_place => {
                let fields = layers.array(first.0).1;
                extent[0] = layer.planes.end - layer.planes.start;
                let (origin, first) = ([layer.planes.start, 0, 0], layer.group * fields);
                BufferView { place: Placement::Array { origin, extent, first }, ..between.clone() }
            }
            _ => between.clone(),
        };
        for tile in tiles {
            self.record(first, part(first.0, &tile.cells), &tile.elements, &between)?;
        }
        let written = Elements::Array(between);
        pieces.iter().try_for_each(|piece| self.record(second, part(second.0, &piece.cells), &written, &piece.view))
    }
}
