//! Simulations made of fields and particles on any GPU, over any number of devices or MPI ranks.
//!
//! meshloom gives distributed Fourier transforms, exchange of ghost cells, deterministic particle-mesh kernels and a
//! cosmological simulation built on them. Kernels are WGSL through [`wgpu`] (Vulkan, Metal, DX12, software renderers); ranks are
//! threads of one process or MPI processes (feature `mpi`).
//!
//! A program is written once, from the view of one rank, and [`launch`] runs it alone, on threads or under MPI. A rank works
//! with its [`Rank`]: a communicator, a device, a recorder of work and an exchange of device data.
//!
//! ```
//! use meshloom::{Error, Launch, exchange::GridComms, fft::Transform, gpu::Options, grid::Grid, launch};
//!
//! let shape = [8, 6, 10];
//! let sums = launch(Launch::detect(2), &Options::from_env()?, |context| {
//!     let grid = Grid::auto(shape, context.comm.size());
//!     let mut comms = GridComms::new(&context.comm, grid)?;
//!     let transform = Transform::new(&context.gpu, shape, grid, context.comm.rank())?;
//!     let recorder = &mut context.recorder;
//!
//!     let layout = transform.field_layout(); // this rank's cells
//!     let field = context.gpu.array::<f32>("field", layout.len())?;
//!     recorder.upload(&field, 0, &vec![1.0; layout.len() as usize])?;
//!
//!     let spectrum = transform.spectrum(&context.gpu)?; // this rank's modes
//!     transform.forward(recorder, &mut comms, &field, &layout, &spectrum)?;
//!     transform.inverse(recorder, &mut comms, &spectrum, None, &field, &layout)?;
//!     Ok::<_, Error>(recorder.download(&field, 0, layout.len())?.iter().sum::<f32>())
//! })?;
//! assert!((sums.iter().sum::<f32>() - 480.0).abs() < 1e-3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms
//! Each imports only what stands below it (`ARCHITECTURE.md` shows the way of a run through them).
//!
//! | room | what it is |
//! |---|---|
//! | [`inference`] | what data say about the latent values of a model, and how sure that is |
//! | [`pm`] | a cosmological particle-mesh run |
//! | [`map`](mod@map) | functions of many items over ranks and chunks, in order or reduced to the same bits; Jacobians |
//! | [`operators`] | functions of fields with their derivatives; pointwise functions in WGSL, transforms, filters, sums |
//! | [`mesh`] | paint, readout, power spectra |
//! | [`points`] | clouds of points in periodic or open boxes: curves, [`sort`](points::sort) over all ranks, [`tree`](points::tree)s, [`ghosts`](points::ghosts), [`neighbors`](points::neighbors), friends-of-friends groups ([`fof`](points::fof)) |
//! | [`fft`] | distributed transforms of real and complex fields |
//! | [`exchange`] | staged, chunked movement of device data between ranks; [`ghost_cells`](exchange::ghost_cells) and their adjoint |
//! | [`io`] | NumPy files, snapshots in HDF5, tables and pictures that many ranks write together ([`collective`](io::collective)) |
//! | [`gpu`] | adapters, arrays in windows, kernels, recording; [`primitives`](gpu::primitives): scan, reduction, permutation, radix sort |
//! | [`comm`] | [`Communicator`](comm::Communicator): one rank, threads or MPI; bytes, no device code |
//! | [`cosmology`] | background, growth, linear power, schedules, mass functions (host, f64) |
//! | [`grid`] | boxes, process grids, ghost regions, redistributions: pure data |
//! | [`host_memory`] | allocations of host memory that fail with an error |
//!
//! # What is promised
//! - **Floor.** Every kernel runs within WebGPU's default limits, without optional features.
//! - **Same bits on any number of ranks**, decomposition, chunk size and window size, on one driver. Different drivers
//!   agree to rounding.
//! - **Errors are typed** ([`Error`]) and say what to do; a rank that fails ends all ranks.
//!
//! # As a guest
//! The library takes a caller's communicator ([`Communicator::from_mpi`](comm::Communicator), feature `mpi`), a caller's
//! [`wgpu::Device`], whose handlers it leaves alone ([`Gpu::from_wgpu`](gpu::Gpu::from_wgpu)), and their buffers
//! ([`Array::from_buffer`](gpu::Array::from_buffer)). It gives the buffers of its arrays ([`Array::bindings`](gpu::Array::bindings)) and puts
//! its work into a caller's encoder ([`Recorder::encode_into`](gpu::Recorder::encode_into)).

// On docs.rs every item shows the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod message_debug;
pub mod comm;
pub mod cosmology;
mod error;
pub mod exchange;
pub mod fft;
pub mod field;
pub mod gpu;
pub mod grid;
mod hash;
mod host;
pub mod host_memory;
pub mod inference;
pub mod io;
mod kernels;
mod launch;
pub mod map;
pub mod mesh;
pub mod operators;
pub mod pm;
pub mod points;
mod printable;
pub mod rank;

/// The result of an operation that fails with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[doc(hidden)]
pub use bytemuck;
pub use error::Error;
pub use fft::{Spectrum, Wavevector};
pub use field::Field;
pub use grid::Mesh;
pub use kernels::kernels;
pub use launch::{Launch, launch, launch_with_code, run};
pub use rank::Rank;
pub use wgpu;
