//! The prior of a correlated field.

/// The prior of a correlated field: its mean, and its variation along axes.
///
/// Hyper-parameters are given by their mean and standard deviation; one with deviation 0 is fixed
/// and has no latent value. The power spectrum is the product over the groups of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldPrior {
    /// Branch of the latent values: `sky` gives `sky/xi`; may be empty.
    pub name: String,
    /// Mean of the field.
    pub offset_mean: f64,
    /// Standard deviation of the mean of the field, a log-normal number.
    pub offset_std: [f64; 2],
    /// Variation along each group of axes.
    pub axes: Vec<AxesPrior>,
}

/// The variation of a field along a group of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct AxesPrior {
    /// Branch of the latent values; may be empty for one group.
    pub name: String,
    /// Which axes of the grid form the group. An axis of one cell may be in any group.
    pub axes: [bool; 3],
    /// Amplitude by wavenumber.
    pub amplitude: AmplitudePrior,
}

/// The quantity that an integrated Wiener process describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorSpectrum {
    /// The logarithm of the power: slopes belong to the power spectrum.
    Power,
    /// The logarithm of the amplitude, the square root of the power.
    Amplitude,
}

/// The scale of a Matérn amplitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaternScale {
    /// `scale` is the standard deviation of the field.
    Deviation,
    /// `scale` is the amplitude at wavenumber 0, in units of the square root of the volume.
    Density,
}

/// The amplitude of a field by wavenumber.
#[derive(Clone, Debug, PartialEq)]
pub enum AmplitudePrior {
    /// A power law, with deviations that follow an integrated Wiener process in the logarithm of
    /// the wavenumber.
    NonParametric {
        /// The quantity that follows the power law.
        of: PriorSpectrum,
        /// Standard deviation of the field, log-normal.
        fluctuations: [f64; 2],
        /// Slope of the power law, normal.
        slope: [f64; 2],
        /// Size of the deviations per square root of the logarithm, log-normal; `None` for a power
        /// law.
        flexibility: Option<[f64; 2]>,
        /// Roughness of the deviations, log-normal; `None` for smooth ones.
        asperity: Option<[f64; 2]>,
    },
    /// `scale (1 + (k / cutoff_wavenumber)^2)^(slope / 4)`: the square root of a Matérn power
    /// spectrum.
    Matern {
        /// The meaning of `scale`.
        of: MaternScale,
        /// The scale, log-normal.
        scale: [f64; 2],
        /// Wavenumber (2 pi over a length) at which the spectrum bends, log-normal; the latent
        /// value is `cutoff`.
        cutoff_wavenumber: [f64; 2],
        /// Slope of the power spectrum at large wavenumbers, normal.
        slope: [f64; 2],
    },
}

impl AmplitudePrior {
    /// Returns the hyper-parameters in the order of their names, and whether each is log-normal.
    /// `steps` tells whether the grid has enough wavenumbers for deviations from a power law.
    pub(super) fn hyper(&self, steps: bool) -> Vec<(&'static str, [f64; 2], bool)> {
        match self {
            AmplitudePrior::NonParametric { fluctuations, slope, flexibility, asperity, .. } => {
                let deviates = flexibility.filter(|_| steps);
                let mut all = Vec::new();
                all.extend(asperity.filter(|_| deviates.is_some()).map(|value| ("asperity", value, true)));
                all.extend(deviates.map(|value| ("flexibility", value, true)));
                all.extend([("fluctuations", *fluctuations, true), ("slope", *slope, false)]);
                all
            }
            AmplitudePrior::Matern { scale, cutoff_wavenumber, slope, .. } => {
                vec![("cutoff", *cutoff_wavenumber, true), ("scale", *scale, true), ("slope", *slope, false)]
            }
        }
    }
}

/// Returns mean and standard deviation of the normal number behind a hyper-parameter, or behind its
/// logarithm; `None` for invalid ones.
pub(super) fn normal_of([mean, std]: [f64; 2], log: bool) -> Option<[f64; 2]> {
    let sound = mean.is_finite() && std.is_finite() && std >= 0.0;
    if !log {
        return sound.then_some([mean, std]);
    }
    let variance = (std / mean).powi(2).ln_1p();
    (sound && mean > 0.0).then(|| [mean.ln() - variance / 2.0, variance.sqrt()])
}
