//! The clock of a run that can be resumed: when it writes a checkpoint, and when it stops.
//!
//! Rank 0's clock decides for all ranks, in the exchange that spreads signals.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom_program::interrupt::StopRequests;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::failure::Failure;
use crate::terminal;

/// Units of time with their seconds, largest first.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
/// Longest span: 100 years.
const MOST_SECONDS: u64 = 100 * 366 * 86_400;
/// Speed that the first checkpoint is assumed to be written at, in bytes per second.
const ASSUMED_SPEED: f64 = 1e9;
/// Longest part of the time before a limit that is left unused.
const MARGIN: Duration = Duration::from_secs(30);
/// Signal whose exit status a run has that stops before its limit.
const SIGTERM: u8 = 15;

/// A span of wall time: `11h30min`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(Duration);

impl Span {
    /// Returns its length in seconds.
    pub fn seconds(self) -> u64 {
        self.0.as_secs()
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a span of time: expected numbers with d, h, min or s, such as 11h30min, or seconds"
            )
        };
        let (mut rest, mut total, mut last) = (text.trim(), 0_u64, u64::MAX);
        if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()) {
            // Numbers that are too large are refused by their size.
            total = rest.parse().unwrap_or(u64::MAX);
            rest = "";
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = &rest[digits..];
            let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let unit = UNITS.iter().find(|(name, _)| *name == &rest[..letters]).ok_or_else(wrong)?;
            rest = &rest[letters..];
            if unit.1 >= last {
                return Err(wrong());
            }
            last = unit.1;
            total = number.checked_mul(unit.1).and_then(|seconds| total.checked_add(seconds)).ok_or_else(wrong)?;
        }
        match total {
            1..=MOST_SECONDS => Ok(Span(Duration::from_secs(total))),
            _ => Err(format!("`{text}` is {total} seconds: expected from 1 second to 100 years")),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.seconds();
        for (name, seconds) in UNITS {
            if rest >= seconds {
                write!(f, "{}{name}", rest / seconds)?;
                rest %= seconds;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a span of time such as \"11h30min\", or a whole number of seconds")]
        enum Written {
            Seconds(u64),
            Text(String),
        }
        let text = match Written::deserialize(from)? {
            Written::Seconds(seconds) => seconds.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map_err(de::Error::custom)
    }
}

/// The limit of a run that can be resumed.
#[derive(Args, Deserialize, Serialize, Clone, Copy, Debug, Default)]
#[serde(default)]
pub struct LimitOptions {
    /// Stop with a state for --resume before this much wall time has passed: 11h30min, or seconds.
    /// The end of a Slurm or PBS job counts, too
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// The interval of checkpoints.
#[derive(Args, Deserialize, Serialize, Clone, Copy, Debug, Default)]
#[serde(default)]
pub struct CheckpointOptions {
    /// Write a checkpoint after a step whenever this much wall time has passed since the last
    /// state: 30min, or seconds
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<Span>,
    #[command(flatten)]
    #[serde(flatten)]
    pub limit: LimitOptions,
}

/// The work of a run between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    Checkpoint,
    Stop(Stop),
}

/// The reason why a run stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    signal: u8,
    why: &'static str,
}

impl Stop {
    /// Returns the failure of a run that stops after `place`; its state is on disk.
    pub fn failure(self, place: impl fmt::Display) -> Failure {
        let message = format!("stopped by {} after {place}; --resume goes on there", self.why);
        Failure::Stopped { signal: self.signal, message }
    }
}

/// Numbers that ranks exchange: a due state by rank 0's clock.
const CHECKPOINT: u64 = 1;
const LIMIT: u64 = 2;

/// The clock of a run. While it exists, the first SIGTERM or SIGUSR1 is a request to stop
/// ([`StopRequests`]).
pub struct RunClock {
    requests: StopRequests,
    times: Times,
}

/// Measurements of the clock, apart from the present.
#[derive(Debug)]
struct Times {
    /// Time of the end, and the part of the time before it that is left unused.
    limit: Option<(Instant, Duration)>,
    every: Option<Duration>,
    /// The end of the last look, and of the last write of a state.
    looked: Instant,
    saved: Instant,
    /// Longest recent time between two looks, without writes of states.
    work: Duration,
    /// Longest write of a state.
    write: Duration,
}

impl RunClock {
    /// Starts the clock of a run whose state has `bytes` bytes on all ranks together.
    pub fn new(comm: &Communicator, options: CheckpointOptions, bytes: u64) -> Self {
        let now = Instant::now();
        let own = options.limit.time_limit.map(|span| span.0);
        // Rank 0 warns for all.
        let variable = |name: &str| std::env::var(name).ok().filter(|_| comm.rank() == 0);
        let limit = own.into_iter().chain(batch_limit(variable, SystemTime::now())).min();
        let times = Times {
            limit: limit.and_then(|limit| Some((now.checked_add(limit)?, MARGIN.min(limit / 20)))),
            every: options.checkpoint_every.map(|span| span.0),
            looked: now,
            saved: now,
            work: Duration::ZERO,
            write: Duration::from_secs_f64(bytes as f64 / ASSUMED_SPEED),
        };
        RunClock { requests: StopRequests::new(), times }
    }

    /// Starts the clock of a fit, which saves its state by itself.
    pub fn of_fit(comm: &Communicator, limit: LimitOptions) -> Self {
        Self::new(comm, CheckpointOptions { checkpoint_every: None, limit }, 0)
    }

    /// Returns `true` if the run has to look at times, so that a step must have ended on the device
    /// before [`look`](Self::look).
    pub fn is_timed(&self) -> bool {
        self.times.limit.is_some() || self.times.every.is_some()
    }

    /// Returns `true` if the run may be killed at a known time.
    pub fn is_limited(&self) -> bool {
        self.times.limit.is_some()
    }

    /// Returns what is due after a step. Collective.
    pub fn look(&mut self, comm: &Communicator) -> Result<Due, Error> {
        let due = self.times.due(Instant::now());
        let mut agreed = [self.requests.signal() as u64, if comm.rank() == 0 { due } else { 0 }];
        comm.all_reduce(&mut agreed, Op::Max)?;
        self.times.looked = Instant::now();
        Ok(match agreed {
            [0, LIMIT] => Due::Stop(Stop { signal: SIGTERM, why: "the time limit" }),
            [0, CHECKPOINT] => Due::Checkpoint,
            [0, _] => Due::Nothing,
            [signal, _] => Due::Stop(Stop { signal: signal as u8, why: "a signal" }),
        })
    }

    /// Returns the reason to stop, if there is one: for work that saves its state by itself.
    /// Collective.
    pub fn stop(&mut self, comm: &Communicator) -> Result<Option<Stop>, Error> {
        Ok(match self.look(comm)? {
            Due::Stop(stop) => Some(stop),
            _ => None,
        })
    }

    /// Writes a state by `write`, and measures how long this takes.
    pub fn save<T>(&mut self, write: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let written = write();
        self.times.written(begun, Instant::now());
        written
    }

    /// Notes that a request to stop was answered: the state is on disk.
    pub fn answered(self) {
        self.requests.answered();
    }
}

impl Times {
    /// Returns what is due at `now` by this clock.
    fn due(&mut self, now: Instant) -> u64 {
        // The first step compiles kernels: old steps count less and less.
        self.work = now.duration_since(self.looked).max(self.work.mul_f64(0.9));
        // A step may also write a snapshot, and the checkpoint follows.
        let needed = |margin| self.work.mul_f64(1.5) + 2 * self.write + margin;
        if self.limit.is_some_and(|(end, margin)| now + needed(margin) >= end) {
            return LIMIT;
        }
        let is_due = self.every.is_some_and(|every| now.duration_since(self.saved) >= every);
        if is_due { CHECKPOINT } else { 0 }
    }

    /// Notes that a state was written.
    fn written(&mut self, begun: Instant, ended: Instant) {
        self.write = self.write.max(ended - begun);
        self.looked += ended - begun;
        self.saved = ended;
    }
}

/// Returns the time that the batch system leaves to the job: by Slurm's time of the end, or by the
/// wall time of PBS, which counts from the start of this program. Variables of a job that has ended
/// and those that do not hold seconds are ignored with a warning.
fn batch_limit(variable: impl Fn(&str) -> Option<String>, now: SystemTime) -> Option<Duration> {
    let seconds = |name: &str| {
        let text = variable(name).filter(|text| !text.is_empty())?;
        let seconds = text.trim().parse().ok().filter(|&seconds: &u64| seconds > 0);
        if seconds.is_none() {
            terminal::warn(&format!(
                "{name} is `{text}` and not a number of seconds; it is ignored: give --time-limit"
            ));
        }
        seconds.map(Duration::from_secs)
    };
    if let Some(end) = seconds("SLURM_JOB_END_TIME") {
        let left = end.checked_sub(now.duration_since(UNIX_EPOCH).ok()?);
        if left.is_none() {
            terminal::warn("SLURM_JOB_END_TIME is in the past and is ignored; give --time-limit");
        }
        return left;
    }
    seconds("PBS_WALLTIME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units_in_falling_order() {
        let seconds = |text: &str| text.parse::<Span>().map(Span::seconds).ok();
        assert_eq!(
            ["90", "30min", "2h", "11h30min", "1d12h5s", " 45s "].map(seconds),
            [90, 1800, 7200, 41_400, 129_605, 45].map(Some)
        );
        for wrong in
            ["", "0", "0s", "-5", "1.5h", "30min2h", "2h2h", "h", "5m", "3h7", "ä", "99999999999", "5000d5000d"]
        {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
        assert_eq!("129605".parse::<Span>().unwrap().to_string(), "1d12h5s");
        let table: CheckpointOptions = toml::from_str("checkpoint_every = 90\ntime_limit = \"11h30min\"").unwrap();
        assert_eq!(toml::to_string(&table).unwrap(), "checkpoint_every = \"1min30s\"\ntime_limit = \"11h30min\"\n");
        assert!(toml::from_str::<CheckpointOptions>("time_limit = 1.5").is_err());
    }

    #[test]
    fn a_run_stops_while_a_step_and_two_writes_fit_before_the_limit() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let [work, write] = [Duration::ZERO; 2];
        let limit = Some((at(1000), Duration::from_secs(30)));
        let mut times =
            Times { limit, every: Some(Duration::from_secs(300)), looked: start, saved: start, work, write };
        assert_eq!(times.due(at(100)), 0);
        times.looked = at(100);
        assert_eq!(times.due(at(300)), CHECKPOINT);
        // The write counts for the checkpoint and not for the next step.
        times.looked = at(300);
        times.written(at(300), at(350));
        assert_eq!((times.looked, times.saved, times.write), (at(350), at(350), Duration::from_secs(50)));
        // 1.5 steps of 162 s, two writes and the margin take 373 s.
        assert_eq!(times.due(at(500)), 0);
        times.looked = at(500);
        assert_eq!(times.due(at(630)), LIMIT);
        // Without a limit only checkpoints are due.
        times.limit = None;
        times.looked = at(630);
        assert_eq!([times.due(at(649)), times.due(at(650))], [0, CHECKPOINT]);
    }

    #[test]
    fn batch_systems_limit_a_run() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let limit = |variables: &[(&str, &str)]| {
            let variable =
                |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value.to_string());
            batch_limit(variable, now).map(|left| left.as_secs())
        };
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[("SLURM_JOB_END_TIME", "1600"), ("PBS_WALLTIME", "7")]), Some(600));
        assert_eq!(limit(&[("SLURM_JOB_END_TIME", "999")]), None);
        assert_eq!([limit(&[("PBS_WALLTIME", "3600")]), limit(&[("PBS_WALLTIME", "x")])], [Some(3600), None]);
    }
}
