//! Queues of a Vulkan device for copies beside its kernels.
//!
//! wgpu has one queue, in which kernels and copies of both directions run one after the other. A
//! device with a queue family for transfers copies out of arrays and into them on two queues of
//! that family, at the same time as its kernels run. A timeline semaphore that wgpu's queue signals
//! orders copies behind the kernels before them. The host orders the rest: no kernel that uses an
//! array is submitted before the copies of the array are done.
//!
//! The unsafe code of this file relies on these facts:
//! - Buffers of copies live until the copies are done, as [`CopyQueues::copy`] demands.
//! - The handles of a [`CopyQueue`] are destroyed when nothing uses them, before the device.
//! - Buffers that queues of two families use are created for both ([`CopyQueues::families`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use wgpu::hal::{api, vulkan};

use super::buffer_copy::{BufferCopy, StagingDirection};
use super::vulkan_buffer::{OwnBuffer, memory_type, shared_by};
use super::{CopyQueueChoice, DeviceError};
use crate::parallel::locked;

/// Family of wgpu's queue.
const KERNELS: u32 = 0;

/// Stages of kernels that wait for copies.
const ALL: vk::PipelineStageFlags = vk::PipelineStageFlags::ALL_COMMANDS;

/// Nanoseconds after which a wait checks whether the device is lost.
const PATIENCE: u64 = 100_000_000;

fn failed(what: &str, result: vk::Result) -> DeviceError {
    DeviceError::Lost(format!("the Vulkan driver cannot {what} ({result})"))
}

/// The queue family for copies and the number of its queues that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFamily {
    index: u32,
    queues: u32,
}

impl QueueFamily {
    /// Returns what the device has to be opened with for these queues.
    pub fn create_info<'a>(self) -> Option<vk::DeviceQueueCreateInfo<'a>> {
        const PRIORITIES: [f32; 2] = [1.0; 2];
        let priorities = &PRIORITIES[..self.queues as usize];
        let info = vk::DeviceQueueCreateInfo::default().queue_family_index(self.index).queue_priorities(priorities);
        (self.index != KERNELS).then_some(info)
    }
}

/// Returns the family of the queues that are wanted; `None` if the device lacks it, or timeline
/// semaphores.
pub(super) fn family(adapter: &vulkan::Adapter, wanted: CopyQueueChoice) -> Option<QueueFamily> {
    let (shared, physical) = (adapter.shared_instance(), adapter.raw_physical_device());
    let instance = shared.raw_instance();
    let versions = [shared.instance_api_version(), adapter.physical_device_capabilities().properties().api_version];
    if versions.into_iter().any(|version| version < vk::API_VERSION_1_2) {
        return None;
    }
    let mut timelines = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
    let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut timelines);
    // SAFETY: the physical device belongs to the instance; the call is of Vulkan 1.1.
    unsafe { instance.get_physical_device_features2(physical, &mut features) };
    if timelines.timeline_semaphore == vk::FALSE {
        return None;
    }
    // SAFETY: as above.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    match wanted {
        CopyQueueChoice::Own => transfer_family(&families),
        CopyQueueChoice::Shared => Some(QueueFamily { index: KERNELS, queues: 1 }),
        CopyQueueChoice::Kernels => None,
    }
}

/// Returns the family for transfers alone.
fn transfer_family(families: &[vk::QueueFamilyProperties]) -> Option<QueueFamily> {
    let others = vk::QueueFlags::GRAPHICS
        | vk::QueueFlags::COMPUTE
        | vk::QueueFlags::VIDEO_DECODE_KHR
        | vk::QueueFlags::VIDEO_ENCODE_KHR
        | vk::QueueFlags::OPTICAL_FLOW_NV;
    let suits = |family: &vk::QueueFamilyProperties| {
        let flags = family.queue_flags;
        family.queue_count > 0 && flags.contains(vk::QueueFlags::TRANSFER) && !flags.intersects(others)
    };
    let found = (0..).zip(families).find(|(_, family)| suits(family));
    found.map(|(index, family)| QueueFamily { index, queues: family.queue_count.min(2) })
}

/// A semaphore that counts.
struct Timeline {
    device: ash::Device,
    raw: vk::Semaphore,
}

impl Timeline {
    fn new(device: &ash::Device) -> Result<Timeline, vk::Result> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is alive and has timeline semaphores.
        let raw = unsafe { device.create_semaphore(&info, None) }?;
        Ok(Timeline { device: device.clone(), raw })
    }

    fn value(&self) -> Result<u64, vk::Result> {
        // SAFETY: the semaphore is of this device.
        unsafe { self.device.get_semaphore_counter_value(self.raw) }
    }

    /// Sets the value, for which no submission will signal any more.
    fn set(&self, value: u64) -> Result<(), vk::Result> {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.raw).value(value);
        // SAFETY: the semaphore is of this device, and its value is less.
        unsafe { self.device.signal_semaphore(&info) }
    }

    /// Waits until the semaphore has `value`, or for [`PATIENCE`].
    fn wait(&self, value: u64) -> Result<(), vk::Result> {
        let (semaphores, values) = ([self.raw], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is of this device.
        unsafe { self.device.wait_semaphores(&info, PATIENCE) }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: what signals it or waits for it has ended.
        unsafe { self.device.destroy_semaphore(self.raw, None) };
    }
}

/// One queue for copies.
struct CopyQueue {
    device: ash::Device,
    raw: vk::Queue,
    /// Signaled by each submission.
    done: Timeline,
    state: Mutex<State>,
}

struct State {
    commands: vk::CommandPool,
    submitted: u64,
    free: Vec<vk::CommandBuffer>,
    /// Command buffers with the numbers of their submissions.
    used: VecDeque<(u64, vk::CommandBuffer)>,
}

/// A range of bytes that is copied between two raw buffers.
struct RawCopy {
    from: vk::Buffer,
    to: vk::Buffer,
    region: vk::BufferCopy,
}

impl CopyQueue {
    fn new(device: &ash::Device, family: u32, raw: vk::Queue) -> Result<CopyQueue, vk::Result> {
        let done = Timeline::new(device)?;
        let flags = vk::CommandPoolCreateFlags::TRANSIENT | vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family).flags(flags);
        // SAFETY: the device is alive and has this family.
        let commands = unsafe { device.create_command_pool(&info, None) }?;
        let state = State { commands, submitted: 0, free: Vec::new(), used: VecDeque::new() };
        Ok(CopyQueue { device: device.clone(), raw, done, state: Mutex::new(state) })
    }

    /// Submits copies that begin when `after` has its value. Returns the number of the submission.
    fn submit(
        &self,
        direction: StagingDirection,
        copies: &[RawCopy],
        after: (vk::Semaphore, u64),
    ) -> Result<u64, vk::Result> {
        let device = &self.device;
        let state = &mut *locked(&self.state);
        let finished = self.done.value()?;
        while state.used.front().is_some_and(|&(number, _)| number <= finished) {
            state.free.extend(state.used.pop_front().map(|(_, buffer)| buffer));
        }
        let commands = match state.free.pop() {
            Some(commands) => commands,
            None => {
                let info = vk::CommandBufferAllocateInfo::default()
                    .command_pool(state.commands)
                    .level(vk::CommandBufferLevel::PRIMARY)
                    .command_buffer_count(1);
                // SAFETY: the pool is this queue's own and locked.
                unsafe { device.allocate_command_buffers(&info) }?[0]
            }
        };
        let number = state.submitted + 1;
        let (buffers, signals, numbers) = ([commands], [self.done.raw], [number]);
        let (waits, values, stages) = ([after.0], [after.1], [vk::PipelineStageFlags::TRANSFER]);
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values).signal_semaphore_values(&numbers);
        let submission = vk::SubmitInfo::default()
            .command_buffers(&buffers)
            .wait_semaphores(&waits)
            .wait_dst_stage_mask(&stages)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        // SAFETY: the command buffer is not in use, the pool and the queue are locked, and the
        // buffers of the copies live until these are done.
        unsafe {
            record(device, commands, direction, copies)?;
            device.queue_submit(self.raw, &[submission], vk::Fence::null())?;
        }
        state.submitted = number;
        state.used.push_back((number, commands));
        Ok(number)
    }
}

impl Drop for CopyQueue {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        while self.done.wait(state.submitted) == Err(vk::Result::TIMEOUT) {}
        // SAFETY: the queue has ended all submissions, or the device is lost.
        unsafe { self.device.destroy_command_pool(state.commands, None) };
    }
}

/// Records copies with the barrier between device and host.
///
/// # Safety
/// The command buffer is not in use and its pool is locked.
unsafe fn record(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    direction: StagingDirection,
    copies: &[RawCopy],
) -> Result<(), vk::Result> {
    let begin = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
    let (host, transfer) = (vk::PipelineStageFlags::HOST, vk::PipelineStageFlags::TRANSFER);
    let barrier = vk::MemoryBarrier::default();
    let none = vk::DependencyFlags::empty();
    // SAFETY: as the caller promises.
    unsafe {
        device.begin_command_buffer(commands, &begin)?;
        if direction == StagingDirection::ToDevice {
            let read =
                barrier.src_access_mask(vk::AccessFlags::HOST_WRITE).dst_access_mask(vk::AccessFlags::TRANSFER_READ);
            device.cmd_pipeline_barrier(commands, host, transfer, none, &[read], &[], &[]);
        }
        for RawCopy { from, to, region } in copies {
            device.cmd_copy_buffer(commands, *from, *to, &[*region]);
        }
        if direction == StagingDirection::ToHost {
            let write =
                barrier.src_access_mask(vk::AccessFlags::TRANSFER_WRITE).dst_access_mask(vk::AccessFlags::HOST_READ);
            device.cmd_pipeline_barrier(commands, transfer, host, none, &[write], &[], &[]);
        }
        device.end_command_buffer(commands)
    }
}

/// The queues of a device for copies.
pub(super) struct CopyQueues {
    queue: wgpu::Queue,
    families: [u32; 2],
    /// Signaled by wgpu's queue, with the last number that was asked for.
    kernels: Timeline,
    asked: Mutex<u64>,
    /// Out of arrays, and into them.
    queues: [Arc<CopyQueue>; 2],
}

impl CopyQueues {
    /// Creates the queues of a device that was opened with those of `family`; `None` if the driver
    /// refuses.
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue, family: QueueFamily) -> Option<CopyQueues> {
        // SAFETY: the handles are used while the device lives, and it is not destroyed.
        let hal = unsafe { device.as_hal::<api::Vulkan>() }?;
        let raw = hal.raw_device();
        let create = |number: u32| {
            // SAFETY: the device was opened with this many queues of the family.
            let queue = unsafe { raw.get_device_queue(family.index, number) };
            CopyQueue::new(raw, family.index, queue).map(Arc::new)
        };
        let first = create(0).ok()?;
        let second = if family.queues > 1 { create(1).ok()? } else { first.clone() };
        let kernels = Timeline::new(raw).ok()?;
        let (families, queues) = ([KERNELS, family.index], [first, second]);
        Some(CopyQueues { queue: queue.clone(), families, kernels, asked: Mutex::new(0), queues })
    }

    /// Returns the number of queues.
    pub fn count(&self) -> u32 {
        if Arc::ptr_eq(&self.queues[0], &self.queues[1]) { 1 } else { 2 }
    }

    /// Returns the families of queues that use the buffers of copies.
    pub fn families(&self) -> &[u32] {
        &self.families
    }

    /// Submits copies between an array for exchanges and imported memory, after everything
    /// submitted before. The buffers have to live until the copies are done.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn copy(&self, direction: StagingDirection, copies: &[BufferCopy<'_>]) -> Result<CopyCompletion, DeviceError> {
        let lost = || DeviceError::Lost("the device has no Vulkan buffers any more".into());
        let raw = |buffer: &wgpu::Buffer| {
            // SAFETY: the handle is used while the buffer lives, as the caller promises.
            unsafe { buffer.as_hal::<api::Vulkan>().map(|buffer| buffer.raw_handle()) }.ok_or_else(lost)
        };
        let raw_copy = |copy: &BufferCopy<'_>| {
            let region = vk::BufferCopy { src_offset: copy.from.1, dst_offset: copy.to.1, size: copy.bytes };
            Ok(RawCopy { from: raw(copy.from.0)?, to: raw(copy.to.0)?, region })
        };
        let raw_copies = copies.iter().map(raw_copy).collect::<Result<Vec<_>, DeviceError>>()?;
        let after = (self.kernels.raw, self.mark()?);
        let queue = &self.queues[usize::from(direction == StagingDirection::ToDevice)];
        let number = queue.submit(direction, &raw_copies, after).map_err(|result| failed("submit copies", result))?;
        let (kernels, queue, is_seen) = (self.queue.clone(), queue.clone(), AtomicBool::new(false));
        Ok(CopyCompletion { kernels, queue, number, is_seen })
    }

    /// Returns the value that `kernels` gets when everything submitted so far has ended.
    fn mark(&self) -> Result<u64, DeviceError> {
        let asked = &mut *locked(&self.asked);
        *asked += 1;
        // SAFETY: the handle is used while the queue lives. If another thread submits first, its
        // submission signals: that is behind everything before, too.
        let hal = unsafe { self.queue.as_hal::<api::Vulkan>() };
        let hal = hal.ok_or_else(|| DeviceError::Lost("the queue is not a Vulkan queue".into()))?;
        hal.add_signal_semaphore(self.kernels.raw, Some(*asked));
        drop(hal);
        self.queue.submit([]);
        Ok(*asked)
    }

    /// Returns a buffer of device memory for an array that kernels and copies use.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn buffer(
        &self,
        device: &wgpu::Device,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Result<wgpu::Buffer, String> {
        let refused = |result: vk::Result| format!("the Vulkan driver refuses a buffer ({result})");
        // SAFETY: the handles are used while the device lives, and it is not destroyed.
        let hal = unsafe { device.as_hal::<api::Vulkan>() }.ok_or("the device is not a Vulkan device")?;
        let raw = hal.raw_device();
        let mut own = OwnBuffer::new(raw, Box::new(()));
        let flags = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info = shared_by(&self.families).size(descriptor.size).usage(flags);
        // SAFETY: the device is alive and has the families; `own` destroys buffer and memory.
        own.buffer = unsafe { raw.create_buffer(&info, None) }.map_err(refused)?;
        // SAFETY: the buffer is of this device.
        let needed = unsafe { raw.get_buffer_memory_requirements(own.buffer) };
        let wanted = [vk::MemoryPropertyFlags::DEVICE_LOCAL, vk::MemoryPropertyFlags::empty()];
        let kind = memory_type(&hal, needed.memory_type_bits, wanted).ok_or("no memory type suits the buffer")?;
        let info = vk::MemoryAllocateInfo::default().allocation_size(needed.size).memory_type_index(kind);
        // SAFETY: as above.
        unsafe {
            own.memory = raw.allocate_memory(&info, None).map_err(refused)?;
            raw.bind_buffer_memory(own.buffer, own.memory, 0).map_err(refused)?;
        }
        drop(hal);
        // SAFETY: the buffer is of this device and has this size and these usages. Its values are
        // not defined, as those of every array.
        Ok(unsafe { own.into_wgpu(device, descriptor) })
    }
}

impl Drop for CopyQueues {
    fn drop(&mut self) {
        let asked = *self.asked.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut submitted = asked;
        // SAFETY: the handle is used while the queue lives.
        if let Some(hal) = unsafe { self.queue.as_hal::<api::Vulkan>() } {
            self.queues.iter().for_each(|queue| while hal.remove_wait_semaphore(queue.done.raw) {});
            // wgpu failed to submit what would signal these values.
            while hal.remove_signal_semaphore(self.kernels.raw) {
                submitted -= 1;
            }
        }
        while self.kernels.wait(submitted) == Err(vk::Result::TIMEOUT) {}
        if submitted < asked {
            // Copies that wait for the last value would never end. Failure means a lost device.
            let _ = self.kernels.set(asked);
        }
    }
}

/// Completion of copies on a queue of their own. Their memory has to live until then.
pub(super) struct CopyCompletion {
    kernels: wgpu::Queue,
    queue: Arc<CopyQueue>,
    number: u64,
    is_seen: AtomicBool,
}

impl CopyCompletion {
    /// Returns `true` once the copies are done. What is submitted from then on sees them.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn is_done(&self) -> Result<bool, DeviceError> {
        if self.is_seen.load(Ordering::Acquire) {
            return Ok(true);
        }
        let value = self.queue.done.value().map_err(|result| failed("count copies", result))?;
        if value < self.number {
            return Ok(false);
        }
        if !self.is_seen.swap(true, Ordering::AcqRel) {
            // SAFETY: the handle is used while the queue lives.
            if let Some(hal) = unsafe { self.kernels.as_hal::<api::Vulkan>() } {
                // It has the value, so that nothing waits; it makes the copies visible.
                hal.add_wait_semaphore(self.queue.done.raw, Some(self.number), ALL);
            }
        }
        Ok(true)
    }

    /// Waits for the copies for [`PATIENCE`] at most.
    pub fn wait(&self) {
        // The next look at the completion finds what went wrong.
        let _ = self.queue.done.wait(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_for_copies_are_of_a_family_for_transfers_alone() {
        let family =
            |flags, queue_count| vk::QueueFamilyProperties { queue_flags: flags, queue_count, ..Default::default() };
        let (transfer, sparse) = (vk::QueueFlags::TRANSFER, vk::QueueFlags::SPARSE_BINDING);
        let all = family(vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE | transfer | sparse, 16);
        let compute = family(vk::QueueFlags::COMPUTE | transfer, 8);
        let video = family(vk::QueueFlags::VIDEO_DECODE_KHR | transfer, 1);
        // As of an H100, of a card with one engine for copies, and of a software renderer.
        let found = transfer_family(&[all, family(transfer | sparse, 8), compute]);
        assert_eq!(found, Some(QueueFamily { index: 1, queues: 2 }));
        let found = transfer_family(&[all, compute, video, family(transfer, 1)]);
        assert_eq!(found, Some(QueueFamily { index: 3, queues: 1 }));
        assert_eq!(transfer_family(&[all]), None);
        assert_eq!(transfer_family(&[all, family(transfer, 0)]), None);
    }
}
