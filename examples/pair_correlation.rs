//! The correlation function xi(r) = DD / RR - 1 of points in a periodic box, over any number of
//! ranks: of a random cloud, whose xi is 0, and of clusters (a Thomas process), whose xi is known.
//! RR is the volume of a shell.
//!
//! ```text
//! cargo run --release --example pair_correlation -- docs       # writes docs/pair-correlation.svg
//! cargo run --release --example pair_correlation -- docs 3     # three ranks as threads: the same counts
//!
//!      r   clusters   expected     random
//!   0.54     5.3124     5.2191     0.0310
//! ...
//! ```

use std::f64::consts::PI;
use std::path::Path;

use meshloom::gpu::Options;
use meshloom::grid::split;
use meshloom::points::{Bins, Cloud, Domain, Histogram, Predicate, Targets};
use meshloom::{Error, Launch, launch};
use plotters::prelude::*;

const SIDE: f64 = 100.0;
const POINTS: u64 = 40_000;
const CLUSTERS: u64 = 4_000;
/// Scatter of points about the center of their cluster along each axis.
const SIGMA: f64 = 1.0;

/// Returns a number in (0, 1] that depends on nothing but its index (splitmix64).
fn random(index: u64) -> f64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((z ^ (z >> 31)) >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Coordinate `axis` of point `i`, at random or about one of the centers.
fn coordinate(clustered: bool, i: u64, axis: u64) -> f64 {
    let at = |stream: u64, i: u64| random((stream << 48) | (3 * i + axis));
    if !clustered {
        return SIDE * at(0, i);
    }
    let center = (random((4 << 48) | i) * CLUSTERS as f64) as u64;
    SIDE * at(1, center) + SIGMA * (-2.0 * at(2, i).ln()).sqrt() * (2.0 * PI * at(3, i)).cos()
}

/// Returns what the correlation of the clusters is on average.
fn expected(r: f64) -> f64 {
    let density = CLUSTERS as f64 / SIDE.powi(3);
    (-r * r / (4.0 * SIGMA * SIGMA)).exp() / (4.0 * PI * SIGMA * SIGMA).powf(1.5) / density
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let path = Path::new(&words.next().unwrap_or_else(|| ".".into())).join("pair-correlation.svg");
    let ranks = words.next().map_or(Ok(1), |word| word.parse())?;
    let edges: Vec<f64> = (0..=20).map(|i| 0.5 * 20f64.powf(f64::from(i) / 20.0)).collect();
    let bins = Bins::new(&edges)?;

    let counts = launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        let own = split(POINTS, rank.comm.size() as u64, rank.index() as u64);
        let mut pairs = |clustered: bool| {
            let points: Vec<f64> =
                own.clone().flat_map(|i| [0, 1, 2].map(|axis| coordinate(clustered, i, axis))).collect();
            let cloud = Cloud::from_host_f64(&mut rank.recorder, &Domain::new(&[SIDE; 3])?, &points)?;
            let search = rank.search(&cloud.into())?;
            let all = Predicate::within(f32::INFINITY).exclude_self();
            Ok::<_, Error>(rank.query(&search, Targets::Own, all, Histogram(&bins))?)
        };
        Ok::<_, Error>([pairs(true)?, pairs(false)?])
    })?;

    // Ordered pairs of a random cloud: each point sees the density of the others in the shell.
    let shell = |i: usize| 4.0 / 3.0 * PI * (edges[i + 1].powi(3) - edges[i].powi(3)) / SIDE.powi(3);
    let expectation = |i: usize| POINTS as f64 * (POINTS - 1) as f64 * shell(i);
    let middle = |i: usize| (edges[i] * edges[i + 1]).sqrt();
    let [clusters, noise] = counts[0].clone().map(|pairs| {
        let xi = |(i, &count): (usize, &u64)| (middle(i), count as f64 / expectation(i) - 1.0);
        pairs.iter().enumerate().map(xi).collect::<Vec<_>>()
    });
    println!("     r   clusters   expected     random");
    for ((r, xi), (_, none)) in clusters.iter().zip(&noise) {
        println!("{r:6.2}  {xi:9.4}  {:9.4}  {none:9.4}", expected(*r));
    }
    draw(&path, &clusters, &noise)?;
    println!("wrote {}", path.display());
    Ok(())
}

fn draw(path: &Path, clusters: &[(f64, f64)], noise: &[(f64, f64)]) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (860, 520)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area);
    let chart = chart.caption("Correlation function of points", ("sans-serif", 20));
    let chart = chart.margin(12).margin_right(24).x_label_area_size(48).y_label_area_size(64);
    let mut chart = chart.build_cartesian_2d((0.5..10.0).log_scale(), -1.0..7.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("separation r [scatter of the clusters]")
        .y_desc("correlation \u{3be}(r)")
        .light_line_style(TRANSPARENT);
    mesh.label_style(("sans-serif", 15)).axis_desc_style(("sans-serif", 17));
    // Labels at 1, 2, 5 and 10: those between would touch.
    let label = |r: &f64| if [1.0, 2.0, 5.0, 10.0].contains(r) { format!("{r}") } else { String::new() };
    mesh.x_label_formatter(&label).draw()?;
    let curve = (0..=200).map(|i| 0.5 * 20f64.powf(f64::from(i) / 200.0)).map(|r| (r, expected(r)));
    let line = |color: RGBColor| move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color);
    chart.draw_series(LineSeries::new(curve, &BLACK))?.label("Thomas process, exact").legend(line(BLACK));
    for (name, series, color) in
        [("clusters", clusters, RGBColor(180, 64, 84)), ("random", noise, RGBColor(40, 90, 160))]
    {
        let dots = series.iter().map(|&at| Circle::new(at, 3, color.filled()));
        let dot = move |(x, y)| Circle::new((x + 9, y), 3, color.filled());
        chart.draw_series(dots)?.label(name).legend(dot);
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperRight).label_font(("sans-serif", 16));
    legend.background_style(WHITE).border_style(RGBColor(200, 200, 200)).draw()?;
    area.present()?;
    Ok(())
}
