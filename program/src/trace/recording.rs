//! The events of one rank.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use super::{LIMIT, OUTPUT, RECORDINGS, locked};

/// Events that a rank keeps before it writes them.
const KEPT: usize = 4096;

/// Numbers of threads of a rank in the file.
const HOST: usize = 1;
const PHASES: usize = 2;
const DEVICE: usize = 10;
const MESSAGES: usize = 100;

thread_local! {
    static HERE: RefCell<Option<Arc<Mutex<Recording>>>> = const { RefCell::new(None) };
}

/// Returns an instant as the time of this process in nanoseconds.
pub fn time(instant: Instant) -> i64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let origin = *ORIGIN;
    let nanoseconds = |a: Instant, b: Instant| a.saturating_duration_since(b).as_nanos() as i64;
    nanoseconds(instant, origin) - nanoseconds(origin, instant)
}

/// Calls `work` with the recording of this thread, if the thread is a rank.
pub fn here<T>(work: impl FnOnce(&mut Recording) -> T) -> Option<T> {
    // While thread-local values are dropped there is none.
    HERE.try_with(|here| here.borrow().as_ref().map(|recording| work(&mut locked(recording)))).ok().flatten()
}

/// Begins the recording of a rank on this thread.
pub fn begin_rank(rank: u64, clock: i64, activity: Activity) {
    let recording = Recording {
        rank,
        device: String::new(),
        dropped: 0,
        clock: activity.begin - clock,
        records: Vec::new(),
        open: vec![activity],
        lanes: [Vec::new(), Vec::new()],
        threads: BTreeSet::new(),
        recorded: 0,
        is_finished: false,
    };
    let recording = Arc::new(Mutex::new(recording));
    locked(&RECORDINGS).push(recording.clone());
    HERE.with(|here| *here.borrow_mut() = Some(recording));
}

/// Ends the recording of this thread and writes the rest of it.
pub fn end_rank() {
    here(Recording::finish);
    let _ = HERE.try_with(|here| here.borrow_mut().take());
}

/// Something that the thread of a rank does.
pub struct Activity {
    pub name: String,
    /// Members of a JSON object, each with a comma before it.
    pub arguments: String,
    pub begin: i64,
}

/// Something that is over.
struct Record {
    thread: usize,
    name: String,
    arguments: String,
    begin: i64,
    end: i64,
}

/// The events of a rank that have not been written, and what it is doing.
pub struct Recording {
    rank: u64,
    /// Name of the device.
    pub device: String,
    /// Events beyond the limit.
    pub dropped: u64,
    /// The time at which the clock of the library's events showed 0.
    clock: i64,
    records: Vec<Record>,
    open: Vec<Activity>,
    /// Ends of the last events of the threads of the device and of messages: events that overlap
    /// are on different threads.
    lanes: [Vec<i64>; 2],
    /// Threads whose names have been written.
    threads: BTreeSet<usize>,
    recorded: u64,
    is_finished: bool,
}

impl Recording {
    /// Returns the time at which the rank began.
    pub fn begin(&self) -> i64 {
        self.open.first().map_or(i64::MAX, |rank| rank.begin)
    }

    /// Begins an activity within the present one.
    pub fn enter(&mut self, activity: Activity) {
        self.open.push(activity);
    }

    /// Ends the present activity.
    pub fn exit(&mut self) {
        let end = time(Instant::now());
        if let Some(Activity { name, arguments, begin }) = self.open.pop() {
            self.add(Record { thread: HOST, name, arguments, begin, end });
        }
    }

    /// Adds a phase of the command.
    pub fn add_phase(&mut self, name: &str, times: [Instant; 2]) {
        let ([begin, end], arguments) = (times.map(time), String::new());
        self.add(Record { thread: PHASES, name: name.into(), arguments, begin, end });
    }

    /// Adds work of the device or a message, with times by the clock of the library's events.
    pub fn add_event(&mut self, track: &str, name: String, arguments: String, [begin, end]: [i64; 2]) {
        let (first, most, lanes) = match track {
            "device" => (DEVICE, MESSAGES - DEVICE, &mut self.lanes[0]),
            "messages" => (MESSAGES, 1000, &mut self.lanes[1]),
            _ => return,
        };
        let lane = lanes.iter().position(|&last| last <= begin).unwrap_or(lanes.len());
        if lane == most {
            self.dropped += 1;
            return;
        }
        if lane == lanes.len() {
            lanes.push(end);
        }
        lanes[lane] = end;
        let [begin, end] = [begin, end].map(|nanoseconds| self.clock + nanoseconds);
        self.add(Record { thread: first + lane, name, arguments, begin, end });
    }

    fn add(&mut self, record: Record) {
        if self.is_finished || self.recorded >= LIMIT.load(Ordering::Relaxed) {
            self.dropped += 1;
            return;
        }
        self.recorded += 1;
        self.records.push(record);
        if self.records.len() >= KEPT && OUTPUT.get().is_some() {
            let begin = time(Instant::now());
            self.write("");
            let end = time(Instant::now());
            let (name, arguments) = ("write timeline".into(), String::new());
            self.records.push(Record { thread: HOST, name, arguments, begin, end });
        }
    }

    /// Writes all events, among them the activities that have not ended. Later events are dropped.
    pub fn finish(&mut self) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        let end = time(Instant::now());
        while let Some(Activity { name, mut arguments, begin }) = self.open.pop() {
            arguments += r#","is_unfinished":true"#;
            self.records.push(Record { thread: HOST, name, arguments, begin, end });
        }
        let mut last = String::new();
        if self.dropped > 0
            && let Some((_, shift)) = OUTPUT.get()
        {
            let (dropped, time) = (self.dropped, microseconds(end + shift));
            let _ = write!(
                last,
                ",\n{{\"name\":\"{dropped} events were dropped\",\"ph\":\"i\",\"s\":\"p\",\"ts\":{time},\"pid\":{},\
                 \"tid\":{HOST},\"args\":{{\"dropped\":{dropped}}}}}",
                self.rank
            );
        }
        self.write(&last);
    }

    /// Writes the events, and then `last`.
    fn write(&mut self, last: &str) {
        let Some((file, shift)) = OUTPUT.get() else { return };
        let (rank, mut text) = (self.rank, String::new());
        let describe = |thread: usize, what: &str, name: &str| {
            let name = quoted(name);
            format!(
                ",\n{{\"name\":\"{what}\",\"ph\":\"M\",\"ts\":0,\"pid\":{rank},\"tid\":{thread},\
                 \"args\":{{\"name\":{name}}}}}"
            )
        };
        if self.threads.is_empty() {
            text += &describe(HOST, "process_name", &format!("rank {rank}: {}", self.device));
        }
        for Record { thread, name, arguments, begin, end } in self.records.drain(..) {
            if self.threads.insert(thread) {
                text += &describe(thread, "thread_name", &thread_name(thread));
            }
            let (time, name) = (microseconds(begin + shift), quoted(&name));
            let duration = microseconds((end - begin).max(0));
            let _ = write!(
                text,
                ",\n{{\"name\":{name},\"ph\":\"X\",\"ts\":{time},\"dur\":{duration},\"pid\":{rank},\"tid\":{thread}"
            );
            if let Some(arguments) = arguments.strip_prefix(',') {
                let _ = write!(text, ",\"args\":{{{arguments}}}");
            }
            text.push('}');
        }
        text += last;
        file.append(&text);
    }
}

/// Returns the name of a thread of the file.
fn thread_name(thread: usize) -> String {
    let lane = |name: &str, lane: usize| if lane == 0 { name.into() } else { format!("{name} {}", lane + 1) };
    match thread {
        HOST => "host".into(),
        PHASES => "phases".into(),
        DEVICE..MESSAGES => lane("device", thread - DEVICE),
        _ => lane("messages", thread - MESSAGES),
    }
}

/// Returns nanoseconds in the unit of the file.
fn microseconds(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", nanoseconds.unsigned_abs() / 1000, nanoseconds.unsigned_abs() % 1000)
}

/// Returns a text as JSON.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        let cases = [(0, "0.000"), (7, "0.007"), (-7, "-0.007"), (1_234_567, "1234.567"), (-1_000, "-1.000")];
        cases.into_iter().for_each(|(nanoseconds, text)| assert_eq!(microseconds(nanoseconds), text));
        let now = Instant::now();
        let later = now + std::time::Duration::from_nanos(5);
        assert_eq!(time(later) - time(now), 5);
    }

    #[test]
    fn events_that_overlap_are_on_different_threads() {
        LIMIT.store(100, Ordering::Relaxed);
        let activity = Activity { name: "rank".into(), arguments: String::new(), begin: 1000 };
        std::thread::spawn(|| {
            begin_rank(3, 400, activity);
            here(|recording| {
                for times in [[0, 10], [10, 20], [5, 25], [6, 7], [20, 20], [20, 30]] {
                    recording.add_event("messages", "sent".into(), String::new(), times);
                }
                let found = recording.records.iter().map(|record| (record.thread - MESSAGES, record.begin));
                assert!(found.eq([(0, 600), (0, 610), (1, 605), (2, 606), (0, 620), (0, 620)]));
            })
            .unwrap();
            HERE.with(|here| here.borrow_mut().take());
        })
        .join()
        .unwrap();
    }
}
