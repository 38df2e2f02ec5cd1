//! The rule by which particles move between ranks.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// Bytes of a particle that moves: its site, displacement and momentum.
pub(super) const MOVED_BYTES: u64 = 8 + 12 + 12;

/// Bytes sent that take about as long as the passes of a move over one particle: 200 bytes in
/// device memory, which is some 100 times as fast as the links between ranks.
pub(super) const PASSED_BYTES: u64 = 2;

/// When the particles of a run on several ranks move to the ranks that own their cells. The results
/// of the run do not depend on it.
///
/// ```
/// use meshloom::pm::Migrate;
///
/// assert_eq!("auto".parse(), Ok(Migrate::Auto));
/// assert_eq!("3".parse::<Migrate>()?.to_string(), "3");
/// assert!("0".parse::<Migrate>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Migrate {
    /// Before a force if ghost cells have sent, since the last move, as many bytes more than just
    /// after a move as a move sends.
    Auto,
    /// Never: each particle stays with the rank that owns its site. The default.
    #[default]
    Never,
    /// Before the first force, and then before every n-th: there is one force in each step.
    Every(NonZeroUsize),
}

impl FromStr for Migrate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Migrate::Auto),
            ("never", _) => Ok(Migrate::Never),
            (_, Ok(forces)) => Ok(Migrate::Every(forces)),
            _ => Err(format!("expected `auto`, `never` or a number of steps from 1 on, got `{text}`")),
        }
    }
}

impl fmt::Display for Migrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Migrate::Auto => f.write_str("auto"),
            Migrate::Never => f.write_str("never"),
            Migrate::Every(forces) => forces.fmt(f),
        }
    }
}
