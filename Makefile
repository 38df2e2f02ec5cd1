# `make demo` runs a small simulation, `make test` checks everything. Both set the machine up first.

CARGO ?= cargo

# Containers often run as root, which Open MPI refuses unless told twice.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1

# wgpu notes a backtrace with every lock that it takes where backtraces are asked for: an eighth of the time of tests.
test: export RUST_BACKTRACE := 0

# Tests keep compiled kernels here and not with the user's own.
test: export MESHLOOM_CACHE ?= $(CURDIR)/target/pipelines

# As the tests, which share what this builds.
ALL := --workspace --features reference,mpi,hdf5,gpu-direct

.DEFAULT_GOAL := help
.PHONY: help demo test docs gpu wheel

help:
	@echo 'make demo   simulate 64^3 particles on 4 ranks; results in demo/ (see demo/density.png)'
	@echo 'make test   check the formatting, build everything, run all tests (software renderer, MPI, HDF5)'
	@echo 'make docs   build the book and the references, and check their links; see target/book/index.html'
	@echo 'make wheel  build the Python package as a wheel, in target/wheels/'
	@echo 'make gpu    test and measure on this machine'"'"'s GPU, beside CUDA libraries where they are installed; results in gpu-report/'

demo:
	@bash scripts/setup.sh demo
	$(CARGO) run --release -p meshloom-program -- simulate --out demo --ranks 4 --particles 64 --mesh 128
	@echo 'see demo/density.png and demo/power_spectrum.csv'

docs:
	@bash scripts/docs.sh

wheel:
	@bash scripts/setup.sh wheel
	@bash scripts/python.sh wheel

gpu:
	@bash scripts/setup.sh demo
	@bash scripts/gpu.sh

test:
	@bash scripts/setup.sh test
	@if $(CARGO) fmt --version >/dev/null 2>&1; then \
	    echo '$(CARGO) fmt --all --check'; $(CARGO) fmt --all --check; \
	else echo 'make: rustfmt is not installed, formatting is not checked'; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
	    echo 'lints'; $(CARGO) clippy $(ALL) --all-targets -- -D warnings; \
	else echo 'make: clippy is not installed, lints are not checked'; fi
	bash scripts/suite.sh
