//! The points that searches are measured with: random, uniform or clustered.

use clap::{Args, ValueEnum};
use meshloom::gpu::Recorder;
use meshloom::points::{Cloud, Domain, ParticleError};

/// The distribution of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Uniform in the box
    Uniform,
    /// A halo with a cusp, whose outliers lie far beyond the box (Hernquist's profile)
    Hernquist,
}

impl Kind {
    /// Coordinates of `count` points in a box of side `extent`, different for every rank.
    pub fn positions(self, count: u64, extent: f64, rank: usize) -> Vec<f32> {
        let random = super::input::keys(3 * count, 53, rank);
        let unit = |bits: u64| bits as f64 / (1u64 << 53) as f64;
        let place = |u: &[u64]| match self {
            Kind::Uniform => [0, 1, 2].map(|axis| (extent * unit(u[axis])) as f32),
            Kind::Hernquist => {
                // The scale radius is 0.02 sides; the outermost 0.01 per cent of the mass is left
                // out.
                let root = (0.9999 * unit(u[0])).sqrt();
                let r = 0.02 * root / (1.0 - root);
                let (cos, phi) = (2.0 * unit(u[1]) - 1.0, std::f64::consts::TAU * unit(u[2]));
                let sin = (1.0 - cos * cos).sqrt();
                [sin * phi.cos(), sin * phi.sin(), cos].map(|along| (extent * (0.5 + r * along)) as f32)
            }
        };
        random.chunks_exact(3).flat_map(place).collect()
    }
}

#[derive(Args, Clone, Debug)]
pub struct PointSet {
    /// Points on each rank; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1000000",
        value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    pub size: Vec<u64>,
    /// The distribution of the points
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Uniform)]
    pub kind: Kind,
    /// Side of a periodic box [default: an open box of side 1]
    #[arg(long = "box", value_name = "L", value_parser = side)]
    pub side: Option<f32>,
}

fn side(text: &str) -> Result<f32, String> {
    let side = text.parse::<f32>().map_err(|_| format!("`{text}` is no length"))?;
    match Domain::new(&[f64::from(side); 3]) {
        Ok(domain) if domain.side(0).is_some() => Ok(side),
        Ok(_) => Err("a periodic box has a side above 0; leave the option out for an open one".into()),
        Err(error) => Err(error.to_string()),
    }
}

impl PointSet {
    /// Side of the box, periodic or not.
    pub fn extent(&self) -> f32 {
        self.side.unwrap_or(1.0)
    }

    /// Returns a description in words.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Uniform => "uniform points",
            Kind::Hernquist => "a Hernquist halo",
        };
        match self.side {
            Some(side) => format!("{kind} in a periodic box of side {side}"),
            None => format!("{kind} in an open box of side 1"),
        }
    }

    /// `count` points on the device, different for every rank. Blocks.
    pub fn cloud(&self, recorder: &mut Recorder, count: u64, rank: usize) -> Result<Cloud, ParticleError> {
        let positions = self.kind.positions(count, f64::from(self.extent()), rank);
        let domain = Domain::new(&[f64::from(self.side.unwrap_or(0.0)); 3])?;
        Cloud::from_host(recorder, &domain, &positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_above_0() {
        assert_eq!(side("2.5"), Ok(2.5));
        for wrong in ["0", "-1", "open", "inf", "nan", "1e31", ""] {
            assert!(side(wrong).is_err(), "{wrong}");
        }
    }
}
