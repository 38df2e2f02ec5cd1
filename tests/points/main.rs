//! Points: order, trees, neighbors, groups, particles.

#[path = "../shared/clouds.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod clouds;
#[path = "../../examples/molecular_dynamics.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod molecular_dynamics;
#[path = "../shared/point_twins.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod point_twins;
#[path = "../shared/searches.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod searches;
#[path = "../../examples/sph_sum.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod sph_sum;

#[cfg(feature = "catalog")]
mod catalog;
mod components;
mod distributed_search;
#[cfg(feature = "catalog")]
mod groups;
mod neighbors;
mod overdensity;
mod particles;
mod particles_api;
mod point_kernels;
mod scales;
mod sort;
