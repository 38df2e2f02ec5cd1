//! The mass function of halos after Press & Schechter, Sheth & Tormen and Tinker et al. for the
//! Planck 2018 cosmology, at three redshifts. No device is needed.
//!
//! ```text
//! cargo run --release --example mass_function -- docs      # writes docs/mass-function.svg
//!
//! dn/dlnM in (h/Mpc)^3
//!  z   M [Msun/h]      sigma   Press-Schechter   Sheth-Tormen     Tinker
//! ...
//! ```

use std::path::Path;

use meshloom::cosmology::{Cosmology, LinearPower, Multiplicity, TransferKind};
use plotters::prelude::*;

const MODELS: [Multiplicity; 3] = [Multiplicity::PressSchechter, Multiplicity::ShethTormen, Multiplicity::TINKER_MEAN];
const NAMES: [&str; 3] = ["Press & Schechter", "Sheth & Tormen", "Tinker et al."];
const COLORS: [RGBColor; 3] = [RGBColor(152, 156, 168), RGBColor(180, 64, 84), RGBColor(40, 90, 160)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = Path::new(&std::env::args().nth(1).unwrap_or_else(|| ".".into())).join("mass-function.svg");
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
    draw(&path, &series)?;
    println!("wrote {}", path.display());
    Ok(())
}

/// Draws the lines of each model at each redshift.
fn draw(path: &Path, series: &[[Vec<(f64, f64)>; 3]]) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (860, 560)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area);
    let chart = chart.caption("Planck 2018, z = 0, 1 and 2 (from above)", ("sans-serif", 20));
    let chart = chart.margin(12).margin_right(24).x_label_area_size(48).y_label_area_size(76);
    let mut chart = chart.build_cartesian_2d((1e10..1e16).log_scale(), (1e-9..1.0).log_scale())?;
    let exponent = |value: &f64| format!("{value:.0e}");
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("M [Msun/h]").y_desc("dn/dlnM [(h/Mpc)^3]").light_line_style(TRANSPARENT);
    mesh.label_style(("sans-serif", 15)).axis_desc_style(("sans-serif", 17));
    mesh.x_label_formatter(&exponent).y_label_formatter(&exponent).draw()?;
    for (model, color) in COLORS.into_iter().enumerate() {
        for (z, lines) in series.iter().enumerate() {
            let inside = lines[model].iter().copied().filter(|(_, density)| *density >= 1e-9);
            let drawn = chart.draw_series(LineSeries::new(inside, color.stroke_width(2)))?;
            // Each model has its name once; the redshifts follow one another downwards.
            if z == 0 {
                drawn.label(NAMES[model]).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
            }
        }
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::LowerLeft).label_font(("sans-serif", 16));
    legend.background_style(WHITE).border_style(RGBColor(200, 200, 200)).draw()?;
    area.present()?;
    Ok(())
}
