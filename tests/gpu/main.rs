//! All tests of the library that work on a device and need nothing else, in one program: for a machine with a GPU on which
//! nothing can be built (`scripts/gpu.sh`). `cargo test` runs them one by one instead.
#![expect(clippy::duplicate_mod, reason = "what tests share is a module of each")]

#[path = "../catalogue.rs"]
mod catalogue;
#[path = "../components.rs"]
mod components;
#[path = "../device.rs"]
mod device;
#[path = "../device_collectives.rs"]
mod device_collectives;
#[path = "../distributed_search.rs"]
mod distributed_search;
#[path = "../exchange.rs"]
mod exchange;
#[path = "../fft.rs"]
mod fft;
#[path = "../fft_boxes.rs"]
mod fft_boxes;
#[path = "../fft_lengths.rs"]
mod fft_lengths;
#[path = "../ghost_cells.rs"]
mod ghost_cells;
#[path = "../gradient.rs"]
mod gradient;
#[path = "../groups.rs"]
mod groups;
#[path = "../guest.rs"]
mod guest;
#[path = "../inference_device.rs"]
mod inference_device;
#[path = "../inference_models.rs"]
mod inference_models;
#[path = "../inference_ranks.rs"]
mod inference_ranks;
#[path = "../linear_operators.rs"]
mod linear_operators;
#[path = "../map.rs"]
mod map;
#[path = "../mesh.rs"]
mod mesh;
#[path = "../neighbors.rs"]
mod neighbors;
#[path = "../operators.rs"]
mod operators;
#[path = "../particles.rs"]
mod particles;
#[path = "../point_kernels.rs"]
mod point_kernels;
#[path = "../pointwise.rs"]
mod pointwise;
#[path = "../primitives.rs"]
mod primitives;
#[path = "../redistribution.rs"]
mod redistribution;
#[path = "../scales.rs"]
mod scales;
#[path = "../simulation.rs"]
mod simulation;
#[path = "../simulation_operator.rs"]
mod simulation_operator;
#[path = "../sort.rs"]
mod sort;
#[path = "../soundness.rs"]
mod soundness;
#[path = "../tuning.rs"]
mod tuning;
