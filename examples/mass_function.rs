//! The mass function of halos after Press & Schechter, Sheth & Tormen and Tinker et al. for the Planck 2018 cosmology,
//! at three redshifts. No device is needed.
//!
//! ```text
//! cargo run --release --features cli --example mass_function -- docs      # writes docs/mass-function.png
//!
//! dn/dlnM in (h/Mpc)^3
//!  z   M [Msun/h]      sigma   Press-Schechter   Sheth-Tormen     Tinker
//! ...
//! ```

use std::path::Path;

use meshloom::cosmology::{Cosmology, LinearPower, Multiplicity, TransferKind};
use meshloom::io::{LogAxis, LogPlot, PlotCurve, log_plot_png_bytes, write_whole};

const MODELS: [Multiplicity; 3] = [Multiplicity::PressSchechter, Multiplicity::ShethTormen, Multiplicity::TINKER_MEAN];
const NAMES: [&str; 3] = ["Press & Schechter", "Sheth & Tormen", "Tinker et al."];
const COLORS: [[u8; 3]; 3] = [[152, 156, 168], [180, 64, 84], [40, 90, 160]];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = Path::new(&std::env::args().nth(1).unwrap_or_else(|| ".".into())).join("mass-function.png");
    let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full)?;
    let masses: Vec<f64> = (0..=120).map(|i| 10f64.powf(10.0 + f64::from(i) / 20.0)).collect();

    println!("dn/dlnM in (h/Mpc)^3");
    println!(" z   M [Msun/h]      sigma   Press-Schechter   Sheth-Tormen     Tinker");
    let mut series = Vec::new();
    for z in 0..3 {
        let a = 1.0 / (1.0 + f64::from(z));
        let mut lines = [const { Vec::new() }; 3];
        for (i, &mass) in masses.iter().enumerate() {
            let variance = power.mass_variance(mass, a)?;
            for (line, model) in lines.iter_mut().zip(MODELS) {
                line.push((mass, model.dn_dlnm(&variance)?));
            }
            if i % 20 == 0 {
                let [press, sheth, tinker] = [0, 1, 2].map(|model: usize| lines[model][i].1);
                println!("{z:2}   {mass:10.1e}  {:9.4}   {press:15.3e}   {sheth:12.3e}  {tinker:9.3e}", variance.sigma);
            }
        }
        series.push(lines);
    }
    // Each model has its name once; the redshifts follow one another downwards.
    let curve = |z: usize, model: usize| PlotCurve {
        name: if z == 0 { NAMES[model] } else { "" },
        at: &series[z][model],
        color: COLORS[model],
        dashed: model == 0,
    };
    let curves: Vec<PlotCurve> =
        (0..3).flat_map(|model| (0..3).map(move |z| (z, model))).map(|(z, m)| curve(z, m)).collect();
    let plot = LogPlot {
        title: "Halo mass function, Planck 2018, z = 0, 1 and 2 (from above)",
        x: LogAxis { label: "M [M☉/h]", range: [1e10, 1e16] },
        y: LogAxis { label: "dn/dlnM [(h/Mpc)³]", range: [1e-9, 1.0] },
        curves: &curves,
        points: &[],
    };
    write_whole(&path, &log_plot_png_bytes(&plot, &path)?)?;
    println!("wrote {}", path.display());
    Ok(())
}
