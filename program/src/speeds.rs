//! Speeds of a machine, as options of forecasts.

use clap::Args;
use meshloom::fft::Speeds;

/// Options of forecasts alone; the defaults are those of a GPU in a cluster.
#[derive(Args)]
pub struct SpeedOptions {
    /// Speed of device memory, reading and writing, in GB/s
    #[arg(long, value_name = "GB/s", value_parser = positive, default_value_t = 2000.0)]
    memory_speed: f64,
    /// Speed of copies between device and host, each way, in GB/s
    #[arg(long, value_name = "GB/s", value_parser = positive, default_value_t = 25.0)]
    copy_speed: f64,
    /// Speed of the link that one rank has, each way, in GB/s
    #[arg(long, value_name = "GB/s", value_parser = positive, default_value_t = 12.5)]
    link_speed: f64,
    /// Latency of a message, in microseconds
    #[arg(long, value_name = "us", value_parser = positive, default_value_t = 5.0)]
    latency: f64,
}

impl SpeedOptions {
    pub fn speeds(&self) -> Speeds {
        Speeds {
            memory: self.memory_speed * 1e9,
            copy: self.copy_speed * 1e9,
            link: self.link_speed * 1e9,
            latency: self.latency * 1e-6,
        }
    }
}

/// Parses a speed.
pub fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| "write a number greater than 0".into())
}
