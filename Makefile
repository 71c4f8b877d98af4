# Every target does its own set-up and is quick when run again: stamps in the virtual environments say what is done.
#   make demo      trains a small model on an emulated cluster, on gloo and on fairring
#   make test      a quarter of an hour: C++ under the address sanitizer (by Clang), Python but for slow tests
#   make test-all  the same and the rest: thread sanitizer, TensorPipe, fuzzing, RDMA, the oldest torch, slow tests, features
#   make test-sanitized  Python tests of the backend with a module under the address sanitizer
#   make test-rdma the rails over RDMA, in virtual machines with soft-RoCE; VMS=1: in a single one, which is quicker
#   make build     the package in place, for .venv
#   make wheel     one wheel in dist/ for the supported torches, and the sdist; TORCH="2.13 2.15": for these; docs/packaging.md
#   make test-first   README's install in a fresh clone and environment, and there what README, docs and examples show
#   make test-wheel   that wheel beside each of its torches, in clean virtual environments; not in make test-all
#   make failures  what each rank reports when something fails, and after how long: docs/failures.md's table
#   make emulated-cuda   CUDA devices that do not exist, for fairring lab --emulated-gpus
#   make test-emulated-cuda  the same code on emulated devices, by torch's CUDA build, where there is no GPU: docs/development.md
#   make test-gpu, make bench-gpu  on a machine with a GPU, without a network: docs/development.md; make carry: what to take along;
#                  RUN="sums and 2x1": tests of tests/gpu by name
#   make test-pytorch, make test-pytorch-ddp  PyTorch's own tests of process groups, on BACKEND
#   make test-libraries  third-party programs on gloo and fairring; not in make test-all, for it fetches them
#   make features  what a process group has to do, on gloo and on fairring: docs/compatibility.md's table
#   make random-programs  SEEDS programs of random calls from the seed FIRST on, on random worlds, against a reference
#   make fuzz      what strangers and peers can send, FUZZ_SECONDS per target
#   make simulate  the engine in virtual time, with faults, from fresh seeds for SIMULATE_SECONDS: docs/simulation.md
#   make bench     all-reduce beside gloo; make bench-kernels: the reducing loops beside memcpy
#   make docs      the documentation site in build/docs; a broken link, anchor or page outside of the navigation fails it
#   make browse    opens each of its pages in headless Chromium; BROWSE="--pictures DIR" keeps a picture of each
#   make lint | format | clean
# PYTHON=python3.12 chooses the Python of new virtual environments.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SECONDARY:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory --no-builtin-rules

TORCHES := 2.11 2.12 2.13 2.14 2.15
OLDEST_TORCH := $(firstword $(TORCHES))
NEWEST_TORCH := $(lastword $(TORCHES))
PYTHON ?= python3
TORCH ?= $(TORCHES)
GPU_PYTHON ?= python3
VMS ?= 2
FUZZ_SECONDS ?= 13
SIMULATE_SECONDS ?= 3600
# Python tests at once. Many of them wait more than they compute, so there is one more than cores, within memory. Those of
# a file stay together: they share ranks, and some look at what the others left.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 8 ? cores + 1 : 8)))

BIN := .venv/bin

STAGE := .ci/stage
# Launchers have what they start on the whole machine: make test-libraries runs them.
PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 20 --ignore tests/libraries/test_launchers.py
CTEST := $(BIN)/ctest --output-on-failure --no-tests=error --parallel $(shell nproc)
# The thread sanitizer needs a predictable address space; where the kernel refuses that it may still run.
WITHOUT_ASLR := $(shell setarch -R true 2>/dev/null && echo setarch -R)
export CMAKE_ARGS ?= -DFAIRRING_WERROR=ON
# With it the sanitizers name lines; Clang's own symbolizer is a package of its own.
SYMBOLIZER := external_symbolizer_path=$(shell command -v addr2line)
export ASAN_OPTIONS ?= $(SYMBOLIZER)
export TSAN_OPTIONS ?= $(SYMBOLIZER)

.PHONY: demo failures features random-programs test test-rest test-all test-cpp test-sanitized test-threads test-tensorpipe emulated-cuda test-emulated-cuda test-gpu bench-gpu carry test-python test-pytorch test-pytorch-ddp test-slow test-first test-libraries test-rdma fuzz simulate test-oldest-torch test-wheel build wheel bench bench-kernels docs browse lint format clean system packages wheel-packages

demo: build
	$(BIN)/python examples/demo.py

# Machines x ranks, each measured beside gloo and the link itself; tables here, JSON in bench-results/.
bench: build
	@mkdir -p bench-results
	@for layout in 2x2 2x4 4x2; do \
	  $(BIN)/fairring bench all-reduce --machines $${layout%x*} --ranks $${layout#*x} --rate 1gbit \
	    --sizes 4KiB,64KiB,1MiB,4MiB,25MiB --json bench-results/$$layout.json; \
	done

# Some minutes: the table has silences of ten seconds and timeouts in it.
failures: build
	@$(BIN)/python tests/failures/report.py

# Some minutes: over two hundred features, each on both backends.
features: build
	@$(BIN)/python tests/features/report.py

# The Python tests play some as well, of seeds that are new in every run. A program takes some seconds.
random-programs: SEEDS ?= 200
random-programs: FIRST ?= 1
random-programs: build
	@$(BIN)/python tests/random_programs/report.py --seeds $(SEEDS) --first $(FIRST)

# Needs Google Benchmark, which nothing else does. BENCH takes its options: BENCH=--benchmark_filter=SUM
bench-kernels: .venv/.tools
	@$(BIN)/cmake -S . -B build/bench -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DCMAKE_BUILD_TYPE=Release -DFAIRRING_MODULE=OFF -DFAIRRING_BENCHMARKS=ON
	@$(BIN)/cmake --build build/bench --target fairring_kernels_bench
	@build/bench/benchmarks/cpp/fairring_kernels_bench $(BENCH)

# pytest's closing line comes last in each. ASIDE, packages to fetch, is made while the C++ tests are compiled and run,
# which need none of them.
ASIDE ?= .venv/.torch
test: .venv/.tools
	@.ci/beside "$(MAKE) $(ASIDE)" $(MAKE) test-cpp
	@$(MAKE) test-python

test-rest: test-sanitized test-threads test-tensorpipe test-emulated-cuda test-pytorch fuzz test-rdma test-oldest-torch test-first test-slow

test-all: test
	@$(MAKE) features test-pytorch-ddp test-rest

# --- set-up

system:
	@.ci/system-packages

.venv/.tools: requirements/build.txt pyproject.toml | system
	@.ci/venv "$(PYTHON)" "$(@D)"
	$(BIN)/pip install --requirement requirements/build.txt pytest pytest-timeout pytest-xdist rich pyroute2
	@touch $@

# Not compiled: a tenth of its modules is ever imported.
.venv/.torch: | .venv/.tools
	@$(STAGE) "torch $(NEWEST_TORCH) (several GB when it is not there yet)" \
	  $(BIN)/pip install --no-compile "torch==$(NEWEST_TORCH).*"
	@touch $@

.venv/.lint: requirements/lint.txt .venv/.torch
	$(BIN)/pip install --requirement requirements/lint.txt
	@touch $@

# What all targets of CI fetch.
packages: .venv/.torch .venv/.lint .venv-docs/.docs
	@$(MAKE) TORCH="$(OLDEST_TORCH) $(NEWEST_TORCH)" wheel-packages
	@$(MAKE) .venv-wheel/with-$(OLDEST_TORCH)-$(INTERPRETER)/.torch

# --- build

build: .venv/.torch
	@$(STAGE) "build of the package" $(BIN)/python setup.py --quiet build_ext --inplace
	@$(MAKE) --silent .venv/.installed

.venv/.installed: pyproject.toml setup.py
	$(BIN)/pip install --no-build-isolation --editable '.[plot,test]'
	@touch $@

# Of the Python that PYTHON names. Every torch is unpacked to be compiled against, not installed: CUDA's libraries are
# gigabytes. Nothing of torch goes into the wheel.
INTERPRETER = $(shell $(PYTHON) -c 'import sys; print(sys.implementation.cache_tag)')
WHEEL_BIN = .venv-wheel/$(INTERPRETER)/bin
WHEEL_BUILD = build/wheel-$(INTERPRETER)
UNPACKED = $(TORCH:%=.venv-wheel/torch-%-$(INTERPRETER)/torch)

wheel-packages: | system
	@$(MAKE) $(WHEEL_BIN)/.tools $(UNPACKED)

wheel: wheel-packages
	rm -rf $(WHEEL_BUILD)/{lib,bdist,dist}* dist/torch_fairring-*-$(subst cpython-,cp,$(INTERPRETER))-*.whl
	TORCH_DIRECTORIES="$(UNPACKED)" $(WHEEL_BIN)/python setup.py --quiet sdist bdist_wheel --dist-dir $(WHEEL_BUILD)/dist
	PATH="$(abspath $(WHEEL_BIN)):$$PATH" auditwheel repair --strip --exclude 'libtorch*' --exclude 'libc10*' --wheel-dir dist $(WHEEL_BUILD)/dist/*.whl
	@ls -l dist

.venv-wheel/%/bin/.tools: requirements/build.txt requirements/wheel.txt
	$(PYTHON) -m venv .venv-wheel/$*
	.venv-wheel/$*/bin/pip install --requirement requirements/build.txt --requirement requirements/wheel.txt
	@touch $@

.venv-wheel/torch-%/torch:
	@.ci/unpack-torch "$(PYTHON)" "$(firstword $(subst -, ,$*))" "$(@D)"

# --- tests

build/%/build.ninja: .venv/.tools
	@.ci/system-packages clang
	$(BIN)/cmake -S . -B $(@D) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_COMPILER="$$(.ci/clang)" \
	  -DCMAKE_CXX_FLAGS_DEBUG='-O1 -g1' -DFAIRRING_WERROR=ON -DFAIRRING_TESTS=ON -DFAIRRING_MODULE=OFF \
	  -DFAIRRING_SANITIZE=$(SANITIZE) -DFAIRRING_FUZZERS=$(FUZZERS)
build/asan/build.ninja: SANITIZE := address,undefined
build/asan/build.ninja: FUZZERS := ON
build/tsan/build.ninja: SANITIZE := thread
build/tsan/build.ninja: FUZZERS := OFF

test-cpp: build/asan/build.ninja
	@$(STAGE) "build C++ tests: address and undefined behaviour sanitizers" $(BIN)/cmake --build build/asan
	@$(STAGE) "C++ tests: address and undefined behaviour sanitizers" $(CTEST) --test-dir build/asan

# c10d's border, which has no C++ tests: the module by Clang, and the Python tests of the backend with it. torch has no
# sanitizer, so Python preloads it, and nobody looks for what torch leaks.
SANITIZED := build/asan-module
SANITIZED_TESTS := $(patsubst %,tests/groups/test_backend_%.py,works messages groups hooks failing states) tests/groups/test_tls.py
test-sanitized: build
	@.ci/system-packages clang
	@$(BIN)/cmake -S . -B $(SANITIZED)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG='-O1 -g1' -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DCMAKE_CXX_COMPILER="$$(.ci/clang)" -DFAIRRING_WERROR=ON -DFAIRRING_SANITIZE=address
	@$(STAGE) "build of the module: address sanitizer" $(BIN)/cmake --build $(SANITIZED)/cmake --target _core
	@rm -rf $(SANITIZED)/root && mkdir -p $(SANITIZED)/root && cp -r src/fairring $(SANITIZED)/root/
	@cp $(SANITIZED)/cmake/_core.*.so $(SANITIZED)/root/fairring/$(notdir $(wildcard src/fairring/_core_$(subst .,_,$(NEWEST_TORCH)).*.so))
	@$(STAGE) "backend's tests: address sanitizer" env PYTHONPATH=$(abspath $(SANITIZED))/root \
	  LD_PRELOAD="$$($$(.ci/clang) -print-file-name=libclang_rt.asan-$$(uname -m).so)" ASAN_OPTIONS=detect_leaks=0 \
	  $(PYTEST) -m 'not slow and not gpu' $(SANITIZED_TESTS)

# For the layers that have threads: plan and kernels are pure functions.
test-threads: build/tsan/build.ninja
	@$(STAGE) "build C++ tests: thread sanitizer" $(BIN)/cmake --build build/tsan \
	  --target fairring_base_tests fairring_transport_tests fairring_exchange_tests fairring_engine_tests \
	  fairring_device_tests fairring_group_tests
	@$(STAGE) "C++ tests: thread sanitizer" $(WITHOUT_ASLR) $(CTEST) --test-dir build/tsan \
	  --label-regex 'base|transport|exchange|engine|device|group'

# TensorPipe comes inside torch, which no sanitizer was built into: its tests run without.
test-tensorpipe: build
	@$(BIN)/cmake -DFAIRRING_TESTS=ON build/torch-$(NEWEST_TORCH)/cmake
	@$(STAGE) "build C++ tests: TensorPipe" \
	  $(BIN)/cmake --build build/torch-$(NEWEST_TORCH)/cmake --target fairring_tensorpipe_tests
	@$(STAGE) "C++ tests: TensorPipe" $(CTEST) --test-dir build/torch-$(NEWEST_TORCH)/cmake --label-regex tensorpipe

# Skipped where CUDA's headers are missing, or where torch is a build without CUDA, or with another than 13.
EMULATED := build/torch-$(NEWEST_TORCH)/cmake
emulated-cuda: build
	@$(BIN)/cmake -DFAIRRING_EMULATED_CUDA=ON $(EMULATED)
	@$(STAGE) "build the emulated CUDA devices" $(BIN)/cmake --build $(EMULATED) --target emulated_cuda

test-emulated-cuda: build
	@$(BIN)/cmake -DFAIRRING_TESTS=ON -DFAIRRING_BENCHMARKS=ON -DFAIRRING_EMULATED_CUDA=ON $(EMULATED)
	@if $(BIN)/ninja -C $(EMULATED) -t targets all | grep '^emulated_cuda:' >/dev/null; then \
	  $(STAGE) "build the emulated CUDA devices" $(BIN)/cmake --build $(EMULATED) --target emulated_cuda fairring_cuda_tests fairring_cuda_bench fairring_cuda_probe; \
	  $(STAGE) "C++ tests on emulated devices" tests/emulated_cuda/run $(EMULATED) \
	    $(EMULATED)/tests/cpp/fairring_cuda_tests --gtest_brief=1; \
	  $(STAGE) "Python tests on emulated devices" tests/emulated_cuda/run $(EMULATED) $(BIN)/pytest --numprocesses 2 \
	    --dist loadfile -m 'gpu and not slow' tests/emulated_cuda tests/gpu; \
	else \
	  echo "skipped: emulated CUDA devices, for want of what CMake says above"; \
	fi

test-gpu:
	@GPU_PYTHON=$(GPU_PYTHON) tests/gpu/run $(if $(RUN),"$(RUN)")

# DRY_RUN=1: on emulated devices, after make emulated-cuda.
bench-gpu:
	@GPU_PYTHON=$(GPU_PYTHON) benchmarks/gpu

carry: .venv/.torch
	@.ci/carry $(BIN)/python

# Built beside the C++ tests. What a run finds out stays in build/fuzz; what is worth keeping goes to tests/fuzz/corpus.
fuzz: build/asan/build.ninja
	@$(STAGE) "build the fuzz targets" $(BIN)/cmake --build build/asan --target fuzzers
	@for target in $(notdir $(wildcard tests/fuzz/corpus/*)); do \
	  mkdir -p build/fuzz/$$target; \
	  $(STAGE) "fuzz $$target" build/asan/tests/fuzz/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) -max_len=9000 \
	    -verbosity=0 -print_funcs=0 -print_final_stats=1 -artifact_prefix=build/fuzz/ \
	    build/fuzz/$$target tests/fuzz/corpus/$$target; \
	done

# Fresh seeds, for so many seconds; SIMULATE='--seed 7' plays one again, and what a failure prints can be given here too.
simulate: build/asan/build.ninja
	@$(STAGE) "build the simulation" $(BIN)/cmake --build build/asan --target fairring_simulate
	build/asan/tests/simulation/fairring_simulate $(or $(SIMULATE),--seconds $(SIMULATE_SECONDS))

test-python: build
	$(PYTEST) -m 'not rdma and not slow'

test-slow: build
	$(PYTEST) -m 'slow and not rdma' $(READERS:%=--ignore %)

# PyTorch's own tests of process groups, as they come with torch, on four ranks of BACKEND: those of calls and groups, and
# those of DDP, which take longer.
BACKEND ?= fairring
PYTORCH_TESTS = PYTORCH_TESTS_BACKEND=$(BACKEND) $(BIN)/pytest --numprocesses $(WORKERS) --durations 10 tests/libraries/pytorch_distributed.py
DDP := ddp or DDP or DistributedDataParallel or localSGD
test-pytorch: build
	$(PYTORCH_TESTS) -k 'not ($(DDP))'

test-pytorch-ddp: build
	$(PYTORCH_TESTS) -k '$(DDP)'

# README's section Install, carried out in a fresh clone with an environment of its own, and then the commands of README,
# docs and examples in what that leaves.
READERS := tests/docs/test_docs_examples.py tests/docs/test_examples.py
test-first: .venv/.torch
	@$(STAGE) "README's install, in a fresh clone" .ci/first-steps $(BIN)/python
	FIRST_STEPS=$(CURDIR)/build/first-steps $(PYTEST) $(READERS)

# Skipped, with the reason, where qemu can't be installed.
test-rdma: build
	@$(STAGE) "rails over RDMA, in $(VMS) virtual machine(s)" env VMS=$(VMS) $(BIN)/pytest -m rdma -s tests/groups/test_rdma.py

# A virtual environment on top of .venv: it sees what is installed there, this package and torch among it.
.venv-libraries/.libraries: requirements/libraries.txt .venv/.installed
	$(BIN)/python -m venv $(@D)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > \
	  "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	$(@D)/bin/python -m pip install --requirement requirements/libraries.txt
	@touch $@

test-libraries: build .venv-libraries/.libraries
	@$(STAGE) "third-party programs" .venv-libraries/bin/python -m pytest tests/libraries

# The wheel beside every torch of TORCH, from a directory from which the checkout's package isn't seen.
test-wheel: wheel
	@for minor in $(TORCH); do $(MAKE) smoke-$$minor; done

# The older one of two, so that the wheel has to choose.
test-oldest-torch:
	@$(MAKE) wheel TORCH="$(OLDEST_TORCH) $(NEWEST_TORCH)"
	@$(MAKE) smoke-$(OLDEST_TORCH)

smoke-%:
	@$(MAKE) .venv-wheel/with-$*-$(INTERPRETER)/.torch
	@$(STAGE) "the wheel beside torch $*" .ci/smoke .venv-wheel/with-$*-$(INTERPRETER)

.venv-wheel/with-%/.torch: | .venv/.torch
	@.ci/wheel-venv "$(PYTHON)" "$(@D)" "$(firstword $(subst -, ,$*))" .venv

# --- documentation

# In a virtual environment of its own, without torch: the site's tools read the sources and import nothing of them.
.venv-docs/.docs: requirements/docs.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --requirement requirements/docs.txt
	@touch $@

docs: .venv-docs/.docs
	@$(STAGE) "documentation" env NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict
	@echo "to read it with its search: $(PYTHON) -m http.server --directory build/docs"

# Not in `make lint`: a browser is a large package.
browse: docs
	@.ci/system-packages chromium
	@$(STAGE) "documentation in a browser" $(PYTHON) docs/site/browse.py $(BROWSE)

# --- lint

CPP_FILES = $(shell find csrc tests/cpp tests/emulated_cuda tests/fuzz tests/simulation benchmarks/cpp -name '*.h' -o -name '*.cc' -o -name '*.cu')
PYTHON_DIRS = setup.py csrc src examples tests benchmarks docs/site

build/lint/compile_commands.json: .venv/.tools
	$(BIN)/cmake -S . -B $(@D) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Debug \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python -DFAIRRING_TESTS=ON -DFAIRRING_FUZZERS=ON \
	  -DFAIRRING_EMULATED_CUDA=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON

lint: .venv/.torch .venv/.lint build/lint/compile_commands.json
	@$(BIN)/cmake build/lint >/dev/null
	@$(STAGE) "ruff" $(BIN)/ruff check $(PYTHON_DIRS)
	@$(STAGE) "ruff format" $(BIN)/ruff format --check $(PYTHON_DIRS)
	@$(STAGE) "mypy" $(BIN)/mypy
	@$(STAGE) "mypy of the tests" $(BIN)/mypy --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls \
	  --allow-any-generics tests
	@$(STAGE) "clang-format" $(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	@$(STAGE) "includes name their layer" .ci/check-includes
	@$(STAGE) "clang-tidy" .ci/clang-tidy $(BIN)/clang-tidy build/lint
	@$(MAKE) --silent docs

format: .venv/.lint
	$(BIN)/ruff check --fix --exit-zero $(PYTHON_DIRS)
	$(BIN)/ruff format $(PYTHON_DIRS)
	$(BIN)/clang-format -i $(CPP_FILES)

# Leaves the virtual environments: they take minutes and gigabytes to fetch.
clean:
	rm -rf build dist demo-results src/fairring/_core*.so
	rm -f .venv*/.installed
