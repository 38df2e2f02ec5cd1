//! The shape of a particle on a mesh.

/// Window function: the distribution of a particle's mass over mesh nodes (Hockney & Eastwood,
/// *Computer Simulation Using Particles*, 1981). The window of order `p` is the `p`-fold
/// convolution of one cell, and its Fourier transform is `prod_i sinc(w_i / 2)^p` with `w = k h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Window {
    /// Cloud in cell: order 2, two nodes per axis. It has a kink at the nodes: forces on a lattice
    /// of particles that has hardly left them (a large box, an early start) are off by some 10 %,
    /// which [`Tsc`](Self::Tsc) is not (`docs/accuracy.md`).
    #[default]
    Cic,
    /// Triangular shaped cloud: order 3, three nodes per axis.
    Tsc,
    /// Piecewise cubic spline: order 4, four nodes per axis.
    Pcs,
}

impl Window {
    /// All of them.
    pub const ALL: [Window; 3] = [Window::Cic, Window::Tsc, Window::Pcs];

    /// Returns the order `p`, which is also the number of nodes along an axis.
    #[must_use]
    pub const fn order(self) -> u32 {
        match self {
            Window::Cic => 2,
            Window::Tsc => 3,
            Window::Pcs => 4,
        }
    }

    /// Returns the first node along an axis and the weights of the [`order`](Self::order) nodes
    /// from there on, for a particle at `x` cells. The host's twin of `shaders/mesh/window.wgsl`.
    #[must_use]
    pub fn nodes(self, x: f64) -> (i64, [f64; 4]) {
        match self {
            Window::Cic => {
                let f = x - x.floor();
                (x.floor() as i64, [1.0 - f, f, 0.0, 0.0])
            }
            Window::Tsc => {
                let node = (x + 0.5).floor();
                let d = x - node;
                (node as i64 - 1, [0.5 * (0.5 - d).powi(2), 0.75 - d * d, 0.5 * (0.5 + d).powi(2), 0.0])
            }
            Window::Pcs => {
                let f = x - x.floor();
                let (inner, outer) = (|d: f64| (4.0 - 6.0 * d * d + 3.0 * d.powi(3)) / 6.0, |d: f64| d.powi(3) / 6.0);
                (x.floor() as i64 - 1, [outer(1.0 - f), inner(f), inner(1.0 - f), outer(f)])
            }
        }
    }

    /// Returns the transform of the window along one axis at `w = k h`.
    #[must_use]
    pub fn transform(self, w: f64) -> f64 {
        let sinc = if w == 0.0 { 1.0 } else { (w / 2.0).sin() / (w / 2.0) };
        sinc.powi(self.order() as i32)
    }
}

impl std::str::FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Window::ALL.into_iter().find(|window| window.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no window; there are cic, tsc and pcs"))
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Window::Cic => "cic",
            Window::Tsc => "tsc",
            Window::Pcs => "pcs",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_add_up_and_keep_the_center() {
        for window in Window::ALL {
            for step in -40..40 {
                let x = f64::from(step) * 0.1373;
                let (first, weights) = window.nodes(x);
                let total: f64 = weights.iter().sum();
                let center: f64 = weights.iter().enumerate().map(|(n, w)| w * (first as f64 + n as f64)).sum();
                assert!((total - 1.0).abs() < 1e-14, "{window} at {x}: {weights:?}");
                assert!((center - x).abs() < 1e-13, "{window} at {x}: center {center}");
                assert!(weights.iter().all(|w| *w >= 0.0), "{window} at {x}: {weights:?}");
            }
        }
    }
}
