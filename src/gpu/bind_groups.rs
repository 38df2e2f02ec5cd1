//! Bind groups that dispatches used before: drivers take microseconds to make one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use crate::parallel::locked;

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
/// no room for begin the next. They keep their buffers alive.
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
