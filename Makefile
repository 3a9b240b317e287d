# A thin front for the CMake presets (CMakePresets.json): installs what is missing, then configures,
# builds and tests. All rules about the build itself stand in CMake.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SILENT:

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Arguments for configuring, e.g. make build CMAKE_ARGS=-DDSV4_CUDA=OFF
CMAKE_ARGS ?=
# Arguments for ctest, e.g. make test CTEST_ARGS='-R Router'
CTEST_ARGS ?=
# Tests with this label are too slow under a sanitizer. Empty: leave none out.
SANITIZER_SKIP ?= ^slow$$
# make fuzz: seconds for each target, and which (tests/fuzz/TARGET.cc). Empty: all.
FUZZ_SECONDS ?= 600
FUZZ_TARGET ?=

STARTED := $(shell date +%s)
export PROMPT ?= Tell me a story about a fox, a lantern and a lighthouse.

# A terminal sees progress; a log sees what went wrong and the summary, which lists what was skipped.
NINJA_ARGS := $(if $(MAKE_TERMOUT),,-- --quiet)
CTEST_VIEW := $(if $(MAKE_TERMOUT),--progress,| \
  grep --line-buffered -Ev '^ *(Start +[0-9]+: |[0-9]+/[0-9]+ Test +\#[0-9]+: .*( Passed |\*\*\*Skipped))')
# ThreadSanitizer of GCC 12 and 13 cannot place its shadow under the 32 bits of address randomisation
# that newer kernels use. Tests already run while building, to list their cases.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)

# $(call configure,PRESET). What CMake warns of is shown, e.g. an nvcc that is too old.
configure = mkdir -p build/$(1) && \
  { cmake --preset $(1) $(CMAKE_ARGS) >build/$(1)/configure.log 2>&1 || { cat build/$(1)/configure.log; exit 1; }; } && \
  sed -n '/^CMake Warning/,/^\(Call Stack\|-- \)/{/^\(Call Stack\|-- \)/d; p}' build/$(1)/configure.log
# $(call build,PRESET,TARGET)
build = $(call configure,$(1)) && echo "building $(2) ($(1))" && \
  $(wrap) cmake --build --preset $(1) --target $(2) --parallel $(JOBS) $(NINJA_ARGS)
# $(call check,PRESET,ARGUMENTS)
check = $(wrap) ctest --preset $(1) --parallel $(JOBS) --no-tests=error $(2) $(CTEST_ARGS) $(CTEST_VIEW)
took = echo "make $@: $$(( $$(date +%s) - $(STARTED) )) s in all"

.PHONY: help build demo test lint format asan ubsan tsan fuzz gpu-bundle clean

help:
	echo "make demo        build the program, make the bundled model NVFP4 and let it tell a story"
	echo "make build       build everything (build/reference)"
	echo "make test        build and run all tests"
	echo "make lint        formatting, layers, paths in the documentation"
	echo "make format      format the sources"
	echo "make asan        build and test with AddressSanitizer; also ubsan, tsan"
	echo "make fuzz        feed the readers of untrusted input for FUZZ_SECONDS=600 a target (FUZZ_TARGET=...)"
	echo "make gpu-bundle  the GPU's tests and benchmarks in a folder to carry to one (docs/gpu.md)"
	echo "make clean       remove build/"
	echo "Missing packages are installed first (tools/install_deps.sh)."

build:
	tools/install_deps.sh
	$(call build,reference,all)
	$(took)

DSV4 := build/reference/apps/dsv4
DEMO_MODEL := build/nano-nvfp4
demo:
	tools/install_deps.sh
	$(call build,reference,dsv4)
	rm -rf $(DEMO_MODEL)
	$(DSV4) quantize models/nano $(DEMO_MODEL)
	$(DSV4) generate $(DEMO_MODEL) --chat --seed 1 -p "$$PROMPT"

test:
	tools/install_deps.sh --test
	$(call build,reference,all)
	$(call check,reference)
	$(took)

lint:
	tools/install_deps.sh --dev
	tools/lint.sh

format:
	tools/install_deps.sh --dev
	tools/lint.sh --fix

tsan: wrap = $(FIXED_ADDRESSES)
asan ubsan tsan:
	tools/install_deps.sh --test
	$(call build,$@,all)
	$(call check,$@,$(if $(SANITIZER_SKIP),-LE '$(SANITIZER_SKIP)'))
	$(took)

fuzz:
	for target in $(FUZZ_TARGET); do [[ -f tests/fuzz/$$target.cc ]] || \
	  { echo "make fuzz: there is no target $$target; they are tests/fuzz/*.cc: $$(cd tests/fuzz && ls *.cc | sed 's/\.cc$$//; /^replay_main$$/d' | paste -sd' ')" >&2; exit 2; }; done
	tools/install_deps.sh --fuzz
	$(call build,fuzz,fuzz_targets)
	FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz.sh $(FUZZ_TARGET)
	$(took)

GPU_BUNDLE := build/gpu-bundle
GPU_BUNDLE_MIB := 16
gpu-bundle:
	tools/install_deps.sh --test
	$(call build,cuda-sm90a,gpu_bundle)
	rm -rf $(GPU_BUNDLE)
	cmake --install build/cuda-sm90a --component gpu-bundle --prefix $(GPU_BUNDLE) --strip >build/cuda-sm90a/bundle.log
	git describe --always --dirty --abbrev=12 >$(GPU_BUNDLE)/commit 2>/dev/null || echo unknown >$(GPU_BUNDLE)/commit
	size=$$(du -sm $(GPU_BUNDLE) | cut -f1); echo "$(GPU_BUNDLE): $$size MiB; on the machine with the GPU: gpu-bundle/gpu_check.sh"; \
	  ((size <= $(GPU_BUNDLE_MIB))) || { echo "the bundle may have $(GPU_BUNDLE_MIB) MiB" >&2; exit 1; }
	$(took)

clean:
	rm -rf build
