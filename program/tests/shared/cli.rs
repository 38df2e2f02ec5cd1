//! Running the program as a subprocess, and what must come of it.
#![allow(dead_code, reason = "not every test uses all of it")]

#[path = "../../../tests/shared/launcher.rs"]
mod launcher;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

pub use launcher::launcher;

/// No run of these tests needs as long on a busy machine, whose renderer compiles all kernels
/// again: Mesa 25 takes four times what 22 does.
const TIMEOUT: Duration = Duration::from_secs(240);

/// Number and kind of the ranks of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ranks {
    Threads(u16),
    Mpi(u16),
}

/// Target of an output of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sink {
    /// To the test.
    Read,
    /// Into a pipe whose reader has left.
    Gone,
    /// To a device without room.
    Full,
}

impl Sink {
    fn stdio(self) -> Stdio {
        match self {
            Sink::Read => Stdio::piped(),
            Sink::Gone => std::io::pipe().unwrap().1.into(),
            Sink::Full => fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into(),
        }
    }
}

/// Returns `true` if runs under MPI can be had; says why not, where not.
pub fn has_mpi() -> bool {
    let found = cfg!(feature = "mpi") && launcher::is_there();
    if !found {
        println!("skipped: ranks under MPI (the feature `mpi` or mpirun is missing)");
    }
    found
}

/// Returns the program that is tested: this build's, or the one that MESHLOOM_TEST_PROGRAM names.
pub fn program() -> PathBuf {
    env::var_os("MESHLOOM_TEST_PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_meshloom").into(), PathBuf::from)
}

/// A directory for one test, removed at its end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("meshloom-cli-{}-{count}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file and gives its path as a word of the command line.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.join(name), bytes).unwrap();
        self.word(name)
    }

    /// Every call must fail with its exit code and a message with this word, and leave the
    /// directory as it was.
    pub fn all_fail<'a>(&self, cases: impl IntoIterator<Item = (Call, i32, &'a str)>) {
        let before = files(self.path());
        for (call, code, word) in cases {
            call.run().is_error("a wrong call", code, &[word]);
            assert_eq!(files(self.path()), before, "{:?}", call.words);
        }
    }

    /// Returns the path of `name` as a word of the command line.
    pub fn word(&self, name: &str) -> String {
        self.join(name).to_str().unwrap().into()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns all files below a directory, hidden ones too.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// One call of the program.
#[derive(Clone, Debug)]
pub struct Call {
    pub words: Vec<String>,
    pub ranks: Ranks,
    pub env: Vec<(String, String)>,
    pub stdout: Sink,
    pub stderr: Sink,
    /// Commands of a shell before it becomes the program.
    pub before: &'static str,
}

impl Call {
    pub fn new(words: &[&str]) -> Self {
        let words = words.iter().map(|w| (*w).to_string()).collect();
        let (stdout, stderr) = (Sink::Read, Sink::Read);
        Call { words, ranks: Ranks::Threads(1), env: Vec::new(), stdout, stderr, before: "" }
    }

    /// A simulation into `out` that goes on for minutes, to be stopped. With more steps it would
    /// take longer to begin: growth factors of all steps are computed first.
    pub fn long_simulation(out: &Path) -> Self {
        Call::simulate(out, &["--particles", "16", "--mesh", "64", "--steps", "10000"])
    }

    /// A small simulation into `out`, without groups; `words` may say otherwise.
    pub fn simulate(out: &Path, words: &[&str]) -> Self {
        let mut call = Call::new(&["simulate", "--out", out.to_str().unwrap()]);
        for (option, value) in [("--particles", "8"), ("--mesh", "16"), ("--steps", "2"), ("--linking-parameter", "0")]
        {
            let said = |word: &&str| {
                *word == option
                    || *word == "--config"
                    || option.starts_with("--linking") && word.starts_with("--linking")
            };
            if !words.iter().any(said) {
                call.words.extend([option.into(), value.into()]);
            }
        }
        call.words.extend(words.iter().map(|word| (*word).to_string()));
        call
    }

    /// More words.
    pub fn words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| (*word).to_string()));
        self
    }

    pub fn on(mut self, ranks: Ranks) -> Self {
        self.ranks = ranks;
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn stdout(mut self, sink: Sink) -> Self {
        self.stdout = sink;
        self
    }

    pub fn stderr(mut self, sink: Sink) -> Self {
        self.stderr = sink;
        self
    }

    pub fn before(mut self, script: &'static str) -> Self {
        self.before = script;
        self
    }

    /// Starts it.
    pub fn start(&self) -> Running {
        let mut command = match self.ranks {
            Ranks::Threads(_) if self.before.is_empty() => Command::new(program()),
            Ranks::Threads(_) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{}; exec \"$@\"", self.before), "sh"]).arg(program());
                shell
            }
            Ranks::Mpi(ranks) => {
                let mut launcher = launcher();
                launcher.args(["-n", &ranks.to_string()]).arg(program());
                launcher
            }
        };
        command.args(&self.words);
        if let Ranks::Threads(ranks) = self.ranks
            && ranks > 1
        {
            command.args(["--ranks", &ranks.to_string()]);
        }
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("MESHLOOM_")) {
            command.env_remove(name);
        }
        command
            // Beside the tests' other scratch, not with the user's own.
            .env("MESHLOOM_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipelines"))
            .env("OMPI_MCA_mpi_yield_when_idle", "1")
            .env("LP_NUM_THREADS", "1")
            // Without a desktop drivers complain: the program silences them.
            .env_remove("NODEVICE_SELECT")
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("WAYLAND_DISPLAY")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(self.stdout.stdio())
            .stderr(self.stderr.stdio());
        hears_signals(&mut command);
        let mut child = command.spawn().unwrap();
        // Read while it runs: a full pipe would stop it.
        let [stdout, stderr] = [reader(child.stdout.take()), reader(child.stderr.take())];
        Running { call: self.clone(), child, output: Some((stdout, stderr)), since: Instant::now() }
    }

    /// Runs it to its end.
    pub fn run(&self) -> Outcome {
        self.start().wait(TIMEOUT)
    }

    /// Runs it, and it must succeed with no message but what is wrong with so small a run.
    pub fn succeeds(&self) -> Outcome {
        let outcome = self.run();
        assert!(outcome.status.success(), "{outcome:#?}");
        assert!(outcome.stderr.lines().all(|line| line.starts_with(EARLY)), "{outcome:#?}");
        outcome
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Signals that tests were started without hearing (in the background, by `nohup`) are ignored by
/// what they start, too: not here.
fn hears_signals(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: `signal` may be called between fork and exec, and sets what the new process begins
    // with.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// Sends a signal to one process.
pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// A call under way. It does not outlive this value.
pub struct Running {
    call: Call,
    child: Child,
    output: Option<(thread::JoinHandle<String>, thread::JoinHandle<String>)>,
    since: Instant,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processes of the ranks that mpirun has started.
    pub fn ranks(&self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut open = vec![self.pid()];
        while let Some(pid) = open.pop() {
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                open.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            }
            if fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == fs::canonicalize(program()).unwrap()) {
                found.push(pid);
            }
        }
        found
    }

    /// Waits until `ready`, while it runs.
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&Self) -> bool) {
        while !ready(self) {
            assert!(self.child.try_wait().unwrap().is_none(), "ended before {what}");
            assert!(self.since.elapsed() < TIMEOUT, "no {what} for {TIMEOUT:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns `true` if it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end, `limit` from now at most.
    pub fn wait(mut self, limit: Duration) -> Outcome {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < limit, "still running after {limit:?}: {:?}", self.call);
            thread::sleep(Duration::from_millis(10));
        };
        let (stdout, stderr) = self.output.take().unwrap();
        Outcome { call: self.call.clone(), status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            for pid in self.ranks() {
                signal(pid, "KILL");
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Outcome of a call. What runs of so few particles in the usual box are told: their first
/// displacements are small beside a cell.
const EARLY: &str = "meshloom: warning: particles move by";

#[derive(Debug)]
pub struct Outcome {
    pub call: Call,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// It must have failed with this exit code and one message, once, that contains the words.
    pub fn is_error(&self, name: &str, code: i32, words: &[&str]) {
        let name = format!("{name}: {:?} on {:?}", self.call.words, self.call.ranks);
        assert_eq!(self.status.code(), Some(code), "{name}: {self:#?}");
        assert!(self.stdout.is_empty(), "{name}: {self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "{name}: `{word}` is missing: {self:#?}");
        }
        let heads = ["meshloom: ", "error: ", "rank "];
        let said = self.stderr.lines().filter(|line| !line.starts_with(EARLY));
        let heads = said.filter(|line| heads.iter().any(|head| line.starts_with(head))).count();
        assert_eq!(heads, 1, "{name}: one message: {self:#?}");
        for trace in ["panicked", "RUST_BACKTRACE", "stack backtrace", "unwrap"] {
            assert!(!self.stderr.contains(trace), "{name}: {self:#?}");
        }
    }
}
