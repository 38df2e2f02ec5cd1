//! Scales of colors: which color shows which value.

use meshloom::host_memory::{self, HostMemoryError};

use super::axis::{Axis, Scale};

/// Colors from the least to the greatest value, evenly spaced. Lightness rises throughout, so that
/// the picture also reads in gray and for color-blind eyes: night blue, indigo, plum, brick, amber,
/// cream.
const SEQUENTIAL: [[u8; 3]; 8] = [
    [3, 4, 18],
    [22, 18, 64],
    [62, 29, 102],
    [118, 42, 106],
    [180, 64, 84],
    [228, 110, 62],
    [248, 178, 92],
    [255, 246, 214],
];

/// Colors from the least to the greatest value, evenly spaced: deep water, sky, white, amber,
/// brick. Both halves darken equally outwards.
const DIVERGING: [[u8; 3]; 7] =
    [[8, 40, 84], [35, 105, 160], [135, 190, 215], [247, 247, 245], [243, 178, 118], [200, 85, 50], [96, 20, 24]];

/// Color of values that are not numbers.
pub const MISSING: [u8; 3] = [172, 174, 180];

/// Steps from the first color to the last: more could not be told apart, and files of many colors
/// are large.
const SHADES: f32 = 254.0;

/// Widest logarithmic scale.
const DECADES: f64 = 4.0;

/// A scale of colors for all values of one or several maps.
#[derive(Debug, Clone, PartialEq)]
pub struct ColorScale {
    colors: &'static [[u8; 3]],
    scale: Scale,
    /// Values of the first and the last color.
    range: [f64; 2],
    /// Whether there are values below the first and above the last.
    beyond: [bool; 2],
}

impl ColorScale {
    /// Creates a logarithmic scale from the 1st to the 99.8th percentile of the positive values of
    /// all `maps`, of at most four decades. Zero and negative values have the first color.
    ///
    /// # Errors
    /// [`HostMemoryError`] if host memory is short.
    pub fn logarithmic(maps: &[&[f32]]) -> Result<Self, HostMemoryError> {
        let values = || maps.iter().flat_map(|map| map.iter().copied());
        let mut positive: Vec<f32> = host_memory::reserve("a picture", values().count())?;
        positive.extend(values().filter(|value| *value > 0.0 && value.is_finite()));
        let range = if positive.is_empty() {
            [0.1, 1.0]
        } else {
            let [low, high] = [0.01, 0.998].map(|fraction| f64::from(percentile(&mut positive, fraction)));
            let low = low.max(high / 10f64.powf(DECADES));
            if (high / low).log10() < 1e-6 { [high / 2.0, high * 2.0] } else { [low, high] }
        };
        Ok(Self { colors: &SEQUENTIAL, scale: Scale::Logarithmic, range, beyond: [false; 2] }.with_ends(values()))
    }

    /// Creates a linear scale from the 0.2nd to the 99.8th percentile of the finite values of all
    /// `maps`, so that a few outliers do not take all colors.
    ///
    /// # Errors
    /// [`HostMemoryError`] if host memory is short.
    pub fn linear(maps: &[&[f32]]) -> Result<Self, HostMemoryError> {
        let values = || maps.iter().flat_map(|map| map.iter().copied());
        let mut finite: Vec<f32> = host_memory::reserve("a picture", values().count())?;
        finite.extend(values().filter(|value| value.is_finite()));
        let range = if finite.is_empty() {
            [0.0, 1.0]
        } else {
            let [low, high] = [0.002, 0.998].map(|fraction| f64::from(percentile(&mut finite, fraction)));
            // A constant map has the color in the middle.
            let width = if high == 0.0 { 1.0 } else { 0.1 * high.abs() };
            let is_constant = high - low <= 1e-6 * high.abs().max(low.abs());
            if is_constant { [low - width, high + width] } else { [low, high] }
        };
        Ok(Self { colors: &SEQUENTIAL, scale: Scale::Linear, range, beyond: [false; 2] }.with_ends(values()))
    }

    /// Creates a linear scale from `-limit` over white at zero to `limit` for values of `maps`. A
    /// limit that is not positive and finite counts as 1.
    #[must_use]
    pub fn symmetric<'a>(limit: f32, maps: impl IntoIterator<Item = &'a [f32]>) -> Self {
        let limit = if limit > 0.0 && limit.is_finite() { f64::from(limit) } else { 1.0 };
        let scale = Self { colors: &DIVERGING, scale: Scale::Linear, range: [-limit, limit], beyond: [false; 2] };
        scale.with_ends(maps.into_iter().flatten().copied())
    }

    /// Returns the scale that says whether there are values beyond its ends.
    fn with_ends(mut self, values: impl Iterator<Item = f32>) -> Self {
        let [low, high] = self.range;
        let slack = if self.scale == Scale::Linear { 1e-6 * (high - low) } else { 1e-6 * low };
        for value in values.map(f64::from) {
            self.beyond[0] |= value < low - slack;
            self.beyond[1] |= value > high + slack;
        }
        self
    }

    /// Returns the axis of the color bar.
    pub(super) fn axis<'a>(&self, label: &'a str) -> Axis<'a> {
        Axis { label, range: self.range, scale: self.scale }
    }

    /// Returns whether there are values below the first color and above the last.
    pub(super) fn beyond(&self) -> [bool; 2] {
        self.beyond
    }

    /// Returns the position of a value, from 0 to 1; NaN for values that are not numbers.
    pub(super) fn position(&self, value: f32) -> f32 {
        if value.is_nan() || (self.scale == Scale::Linear || value > 0.0) {
            (self.axis("").position(f64::from(value)) as f32).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Returns the color at a position, linear between the entries of the table.
    pub(super) fn color(&self, position: f32) -> [u8; 3] {
        if position.is_nan() {
            return MISSING;
        }
        let steps = self.colors.len() - 1;
        let along = (position.clamp(0.0, 1.0) * SHADES).round() / SHADES * steps as f32;
        let first = (along as usize).min(steps - 1);
        let weight = along - first as f32;
        [0, 1, 2].map(|i| {
            let (low, high) = (f32::from(self.colors[first][i]), f32::from(self.colors[first + 1][i]));
            (low + (high - low) * weight).round() as u8
        })
    }
}

/// Returns the value below which a fraction of the values lies. Reorders the values, which must not
/// be empty.
fn percentile(values: &mut [f32], fraction: f64) -> f32 {
    let at = ((values.len() - 1) as f64 * fraction).round() as usize;
    *values.select_nth_unstable_by(at, f32::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn light([red, green, blue]: [u8; 3]) -> f32 {
        0.2126 * f32::from(red) + 0.7152 * f32::from(green) + 0.0722 * f32::from(blue)
    }

    #[test]
    fn lightness_says_how_great_a_value_is() {
        let scale = ColorScale::linear(&[&[0.0, 1.0]]).unwrap();
        let steps = (0..100).map(|i| [i, i + 1].map(|i| light(scale.color(i as f32 / 100.0))));
        assert!(steps.into_iter().all(|[before, after]| before < after + 0.3));
        assert_eq!([scale.color(0.0), scale.color(1.0)], [SEQUENTIAL[0], SEQUENTIAL[7]]);
        let both = ColorScale::symmetric(2.0, [&[][..]]);
        assert_eq!(both.color(both.position(0.0)), DIVERGING[3]);
        for i in 0..50 {
            let [inner, outer] = [i, i + 1].map(|i| i as f32 / 25.0);
            for sign in [-1.0, 1.0] {
                let [inner, outer] = [inner, outer].map(|value| light(both.color(both.position(sign * value))));
                assert!(inner + 0.3 > outer);
            }
        }
    }

    #[test]
    fn scales_span_the_values_that_they_can_show() {
        let values: Vec<f32> = (0..=1000).map(|i| 10f32.powf(i as f32 / 250.0)).collect();
        let scale = ColorScale::logarithmic(&[&values]).unwrap();
        let [low, high] = scale.range;
        assert!((low - 10f64.powf(0.04)).abs() < 1e-3 && (high / 10f64.powf(3.992) - 1.0).abs() < 1e-3, "{scale:?}");
        assert_eq!(scale.beyond, [true, true]);
        assert_eq!([scale.position(-1.0), scale.position(0.0), scale.position(f32::INFINITY)], [0.0, 0.0, 1.0]);
        // At most four decades.
        let scale = ColorScale::logarithmic(&[&[1e-20, 1.0, 1.0, 1.0]]).unwrap();
        assert_eq!((scale.range, scale.beyond), ([1e-4, 1.0], [true, false]));
        let scale = ColorScale::linear(&[&[-3.0, f32::NAN], &[5.0]]).unwrap();
        assert_eq!((scale.range, scale.beyond), ([-3.0, 5.0], [false, false]));
        assert!(scale.position(f32::NAN).is_nan() && scale.color(f32::NAN) == MISSING);
        // A thousandth of outliers keeps its own end.
        let mut values: Vec<f32> = (0..2000).map(|i| i as f32 / 2000.0).collect();
        (values[7], values[70]) = (1e6, -1e6);
        let scale = ColorScale::linear(&[&values]).unwrap();
        assert!(scale.range[0] >= 0.0 && scale.range[1] < 1.0 && scale.beyond == [true, true], "{scale:?}");
        let scale = ColorScale::symmetric(1.0, [&[-2.0f32, 0.5][..]]);
        assert_eq!((scale.range, scale.beyond), ([-1.0, 1.0], [true, false]));
    }

    #[test]
    fn extreme_maps_have_scales() {
        let maps: [&[f32]; 8] = [
            &[],
            &[0.0],
            &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY],
            &[-1.0, -2.0],
            &[3.0, 3.0],
            &[1e-45, 3e-45],
            &[f32::MAX, f32::MIN],
            &[1e30, 1e30],
        ];
        for map in maps {
            let symmetric =
                [f32::NAN, 0.0, f32::INFINITY, f32::MIN_POSITIVE].map(|limit| ColorScale::symmetric(limit, [map]));
            let all = [ColorScale::logarithmic(&[map]).unwrap(), ColorScale::linear(&[map]).unwrap()];
            for scale in all.iter().chain(&symmetric) {
                assert!(scale.axis("").is_possible(), "{map:?}: {scale:?}");
                let shown = map.iter().map(|value| scale.position(*value));
                assert!(shown.zip(map).all(|(position, value)| value.is_nan() || (0.0..=1.0).contains(&position)));
            }
        }
        let constant = [ColorScale::logarithmic(&[&[3.0; 4]]), ColorScale::linear(&[&[3.0; 4]])].map(Result::unwrap);
        assert!(constant.iter().all(|scale| (scale.position(3.0) - 0.5).abs() < 1e-6 && scale.beyond == [false; 2]));
    }
}
