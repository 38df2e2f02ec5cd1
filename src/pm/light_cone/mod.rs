//! The past light cone of an observer: particles at the positions from which their light arrives
//! today.
//!
//! | item | what it is |
//! |---|---|
//! | [`Cone`] | what is kept: observer, distance, part of the sky; checked and priced before a run |
//! | `cone` | also: the cone between two ends of a step, and the replicas of the box that it can touch |
//! | [`LightCone`] | the particles that have crossed so far, and the state at the beginning of the present step |
//! | [`ConeParticles`] | the same in their order, to be written, read or grouped |
//! | `crossing` | who crosses a shell, by a kernel |
//! | [`light_cone_section`] | the crossings between two snapshots, with derivatives |
//!
//! # Method
//! Light that arrives at scale factor 1 was at the comoving distance chi(a) at scale factor a. A
//! particle at x(a), or a replica of it in a neighboring box, crosses the cone where `|x -
//! observer| = chi(a)`: chi shrinks at the speed of light, so each crosses at most once, in the
//! step at whose beginning it is within chi and at whose end it is not. Both tests use the same
//! operations and numbers as in the adjacent steps: nothing is lost or found twice between steps,
//! whatever the rounding.
//!
//! Between the ends of a step a particle moves along the cubic in a that has the positions and the
//! velocities `dx/da = p / (a^3 E)` of both ends (Hermite). It leaves `h^4/384` of the path's
//! fourth derivative in a, for steps of h: at linear order, where x follows D1(a), less than 1e-6
//! of a displacement for ten steps to today. (The straight pieces that a scheme drifts along leave
//! `h^2/8` of the second derivative.) Six steps of Newton's method from the chord solve for the
//! crossing to rounding. Places are computed in lattice spacings, as a whole number and a rest
//! whose sum rounds once to f32: they err by 2^-24 of the distance from the observer, and scale
//! factors by the same part of a Hubble time.
//!
//! # Cost
//! Beside the run a rank keeps the displacements and momenta of the step's beginning, and copies
//! those of its end while the force mesh is free: 24 bytes per particle each, in steps that the
//! cone reaches. Copies move 48 bytes per particle, the search for the largest displacement 24, and
//! for every 64 candidate replicas a pass reads 24, writes and sums 4: for some ten replicas less
//! than a tenth of the bytes of a step. Passes end in one number that the host waits for; crossing
//! particles come to the host, 36 bytes each, in pieces. Ranks exchange no messages until
//! [`LightCone::particles`], which sorts all rows once: up to eight rounds of 256 counts per
//! boundary between ranks, and each row sent once. On 1000 ranks the host's loop over replicas is
//! as long as the number of boxes around the observer, some 10^4 for ten boxes each way.

mod cone;
mod crossing;
#[cfg(feature = "hdf5")]
mod file;
mod forecast;
mod model;
mod particles;

pub use cone::{Cone, Opening};
pub use crossing::LightCone;
pub(super) use crossing::kernel;
pub use forecast::ConeForecast;
pub use model::{ConeSection, light_cone_section};
pub use particles::{ConeParticle, ConeParticles};
