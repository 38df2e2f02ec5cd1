//! The order in which recorded commands are encoded, and the compute passes of their dispatches.
//!
//! wgpu drains the device before each dispatch that uses a buffer which an earlier dispatch of the
//! same pass wrote, or which it writes itself. The first use of each buffer in a pass is exempt:
//! one barrier before the pass serves for all of them (`wgpu-core`, `command/compute.rs`). So
//! dispatches that depend on none of each other overlap if a pass of their own holds them, and run
//! one after another otherwise.
//!
//! A command belongs to the level behind the last command that it depends on: one that wrote a
//! buffer that it uses, or that used a buffer that it writes. Whole buffers count, because wgpu
//! looks at no smaller part.

use std::collections::HashMap;
use std::hash::Hash;

use super::command::{Command, Step};
use super::device::Gpu;
use super::profile::Profile;

/// Dispatches from which on a level gets a pass of its own. A pass costs the host as much as two
/// dispatches, and each dispatch but the first waits for the device to drain once less.
const LEAST: usize = 2;

/// Returns the dispatches from which on a level of commands for `gpu` gets a pass of its own.
///
/// Software renderers finish each dispatch before the next one and take about a dispatch's time to
/// begin a pass. wgpu encodes for Metal without barriers, in passes that run dispatches one by one.
pub(super) fn least_of_pass(gpu: &Gpu) -> usize {
    let has_barriers = matches!(gpu.info().backend, wgpu::Backend::Vulkan | wgpu::Backend::Dx12);
    if has_barriers && gpu.capabilities().profile == Profile::Gpu { LEAST } else { usize::MAX }
}

/// Levels of the last commands that used a buffer, counted from 1; 0 if there was none.
#[derive(Clone, Copy, Default)]
struct LastUse {
    write: usize,
    any: usize,
}

/// Assigns commands to levels.
struct Levels<B> {
    uses: HashMap<B, LastUse>,
}

impl<B: Copy + Eq + Hash> Levels<B> {
    fn new() -> Self {
        Levels { uses: HashMap::new() }
    }

    /// Returns the level of the next command, counted from 0, which uses these buffers and writes
    /// those marked `true`.
    fn place(&mut self, buffers: impl Iterator<Item = (B, bool)> + Clone) -> usize {
        let last = |(buffer, writes)| {
            let last = self.uses.get(&buffer).copied().unwrap_or_default();
            if writes { last.any } else { last.write }
        };
        let level = buffers.clone().map(last).max().unwrap_or_default();
        for (buffer, writes) in buffers {
            let last = self.uses.entry(buffer).or_default();
            last.any = last.any.max(level + 1);
            if writes {
                last.write = level + 1;
            }
        }
        level
    }
}

/// Recorded commands in the order in which they are encoded.
pub(super) struct Schedule<'a> {
    pub steps: Vec<Step<'a>>,
    /// Number of levels that have a dispatch.
    pub levels: u64,
}

impl<'a> Schedule<'a> {
    /// Returns the recorded order with a pass for each dispatch, so that each can be timed.
    pub fn one_by_one(commands: &'a [Command]) -> Self {
        let steps = commands.iter().map(|command| vec![command]).collect();
        Schedule { steps, levels: occupied(&dispatches_of_levels(commands, &levels(commands))) }
    }

    /// Returns an order in which independent dispatches can overlap.
    ///
    /// A level of `least` dispatches or more begins a pass, which the smaller levels behind it
    /// share. Commands of a level keep their order; copies and clears come first. If all levels are
    /// smaller, all commands keep their order, and consecutive dispatches share a pass.
    pub fn by_levels(commands: &'a [Command], least: usize) -> Self {
        let levels = levels(commands);
        let dispatches = dispatches_of_levels(commands, &levels);
        let mut order: Vec<usize> = (0..commands.len()).collect();
        if dispatches.iter().any(|&count| count >= least) {
            order.sort_by_key(|&number| (levels[number], commands[number].is_dispatch()));
        }
        let mut steps: Vec<Step<'_>> = Vec::new();
        // Level of the last dispatch of the pass that is open.
        let mut open = None;
        for number in order {
            let (command, level) = (&commands[number], levels[number]);
            let fits = command.is_dispatch() && (dispatches[level] < least || open == Some(level));
            match steps.last_mut().filter(|_| fits && open.is_some()) {
                Some(pass) => pass.push(command),
                None => steps.push(vec![command]),
            }
            open = command.is_dispatch().then_some(level);
        }
        Schedule { steps, levels: occupied(&dispatches) }
    }
}

/// Returns the level of each command.
fn levels(commands: &[Command]) -> Vec<usize> {
    let mut levels = Levels::new();
    commands.iter().map(|command| levels.place(command.buffers())).collect()
}

/// Returns the number of dispatches of each level.
fn dispatches_of_levels(commands: &[Command], levels: &[usize]) -> Vec<usize> {
    let mut counts = vec![0; levels.iter().max().map_or(0, |last| last + 1)];
    for (command, &level) in commands.iter().zip(levels) {
        counts[level] += usize::from(command.is_dispatch());
    }
    counts
}

/// Returns the number of levels that have a dispatch.
fn occupied(dispatches: &[usize]) -> u64 {
    dispatches.iter().filter(|&&count| count > 0).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::placed;

    type Accesses = Vec<(u32, bool)>;

    fn levels_of(commands: &[Accesses]) -> Vec<usize> {
        let mut levels = Levels::new();
        commands.iter().map(|command| levels.place(command.iter().copied())).collect()
    }

    #[test]
    fn commands_follow_those_that_they_depend_on() {
        let (read, write) = (|buffer| (buffer, false), |buffer| (buffer, true));
        // Reads of one buffer are independent.
        assert_eq!(levels_of(&[vec![read(0), write(1)], vec![read(0), write(2)]]), [0, 0]);
        // A read behind a write, a write behind a read, a write behind a write.
        assert_eq!(levels_of(&[vec![write(0)], vec![read(0), write(1)]]), [0, 1]);
        assert_eq!(levels_of(&[vec![read(0), write(1)], vec![write(0)]]), [0, 1]);
        assert_eq!(levels_of(&[vec![write(0)], vec![write(0)]]), [0, 1]);
        // A write comes behind all reads, whose levels differ.
        let reads = [vec![write(1)], vec![read(0), read(1), write(2)], vec![read(0), write(3)], vec![write(0)]];
        assert_eq!(levels_of(&reads), [0, 1, 0, 2]);
        // A command without buffers depends on none.
        assert_eq!(levels_of(&[vec![write(0)], vec![]]), [0, 0]);
    }

    #[test]
    fn eight_chains_of_fourteen_make_fourteen_levels() {
        // Each link reads what the one before wrote, and what all chains read.
        let link =
            |chain: u32, link: u32| vec![(0, false), (1 + 15 * chain + link, false), (2 + 15 * chain + link, true)];
        let chains: Vec<_> = (0..8).flat_map(|chain| (0..14).map(move |n| link(chain, n))).collect();
        assert_eq!(levels_of(&chains), (0..112).map(|number| number % 14).collect::<Vec<_>>());
    }

    #[test]
    fn levels_are_the_longest_paths_of_dependencies() {
        for seed in 0..200 {
            let mut draws = 0;
            let mut draw = |below: u64| {
                draws += 1;
                placed(seed, draws) % below
            };
            let buffers = 2 + draw(12);
            let mut program: Vec<Accesses> = Vec::new();
            for _ in 0..40 {
                let count = draw(4);
                program.push((0..count).map(|_| (draw(buffers) as u32, draw(3) == 0)).collect());
            }
            let conflicts = |a: &Accesses, b: &Accesses| {
                a.iter().any(|(buffer, writes)| b.iter().any(|(other, also)| buffer == other && (*writes || *also)))
            };
            let mut expected: Vec<usize> = Vec::new();
            for (number, command) in program.iter().enumerate() {
                let earlier = (0..number).filter(|&earlier| conflicts(&program[earlier], command));
                expected.push(earlier.map(|earlier| expected[earlier] + 1).max().unwrap_or(0));
            }
            assert_eq!(levels_of(&program), expected, "seed {seed}");
        }
    }
}
