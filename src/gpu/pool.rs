//! The buffers of a device: how many bytes they take, and those that wait to be used again.
//!
//! wgpu clears each new buffer before its first use and drivers allocate slowly, so arrays hand
//! their buffers back here. Sizes are rounded up to classes of two mantissa bits (4, 5, 6
//! and 7 times 2^k), so that arrays of nearly equal sizes can use the same buffers; those above 32
//! MiB only to whole MiB, so that they do not waste memory.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::DeviceError;
use super::open_device::OpenDevice;
use crate::parallel::locked;

/// Memory of an array, by its users besides kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Device memory.
    Device,
    /// Read by the host after kernels wrote it: mappable where device memory is host memory anyway.
    Outgoing,
    /// Written by the host before kernels read it: likewise.
    Incoming,
}

impl MemoryKind {
    /// Returns what its buffers are used for; `host_visible` where they can be mapped.
    fn usage(self, host_visible: bool) -> wgpu::BufferUsages {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        match self {
            MemoryKind::Outgoing if host_visible => usage | wgpu::BufferUsages::MAP_READ,
            MemoryKind::Incoming if host_visible => usage | wgpu::BufferUsages::MAP_WRITE,
            _ => usage,
        }
    }
}

type Free = HashMap<(MemoryKind, u64), Vec<wgpu::Buffer>>;

/// The buffers of one device.
#[derive(Default)]
pub(super) struct Pool {
    free: Mutex<Free>,
    allocated: AtomicU64,
    /// Buffers that were asked of the driver so far.
    pub allocations: AtomicU64,
    /// Bytes of free buffers.
    waiting: AtomicU64,
    /// The most bytes that were in use at a time.
    pub most_used: AtomicU64,
    /// Bind groups of the buffers.
    pub groups: BindGroups,
}

impl Pool {
    /// Returns a buffer of `bytes` bytes at least, for arrays of this kind.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn take(
        &self,
        open: &OpenDevice,
        label: &str,
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<wgpu::Buffer, DeviceError> {
        let size = class(bytes).min(open.capabilities.buffer_bytes);
        if let Some(buffer) = locked(&self.free).get_mut(&(kind, size)).and_then(Vec::pop) {
            self.waiting.fetch_sub(size, Ordering::Relaxed);
            self.note_use();
            return Ok(buffer);
        }
        let usage = kind.usage(open.capabilities.host_visible);
        let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
        match &open.copies {
            Some(copies) if kind != MemoryKind::Device => {
                self.obtain(open, &descriptor, || open.attempt(|| copies.buffer(&open.device, &descriptor)).ok()?.ok())
            }
            _ => self.obtain(open, &descriptor, || open.attempt(|| open.device.create_buffer(&descriptor)).ok()),
        }
    }

    /// Notes how much is in use, if it is the most so far.
    fn note_use(&self) {
        let used = self.allocated().saturating_sub(self.waiting.load(Ordering::Relaxed));
        self.most_used.fetch_max(used, Ordering::Relaxed);
    }

    /// Keeps a buffer of [`take`](Self::take) for the next who asks.
    pub fn give(&self, kind: MemoryKind, buffer: wgpu::Buffer) {
        self.waiting.fetch_add(buffer.size(), Ordering::Relaxed);
        locked(&self.free).entry((kind, buffer.size())).or_default().push(buffer);
    }

    /// Returns a buffer straight from the driver, counted. Where memory is short, free buffers are
    /// given up for it.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn allocate(
        &self,
        open: &OpenDevice,
        label: &str,
        size: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, DeviceError> {
        let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
        self.obtain(open, &descriptor, || open.attempt(|| open.device.create_buffer(&descriptor)).ok())
    }

    /// Returns the buffer that `make` gets from the driver, counted.
    fn obtain(
        &self,
        open: &OpenDevice,
        descriptor: &wgpu::BufferDescriptor<'_>,
        make: impl Fn() -> Option<wgpu::Buffer>,
    ) -> Result<wgpu::Buffer, DeviceError> {
        let (label, size) = (descriptor.label.unwrap_or_default(), descriptor.size);
        let capacity = open.capabilities.memory;
        let fits = || capacity.is_none_or(|capacity| self.allocated() + size <= capacity);
        if !fits() {
            self.make_room(open);
        }
        let error =
            || DeviceError::OutOfMemory { label: label.into(), needed: size, in_use: self.allocated(), capacity };
        if !fits() {
            return Err(error());
        }
        let buffer = make().or_else(|| {
            self.make_room(open);
            make()
        });
        let buffer = buffer.ok_or_else(error)?;
        self.allocations.fetch_add(1, Ordering::Relaxed);
        self.allocated.fetch_add(size, Ordering::Relaxed);
        self.note_use();
        Ok(buffer)
    }

    /// A buffer of [`take`](Self::take) or [`allocate`](Self::allocate) is gone.
    pub fn forget(&self, buffer: &wgpu::Buffer) {
        self.groups.remove(buffer);
        self.allocated.fetch_sub(buffer.size(), Ordering::Relaxed);
    }

    /// Gives the free buffers back to the driver and waits until it has them: work that was
    /// submitted may still use them.
    fn make_room(&self, open: &OpenDevice) {
        self.trim();
        // That the device is lost is for the next call to say.
        let _ = open.poll_once(wgpu::PollType::Wait { submission_index: None, timeout: None });
    }

    /// Gives the free buffers back to the driver, which frees each when submitted work no longer
    /// uses it.
    pub fn trim(&self) {
        self.groups.clear();
        let freed: u64 = locked(&self.free).drain().flat_map(|(_, buffers)| buffers).map(|buffer| buffer.size()).sum();
        self.allocated.fetch_sub(freed, Ordering::Relaxed);
        self.waiting.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Returns the bytes of buffers that are in use or free.
    pub fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }
}

/// Returns the bytes to allocate for `bytes` bytes: up to 32 MiB the next of 4, 5, 6 and 7 times
/// 2^k, at least 256; above that whole MiB.
pub(crate) fn class(bytes: u64) -> u64 {
    if bytes > 32 << 20 {
        return bytes.next_multiple_of(1 << 20);
    }
    let bytes = bytes.max(256);
    bytes.next_multiple_of(1 << (bytes.ilog2() - 2))
}

/// Groups of a generation. A step of the longest simulations and fits uses fewer.
const MOST: usize = 512;

/// Layout and windows of a bind group.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Bound {
    layout: wgpu::BindGroupLayout,
    /// Buffer, offset and size of each binding.
    windows: Vec<(wgpu::Buffer, u64, Option<wgpu::BufferSize>)>,
}

impl Bound {
    pub fn new<'a>(layout: &wgpu::BindGroupLayout, windows: impl Iterator<Item = wgpu::BufferBinding<'a>>) -> Self {
        let windows = windows.map(|window| (window.buffer.clone(), window.offset, window.size)).collect();
        Bound { layout: layout.clone(), windows }
    }
}

type Groups = HashMap<Bound, wgpu::BindGroup>;

/// The groups of a device that were used last, of two generations: those that the younger one has
/// no room for begin the next. They keep their buffers alive. Drivers take microseconds to make
/// one.
#[derive(Default)]
pub(super) struct BindGroups(Mutex<[Groups; 2]>);

impl BindGroups {
    /// Returns the group of these bindings, which `make` makes if it is new.
    pub fn get(&self, bound: Bound, make: impl FnOnce() -> wgpu::BindGroup) -> wgpu::BindGroup {
        let found = {
            let [young, old] = &mut *locked(&self.0);
            if let Some(group) = young.get(&bound) {
                return group.clone();
            }
            old.remove(&bound)
        };
        let group = found.unwrap_or_else(make);
        let [young, old] = &mut *locked(&self.0);
        if young.len() >= MOST {
            *old = std::mem::take(young);
        }
        young.insert(bound, group.clone());
        group
    }

    /// Drops the groups that bind a buffer.
    pub fn remove(&self, buffer: &wgpu::Buffer) {
        let others = |bound: &Bound| bound.windows.iter().all(|(bound, ..)| bound != buffer);
        locked(&self.0).iter_mut().for_each(|groups| groups.retain(|bound, _| others(bound)));
    }

    /// Drops all groups.
    pub fn clear(&self) {
        locked(&self.0).iter_mut().for_each(Groups::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Gpu, Options};

    #[test]
    fn classes_hold_their_size_and_waste_at_most_a_quarter() {
        for bytes in [1u64, 255, 256, 257, 384, 385, 512, 1000, 1536, 1537, 1 << 30, (1 << 30) + 1] {
            let class = class(bytes);
            assert!(class >= bytes, "{bytes} in {class}");
            assert!(bytes <= 256 || class <= bytes * 5 / 4, "{bytes} in {class}");
            assert_eq!(class % 64, 0, "{bytes} in {class}");
        }
    }

    #[test]
    fn groups_are_made_once_until_their_buffers_go() {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        let ty = wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: false },
            has_dynamic_offset: false,
            min_binding_size: None,
        };
        let entry = wgpu::BindGroupLayoutEntry { binding: 0, visibility: wgpu::ShaderStages::COMPUTE, ty, count: None };
        let layout = wgpu::BindGroupLayoutDescriptor { label: None, entries: &[entry] };
        let layout = gpu.device().create_bind_group_layout(&layout);
        let usage = wgpu::BufferUsages::STORAGE;
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: 16 * MOST as u64, usage, mapped_at_creation: false };
        let [first, second] = [(); 2].map(|()| gpu.device().create_buffer(&descriptor));
        let groups = BindGroups::default();
        // Returns whether the group of a buffer and a size was new.
        let is_new = |buffer: &wgpu::Buffer, bytes: u64| {
            let window = wgpu::BufferBinding { buffer, offset: 0, size: wgpu::BufferSize::new(bytes) };
            let mut made = false;
            groups.get(Bound::new(&layout, std::iter::once(window.clone())), || {
                made = true;
                let entries = &[wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(window) }];
                gpu.device().create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout: &layout, entries })
            });
            made
        };
        assert!(is_new(&first, 4) && is_new(&first, 8) && is_new(&second, 4));
        assert!(!is_new(&first, 4) && !is_new(&first, 8) && !is_new(&second, 4));
        groups.remove(&first);
        assert!(is_new(&first, 4) && !is_new(&second, 4));
        groups.clear();
        assert!(is_new(&second, 4));
        assert!(is_new(&first, 4));
        // Three generations: a group that is used now and then stays, one that is not used goes.
        for n in 2..=3 * MOST as u64 {
            is_new(&first, 4 * n);
            assert!(n % 100 > 0 || !is_new(&second, 4));
        }
        assert!(is_new(&first, 4) && !is_new(&second, 4));
        assert!(locked(&groups.0).iter().map(Groups::len).sum::<usize>() <= 2 * MOST);
    }
}
