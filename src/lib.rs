//! Simulations made of fields and particles on any GPU, over any number of devices or MPI ranks.
//!
//! meshloom has distributed Fourier transforms, stencils with ghost cells, particles with neighbor
//! searches, the particle-mesh method, differentiable operators and inference. Kernels are WGSL and
//! run through [`wgpu`] on Vulkan, Metal, DX12 and software renderers. It does not use CUDA.
//!
//! A program is written once, from the view of one rank. [`run`] runs it alone, as threads
//! (`MESHLOOM_RANKS=4`) or as the processes of `mpirun` (feature `mpi`). It meets four types:
//!
//! - [`Rank`]: one rank with its communicator and device, and the methods of all modules.
//! - [`Mesh`]: a grid of cells in a box, cut over ranks.
//! - [`Field`]: an array on a device that knows its mesh.
//! - [`Particles`](points::Particles): points with attributes.
//!
//! ```
//! meshloom::run(|rank| {
//!     let mesh = rank.mesh([16, 12, 20]).periodic([1.0; 3]).build()?;
//!     let field = rank.fill(&mesh, |[x, _, _]| (std::f64::consts::TAU * x).sin())?;
//!
//!     // A Gaussian filter: a forward transform, a factor for each mode, an inverse transform.
//!     let smooth = rank.filter(&field, |k| (-0.005 * k.squared()).exp())?;
//!     let power = rank.dot(&smooth, &smooth)? / rank.dot(&field, &field)?;
//!     assert!((power - (-0.01 * 39.478_f64).exp()).abs() < 1e-5);
//!
//!     // All cells on rank 0, in C order.
//!     if let Some(cells) = rank.gather(&smooth, 0)? {
//!         assert_eq!(cells.len(), 16 * 12 * 20);
//!     }
//!     Ok(())
//! })?;
//! # Ok::<(), meshloom::Error>(())
//! ```
//!
//! # Where to begin
//!
//! | task | start at | example program |
//! |---|---|---|
//! | transforms and filters | [`Rank::fft`], [`Rank::filter`] | `filtered_field` |
//! | stencils with ghost cells | [`Rank::stencil`] | `wave`, `own_stencil` |
//! | neighbors, sums over neighbors, moving particles | [`Particles`](points::Particles) | `sph_sum`, `molecular_dynamics` |
//! | halos and groups | [`points::fof`] | `groups`, `halos` |
//! | a cosmological simulation and its gradient | [`pm`] | `simulation`, `initial_conditions` |
//! | models with derivatives, posteriors | [`operators`], [`inference`] | `own_kernel_posterior`, `posterior` |
//! | kernels of your own | [`low_level`] | |
//! | a guest on your own wgpu device | [`gpu::Gpu::from_wgpu`], [`Rank::new`] | `guest` |
//!
//! # Modules
//! Each imports only what stands below it.
//!
//! | module | contents |
//! |---|---|
//! | [`inference`] | posteriors of the latent values of a model: variational fits, samples, evidence |
//! | [`pm`] | the cosmological particle-mesh run and its adjoint |
//! | [`map`](mod@map) | functions of many items over ranks, in order or reduced to the same bits; Jacobians |
//! | [`operators`] | differentiable functions of fields: pointwise functions in WGSL, transforms, filters, sums |
//! | [`mesh`] | painting, readout, power spectra |
//! | [`points`] | particles: sorts, trees, ghosts, neighbor searches, friends-of-friends groups |
//! | [`fft`] | distributed transforms of real and complex fields |
//! | [`field`] | fields: creation, files, ghost cells, sums, stencils |
//! | [`rank`] | the rank: communicator, device, cached plans |
//! | [`exchange`] | movement of device data between ranks; [`ghost_cells`](exchange::ghost_cells), [`collectives`](exchange::collectives) |
//! | [`io`] | NumPy and HDF5 files, tables and pictures that many ranks write together |
//! | [`gpu`] | adapters, arrays, kernels, recording; [`primitives`](gpu::primitives): scan, reduction, sort |
//! | [`cluster`] | a model of machines, which forecasts of time follow |
//! | [`comm`] | communicators: one rank, threads or MPI |
//! | [`cosmology`] | background, growth, linear power, mass functions (host, f64) |
//! | [`random`] | counter-based random numbers and white noise |
//! | [`grid`] | meshes, process grids, ghost regions, redistributions: plain data |
//! | [`host_memory`] | allocations of host memory that fail with an error |
//!
//! # Terms
//! - A *collective* method must be called by every rank, in the same order and with agreeing
//!   arguments; otherwise it fails on all ranks.
//! - A method *blocks* if it waits for the device or for another rank.
//! - A method *records* if it appends commands to the recorder; nothing runs before the next
//!   submission.
//! - *Same bits*: the result does not depend on the number of ranks, the decomposition, chunks or
//!   windows, on one driver. Different drivers agree to rounding.
//!
//! # Guarantees
//! - Every kernel runs within WebGPU's default limits, without optional features.
//! - Results that claim it have the same bits on any number of ranks.
//! - Errors are typed ([`Error`]) and say what to do; a rank that fails ends all ranks.
//!
//! # Tracing
//! The library emits events of [`tracing`]: opened devices, process grids, plans and compiled
//! kernels at level `debug`, collectives with their arguments at level `trace`.
//!
//! Target `meshloom::timeline` at level `trace` has the timeline of each rank:
//! - Spans on the thread of the rank: the whole rank (`rank`, with its number), submissions, waits
//!   for the device or for a rank (`peer`), uploads, downloads, collectives, exchanges, compiled
//!   kernels, plans and files. A field `name` replaces the name of the span.
//! - Events of work that the thread does not do itself: a compute pass (`track = "device"`), a
//!   message or a chunk of an exchange (`track = "messages"`). They have `name`, and `begin` and
//!   `end` in nanoseconds; the field `clock` of `rank` is the beginning of that span by this clock.
//!
//! A subscriber of this target makes each kernel a compute pass of its own, with its name as label.
//! `meshloom --trace` writes the timeline to a file.
//!
//! # Interoperating with wgpu and MPI
//! The library uses a caller's communicator ([`Communicator::from_mpi`](comm::Communicator),
//! feature `mpi`), a caller's [`wgpu::Device`], whose handlers it leaves alone
//! ([`Gpu::from_wgpu`](gpu::Gpu::from_wgpu)), and their buffers
//! ([`Array::from_buffer`](gpu::Array::from_buffer)). It gives out the buffers of its arrays
//! ([`Array::bindings`](gpu::Array::bindings)) and puts its work into a caller's encoder
//! ([`Recorder::encode_into`](gpu::Recorder::encode_into)).
//!
//! The version of wgpu is that of [`crate::wgpu`], which is re-exported. Call
//! [`Gpu::from_wgpu`](gpu::Gpu::from_wgpu) once for each device and give clones to the ranks of its
//! threads: `Rank::new(comm, gpu.clone())` inside [`run_threads`](comm::run_threads). Exchanges
//! between ranks submit what was recorded before; what `encode_into` encodes is the rest.
//!
//! # Stability
//! Errors, capabilities and reports are `#[non_exhaustive]`. Structs of options have public fields
//! and `Default`: new fields are not breaking changes, so end literals with `..Default::default()`.
//! Items of [`low_level`] and of the modules `exchange`, `grid` and `gpu::primitives` may change
//! between minor versions before 1.0.

// On docs.rs every item shows the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod errors;
pub mod cluster;
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
pub mod low_level;
pub mod map;
pub mod mesh;
pub mod operators;
mod parallel;
pub mod pm;
pub mod points;
mod printable;
pub mod random;
pub mod rank;
mod timeline;

#[cfg(all(test, target_os = "linux"))]
#[path = "../tests/scale/mod.rs"]
mod scale;

/// The examples of README and guides, which documentation tests run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/ci.md")]
    struct Ci;
    #[doc = include_str!("../docs/collectives.md")]
    struct Collectives;
    #[doc = include_str!("../docs/concepts.md")]
    struct Concepts;
    #[doc = include_str!("../docs/fft.md")]
    struct Fft;
    #[doc = include_str!("../docs/from-arborx-heffte.md")]
    struct FromArborxHeffte;
    #[doc = include_str!("../docs/from-jax.md")]
    struct FromJax;
    #[doc = include_str!("../docs/gradients.md")]
    struct Gradients;
    #[doc = include_str!("../docs/inference.md")]
    struct Inference;
    #[doc = include_str!("../docs/map.md")]
    struct Map;
    #[doc = include_str!("../docs/operators.md")]
    struct Operators;
    #[doc = include_str!("../docs/particles.md")]
    struct Particles;
    #[doc = include_str!("../docs/simulate.md")]
    struct Simulate;
    #[doc = include_str!("../docs/start-rust.md")]
    struct StartRust;
}

/// The result of an operation that fails with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[doc(hidden)]
pub use bytemuck;
pub use error::Error;
pub use fft::{Spectrum, Wavevector};
pub use field::Field;
pub use grid::Mesh;
pub use kernels::kernels;
pub use launch::{Launch, ShareOption, launch, launch_with_code, run};
pub use rank::Rank;
pub use wgpu;
