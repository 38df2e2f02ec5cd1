//! meshloom: simulations made of fields and particles on any GPU, over any number of devices or MPI ranks.

pub mod io;
