//! Broken copies of good files, read by processes of their own: what aborts, hangs or takes memory
//! without bound ends the process and not the test, which then names the copy.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Variable with the copies that a process reads, and its directory.
const TASK: &str = "MESHLOOM_TEST_MUTANTS";
/// More copies than usual, for a longer search.
const COUNT: &str = "MESHLOOM_TEST_MUTANT_COUNT";
/// No copy takes as long on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Address space of a process in KiB, program and libraries included: the files have some
/// kilobytes.
const SPACE: u32 = 768 << 10;

/// A sequence of numbers that depends on its seed alone (Steele, Lea & Flood 2014, splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number from 0 to `below - 1`.
    pub fn below(&mut self, below: usize) -> usize {
        (self.next() % below.max(1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// Changes bytes as failing disks, careless programs and hostile people do.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.one_of(&[1, 1, 1, 2, 3, 8]) {
        let (len, at) = (bytes.len(), random.below(bytes.len()));
        let end = (at + 1 + random.below(64)).min(len);
        match random.below(10) {
            _ if len == 0 => return,
            0..=2 => bytes[at] ^= 1 << random.below(8),
            3..=5 => bytes[at] = random.one_of(&[0, 1, 0x7f, 0x80, 0xff, b'9', b'-', random.0 as u8]),
            // A length, a count or an offset of 2, 4 or 8 bytes.
            6 | 7 => {
                let [most, file] = [u64::MAX, len as u64];
                let number =
                    random.one_of(&[0, 1, 1 << 31, most >> 33, 1 << 63, most >> 1, most, file, file / 2, 1 << 40]);
                let width = random.one_of(&[2, 4, 8]).min(len - at);
                bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
            }
            8 if random.below(2) == 0 => bytes.truncate(at),
            8 => drop(bytes.drain(at..end)),
            _ => {
                let span = bytes[at..end].to_vec();
                bytes.splice(at..at, span);
            }
        }
    }
}

/// Has `read` look at copies number 0 to `count - 1` in directories of their own, in processes that
/// `test`, the name of the calling test, starts. Each must return; what it may return is for `read`
/// to assert. `known` are signals that faults of a library, of which its users are told, may end
/// few of them with.
pub fn survive(test: &str, count: u64, known: &[i32], read: impl Fn(u64, &Path)) {
    if let Ok(task) = env::var(TASK) {
        let mut words = task.splitn(3, ' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let copies = number()..number();
        let directory = PathBuf::from(words.next().unwrap());
        for copy in copies {
            fs::write(directory.join("at"), copy.to_string()).unwrap();
            read(copy, &directory);
        }
        fs::write(directory.join("done"), "").unwrap();
        return;
    }
    let count = env::var(COUNT).map_or(count, |count| count.parse().unwrap());
    let directory =
        env::temp_dir().join(format!("meshloom-mutants-{}-{}", std::process::id(), test.replace("::", "-")));
    fs::create_dir(&directory).unwrap();
    let (mut found, mut faults, mut first) = (Vec::new(), 0, 0);
    while found.len() < 20 {
        let Some(End { copy, signal, how }) = run(test, &directory, first..count) else { break };
        if signal.is_some_and(|signal| known.contains(&signal)) {
            println!("copy {copy}: a known fault");
            faults += 1;
        } else {
            found.push(format!("copy {copy}: {how}"));
        }
        first = copy + 1;
    }
    fs::remove_dir_all(&directory).unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(faults <= 1 + count / 500, "a known fault ended {faults} of {count}");
}

/// The copy that has ended a process, and how.
struct End {
    copy: u64,
    signal: Option<i32>,
    how: String,
}

/// Runs one process, which reads all copies or is ended by one.
fn run(test: &str, directory: &Path, copies: std::ops::Range<u64>) -> Option<End> {
    let log = directory.join("log");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -c 0; ulimit -v $1 2>/dev/null; shift; exec \"$@\"", "sh", &SPACE.to_string()]);
    command.arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(TASK, format!("{} {} {}", copies.start, copies.end, directory.display()));
    // Each thread's own heap takes address space that it does not use.
    command.env("MALLOC_ARENA_MAX", "1").env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let at = || fs::read_to_string(directory.join("at")).ok().and_then(|text| text.parse().ok());
    let (mut last, mut since) = (at(), Instant::now());
    let (signal, how) = loop {
        match child.try_wait().unwrap() {
            Some(status) if status.success() && directory.join("done").exists() => return None,
            Some(status) => break (status.signal(), status.to_string()),
            None if since.elapsed() > TIMEOUT => {
                child.kill().unwrap();
                child.wait().unwrap();
                break (None, format!("does not end in {TIMEOUT:?}"));
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
        if at() != last {
            (last, since) = (at(), Instant::now());
        }
    };
    let log = fs::read_to_string(&log).unwrap_or_default();
    Some(End { copy: at().unwrap_or(copies.start), signal, how: format!("{how} {}", log.trim()) })
}
