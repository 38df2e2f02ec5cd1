# `make demo` runs a small simulation, `make test` checks everything. Both set the machine up first.

CARGO ?= cargo

# Containers often run as root, which Open MPI refuses unless told twice.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1

# wgpu notes a backtrace with every lock that it takes where backtraces are asked for: an eighth of the time of tests.
test: export RUST_BACKTRACE := 0

# Tests keep compiled kernels here and not with the user's own.
test: export MESHLOOM_CACHE ?= $(CURDIR)/target/pipelines

# All features, and the Python package, too: crates that several builds share have the same features in each then, and are compiled once.
ALL := --workspace --features reference,mpi,hdf5

# The library and its tests without debug assertions, as in release builds, over the dependencies that are built already. Few tests want a quick build more than quick
# code; `--release` would build all dependencies anew, for four minutes and more.
NO_ASSERTIONS := --config profile.dev.package.meshloom.debug-assertions=false --config profile.dev.package.meshloom.opt-level=0

SWIFTSHADER := $(CURDIR)/target/swiftshader/vk_swiftshader_icd.json

.DEFAULT_GOAL := help
.PHONY: help demo test gpu wheel

help:
	@echo 'make demo   simulate 64^3 particles on 4 ranks; results in demo/ (see demo/density.png)'
	@echo 'make test   check the formatting, build everything, run all tests (software renderer, MPI, HDF5)'
	@echo 'make wheel  build the Python package as a wheel, in target/wheels/'
	@echo 'make gpu    test and measure on this machine'"'"'s GPU, beside CUDA libraries where they are installed; results in gpu-report/'

demo:
	@bash scripts/setup.sh demo
	$(CARGO) run --release --features cli -- simulate --out demo --ranks 4 --particles 64 --mesh 128
	@echo 'see demo/density.png and demo/power_spectrum.csv'

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
	    echo 'lints and documentation'; $(CARGO) clippy $(ALL) --all-targets -- -D warnings \
	    && $(CARGO) clippy --no-default-features --lib -- -D warnings; \
	else \
	    echo 'make: clippy is not installed, lints are not checked'; \
	    $(CARGO) check --no-default-features --lib; \
	fi
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --no-deps $(ALL) --lib --example sph_sum
	bash scripts/tests.sh $(ALL)
	@echo 'ranks as MPI processes, exchanges and collectives of devices once more, without debug assertions, as in release builds, and by another MPI library where MPICH is here;'
	@echo 'this build has no HDF5 and none of the libraries of bench --reference, and says so'
	@if command -v mpicc.mpich mpirun.mpich >/dev/null; then with=mpich; else with=tests; fi; \
	bash scripts/$$with.sh --workspace --features cli,mpi $(NO_ASSERTIONS) --test cli_features --test cli_sort --test comm_mpi --test device_collectives --test exchange_mpi
	@echo 'kernels, primitives and searches in the form that GPUs get; then groups, primitives, searches and sorts with subgroups of 4 and 16'
	MESHLOOM_PROFILE=gpu bash scripts/tests.sh $(ALL) --test components --test device --test inference_models --test mesh --test point_kernels --test primitives --test sort
	MESHLOOM_PROFILE=gpu bash scripts/tests.sh $(ALL) --test neighbors -- facts_of histograms_of nearest_of pairs_by
	@echo 'kernels in the sanitizer, which finds races, accesses outside of arrays and what a driver gets wrong; then in the place of devices with subgroups of 32 and 64'
	MESHLOOM_SANITIZE=compare bash scripts/tests.sh $(ALL) --test exchange --test ghost_cells --test linear_operators --test mesh --test particles --test redistribution --test sort
	MESHLOOM_SANITIZE=1 MESHLOOM_PROFILE=gpu bash scripts/tests.sh $(ALL) --test fft & transforms=$$! failed=''; \
	for lanes in 32 64; do \
	    MESHLOOM_SANITIZE=$$lanes MESHLOOM_PROFILE=gpu bash scripts/tests.sh $(ALL) --test point_kernels --test sort || failed=yes; \
	    MESHLOOM_SANITIZE=$$lanes MESHLOOM_PROFILE=gpu bash scripts/tests.sh $(ALL) --test neighbors -- facts_of few_points distances_of histograms_of callbacks_see every_form || failed=yes; \
	done; \
	wait $$transforms && [ -z "$$failed" ]
	@if [ -e /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ]; then \
	    echo 'what drivers are asked for, under the validation layer'; \
	    bash scripts/validation.sh $(ALL) --test device --test exchange --test ghost_cells --test guest --test soundness; \
	else echo 'make: the Vulkan validation layer is not here, its tests are skipped'; fi
	for width in 128 512; do \
	    LP_NATIVE_VECTOR_WIDTH=$$width bash scripts/tests.sh $(ALL) --test components --test point_kernels --test primitives --test sort || exit 1; \
	    LP_NATIVE_VECTOR_WIDTH=$$width bash scripts/tests.sh $(ALL) --test neighbors -- facts_of || exit 1; \
	done
	@if [ -e $(SWIFTSHADER) ]; then \
	    echo 'once more on SwiftShader, which has no optional feature'; \
	    VK_DRIVER_FILES=$(SWIFTSHADER) bash scripts/tests.sh $(ALL) --test components --test device --test device_collectives --test exchange --test ghost_cells --test gradient --test guest --test inference_models --test linear_operators --test mesh --test operators --test shallow_water --test simulation --test sort --test soundness -- --skip every_operator --skip memory_is_what_was_said --skip a_run_takes_the_memory --skip bits_do_not_depend_on_windows --skip derivatives_have_the_same_bits_in_many_windows \
	    && VK_DRIVER_FILES=$(SWIFTSHADER) bash scripts/tests.sh $(ALL) --test neighbors --test scales -- facts_of two_axes \
	    && VK_DRIVER_FILES=$(SWIFTSHADER) MESHLOOM_PROFILE=gpu bash scripts/tests.sh $(ALL) --test components; \
	else echo 'make: SwiftShader is not here, its tests are skipped'; fi
	@echo 'the Python package'
	bash scripts/python.sh test
