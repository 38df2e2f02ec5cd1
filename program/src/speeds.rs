//! Speeds of a machine, as options of forecasts.

use clap::Args;
use meshloom::fft::Speeds;

/// Options of forecasts alone; what is not given is that of a GPU in a cluster.
#[derive(Args)]
pub struct SpeedOptions {
    /// Speed of device memory, reading and writing, in GB/s [default: 2000]
    #[arg(long, value_name = "GB/s", value_parser = positive)]
    memory_speed: Option<f64>,
    /// Speed of copies between device and host, each way, in GB/s [default: 25]
    #[arg(long, value_name = "GB/s", value_parser = positive)]
    copy_speed: Option<f64>,
    /// Speed of the link that one rank has, each way, in GB/s [default: 12.5]
    #[arg(long, value_name = "GB/s", value_parser = positive)]
    link_speed: Option<f64>,
    /// Latency of a message, in microseconds [default: 5]
    #[arg(long, value_name = "us", value_parser = positive)]
    latency: Option<f64>,
}

impl SpeedOptions {
    pub fn speeds(&self) -> Speeds {
        Speeds {
            memory: self.memory_speed.unwrap_or(2000.0) * 1e9,
            copy: self.copy_speed.unwrap_or(25.0) * 1e9,
            link: self.link_speed.unwrap_or(12.5) * 1e9,
            latency: self.latency.unwrap_or(5.0) * 1e-6,
        }
    }

    /// The first that is given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--memory-speed", self.memory_speed),
            ("--copy-speed", self.copy_speed),
            ("--link-speed", self.link_speed),
            ("--latency", self.latency),
        ];
        given.into_iter().find_map(|(name, given)| given.map(|_| name))
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| "write a number greater than 0".into())
}
