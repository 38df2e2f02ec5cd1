//! Recorded commands, the order in which they are encoded, the compute passes of their dispatches,
//! and their translation to commands of an encoder.
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
use std::sync::Arc;

use super::params::PARAMS;
use super::pipeline::{ParamsPlace, Pipeline};
use super::pool::Bound;
use super::timer::Timer;
use super::{DeviceError, Gpu, Profile, RawArray, WindowBinding};

/// Work that is recorded.
pub(super) enum Command {
    Dispatch {
        pipeline: Arc<Pipeline>,
        arrays: Vec<RawArray>,
        params: u32,
        /// Columns and rows of workgroups, and copies of the arrays.
        groups: [u32; 3],
    },
    /// A copy of elements from the first array, from the first start on, to the second.
    Copy {
        ends: [RawArray; 2],
        starts: [u64; 2],
        len: u64,
    },
    Clear {
        array: RawArray,
    },
}

impl Command {
    pub fn is_dispatch(&self) -> bool {
        matches!(self, Command::Dispatch { .. })
    }

    /// Returns `true` if it reads parameters from a buffer.
    pub fn stages_params(&self) -> bool {
        matches!(self, Command::Dispatch { pipeline, .. } if !matches!(pipeline.place, ParamsPlace::Immediate(_)))
    }

    /// Returns the arrays it works on.
    pub fn arrays(&self) -> Vec<&RawArray> {
        match self {
            Command::Dispatch { arrays, .. } => arrays.iter().collect(),
            Command::Copy { ends, .. } => ends.iter().collect(),
            Command::Clear { array } => vec![array],
        }
    }

    /// Returns the buffers of its arrays, each with `true` if the command may write it.
    pub fn buffers(&self) -> impl Iterator<Item = (&wgpu::Buffer, bool)> + Clone {
        let (arrays, writes): (&[RawArray], &[bool]) = match self {
            Command::Dispatch { pipeline, arrays, .. } => (arrays, &pipeline.writes),
            Command::Copy { ends, .. } => (ends, &[false, true]),
            Command::Clear { array } => (std::slice::from_ref(array), &[true]),
        };
        let arrays = arrays.iter().zip(writes);
        arrays.flat_map(|(array, &writes)| array.buffers().map(move |buffer| (buffer, writes)))
    }

    /// Returns what it is called.
    pub fn name(&self) -> &str {
        match self {
            Command::Dispatch { pipeline, .. } => &pipeline.label,
            Command::Copy { .. } => "copy",
            Command::Clear { .. } => "clear",
        }
    }

    /// Refuses arrays that are on their way between ranks.
    pub fn at_rest(&self) -> Result<(), DeviceError> {
        self.arrays().into_iter().try_for_each(|array| array.at_rest(self.name()))
    }
}

/// Commands of one step of the encoder: a copy, a clear, or the dispatches of a compute pass.
pub(super) type Step<'a> = Vec<&'a Command>;

/// Resources that the encoding of commands needs.
pub(super) struct Encoding<'a> {
    pub gpu: &'a Gpu,
    /// The parameters of all dispatches.
    pub params: &'a [u8],
    /// A buffer that holds them for kernels that read them there.
    pub buffer: &'a wgpu::Buffer,
    /// The timer of the passes, if there is one.
    pub timer: Option<&'a Timer>,
}

impl Encoding<'_> {
    /// Encodes the steps of a schedule. Returns the number of passes.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder, steps: &[Step<'_>]) -> u32 {
        let mut passes = 0;
        for step in steps {
            match step[..] {
                [Command::Copy { ends, starts, len }] => copy_pieces(encoder, ends, *starts, *len),
                [Command::Clear { array }] => {
                    for (buffer, offset, bytes) in array.pieces(0, array.len) {
                        encoder.clear_buffer(buffer, offset, Some(bytes));
                    }
                }
                _ => {
                    self.pass(encoder, step, passes);
                    passes += 1;
                }
            }
        }
        passes
    }

    fn pass(&self, encoder: &mut wgpu::CommandEncoder, dispatches: &[&Command], pass: u32) {
        let timestamp_writes = self.timer.and_then(|timer| timer.writes(pass));
        let label = match dispatches {
            [dispatch] => dispatch.name(),
            _ => "meshloom",
        };
        let descriptor = wgpu::ComputePassDescriptor { label: Some(label), timestamp_writes };
        let mut pass = encoder.begin_compute_pass(&descriptor);
        for command in dispatches {
            let Command::Dispatch { pipeline, arrays, params, groups } = command else { continue };
            let buffer = wgpu::BufferBinding { buffer: self.buffer, offset: 0, size: wgpu::BufferSize::new(PARAMS) };
            pass.set_pipeline(&pipeline.pipeline);
            match &pipeline.place {
                ParamsPlace::WithArrays => {
                    pass.set_bind_group(0, &self.group(pipeline, Some(buffer), arrays), &[*params]);
                }
                ParamsPlace::OwnGroup(layout) => {
                    pass.set_bind_group(0, &self.group(pipeline, None, arrays), &[]);
                    pass.set_bind_group(1, &self.group_of_params(layout, buffer), &[*params]);
                }
                ParamsPlace::Immediate(bytes) => {
                    pass.set_bind_group(0, &self.group(pipeline, None, arrays), &[]);
                    // Vulkan allows no empty range.
                    if *bytes > 0 {
                        let start = *params as usize;
                        pass.set_immediates(0, &self.params[start..start + *bytes as usize]);
                    }
                }
            }
            pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
        }
    }

    /// Returns the bind group of arrays, with the buffer of parameters at binding 0 if it is given.
    fn group(
        &self,
        pipeline: &Pipeline,
        params: Option<wgpu::BufferBinding<'_>>,
        arrays: &[RawArray],
    ) -> wgpu::BindGroup {
        let Pipeline { layout, binding, label, .. } = pipeline;
        let windows = || arrays.iter().flat_map(RawArray::bindings);
        self.gpu.0.pool.groups.get(Bound::new(layout, params.iter().cloned().chain(windows())), || {
            let of_arrays: Vec<Vec<_>> = arrays.iter().map(|array| array.bindings().collect()).collect();
            let resources: Vec<_> = match binding {
                WindowBinding::Switch => windows().map(wgpu::BindingResource::Buffer).collect(),
                WindowBinding::BindingArray => of_arrays.iter().map(|windows| resource(windows)).collect(),
            };
            let resources = (1..).zip(resources);
            let params = params.clone().map(|params| (0, wgpu::BindingResource::Buffer(params)));
            let entry = |(binding, resource)| wgpu::BindGroupEntry { binding, resource };
            let entries = &params.into_iter().chain(resources).map(entry).collect::<Vec<_>>();
            self.gpu.device().create_bind_group(&wgpu::BindGroupDescriptor { label: Some(label), layout, entries })
        })
    }

    /// Returns the bind group of the buffer of parameters alone.
    fn group_of_params(&self, layout: &wgpu::BindGroupLayout, params: wgpu::BufferBinding<'_>) -> wgpu::BindGroup {
        self.gpu.0.pool.groups.get(Bound::new(layout, std::iter::once(params.clone())), || {
            let entries = &[wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(params) }];
            let label = Some("meshloom::params");
            self.gpu.device().create_bind_group(&wgpu::BindGroupDescriptor { label, layout, entries })
        })
    }
}

/// Returns the windows of an array as one binding.
fn resource<'a>(windows: &'a [wgpu::BufferBinding<'a>]) -> wgpu::BindingResource<'a> {
    match windows {
        [one] => wgpu::BindingResource::Buffer(one.clone()),
        several => wgpu::BindingResource::BufferArray(several),
    }
}

/// Copies between arrays whose buffers may be cut at different places.
fn copy_pieces(encoder: &mut wgpu::CommandEncoder, ends: &[RawArray; 2], starts: [u64; 2], len: u64) {
    let (sources, targets) = (ends[0].pieces(starts[0], len), ends[1].pieces(starts[1], len));
    let (mut s, mut t, mut s_done, mut t_done) = (0, 0, 0, 0);
    while s < sources.len() && t < targets.len() {
        let bytes = (sources[s].2 - s_done).min(targets[t].2 - t_done);
        encoder.copy_buffer_to_buffer(sources[s].0, sources[s].1 + s_done, targets[t].0, targets[t].1 + t_done, bytes);
        s_done += bytes;
        t_done += bytes;
        if s_done == sources[s].2 {
            (s, s_done) = (s + 1, 0);
        }
        if t_done == targets[t].2 {
            (t, t_done) = (t + 1, 0);
        }
    }
}

/// Folds workgroups into columns and rows of up to `most` each, with less than a row too many; none
/// if there are more than such a rectangle holds. Surplus workgroups count on behind the last, for
/// which [`LONGEST`](super::LONGEST) leaves room.
pub(super) fn folded(workgroups: u64, most: u32) -> Option<[u32; 2]> {
    let rows = workgroups.div_ceil(u64::from(most)).max(1);
    let columns = workgroups.div_ceil(rows);
    (rows <= u64::from(most)).then_some([columns as u32, rows as u32])
}

/// Refuses a range that does not lie in an array of `have` elements.
pub(super) fn inside(what: &str, have: u64, start: u64, len: u64) -> Result<(), DeviceError> {
    let is_inside = start.checked_add(len).is_some_and(|end| end <= have);
    DeviceError::ensure(is_inside, what, || format!("{len} elements from {start} of an array of {have}"))
}

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
    use crate::gpu::LONGEST;
    use crate::hash::placed;

    #[test]
    fn surplus_workgroups_never_count_around() {
        for most in [65_535, 7] {
            for workgroups in
                [0, 1, 6, 7, 8, 48, 49, 65_535, 65_536, 1 << 20, 4_194_176, u64::from(most) * u64::from(most)]
            {
                let Some([x, y]) = folded(workgroups, most) else {
                    assert!(workgroups > u64::from(most) * u64::from(most));
                    continue;
                };
                let all = u64::from(x) * u64::from(y);
                assert!(
                    x <= most && y <= most && all >= workgroups && all - workgroups < u64::from(y),
                    "{workgroups} {most}"
                );
            }
        }
        assert_eq!(folded(u64::from(u32::MAX), 65_535), None);
        // Elements that a workgroup treats: a power of two, and others.
        for each in (0..=14).map(|k| 1u64 << k).chain([3, 48, 100, 384, 3000, 12_288, 16_000]) {
            for len in [LONGEST, LONGEST - 1, LONGEST - each, LONGEST / 2 + 1] {
                let [x, y] = folded(len.div_ceil(each), 65_535).unwrap();
                assert!(u64::from(x) * u64::from(y) * each <= 1 << 32, "{len} elements by {each}");
            }
        }
    }

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
