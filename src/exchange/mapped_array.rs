//! Arrays that the host reads or writes without a copy.

use crate::gpu::{DeviceError, Gpu, Loan, Map, RawArray};

/// The buffers of an array, mapped or to be mapped as soon as the device is done with them. Nobody else can use the array meanwhile.
pub(super) struct MappedArray {
    /// Unmapped before the array is given back: fields are dropped in this order.
    maps: Vec<Map>,
    _loan: Loan,
}

impl MappedArray {
    /// Asks for the mapping; does not wait.
    pub fn begin(gpu: &Gpu, array: &RawArray, mode: wgpu::MapMode) -> Result<Self, DeviceError> {
        let loan = array.lend()?;
        let maps = array.buffers().map(|buffer| Map::begin(gpu, buffer, mode, buffer.size())).collect();
        Ok(MappedArray { maps, _loan: loan })
    }

    /// Whether all buffers are mapped.
    pub fn is_ready(&self) -> Result<bool, DeviceError> {
        self.maps.iter().try_fold(true, |ready, map| Ok(ready & map.is_ready()?))
    }
}
