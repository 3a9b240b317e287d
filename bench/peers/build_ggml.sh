#!/bin/sh
# Builds ggml, the kernel library of llama.cpp, for `dsv4_bench` to show beside our own kernels.
#
#     bench/peers/build_ggml.sh DIR
#     cmake --preset reference -DDSV4_GGML_DIR=DIR && cmake --build build/reference --target dsv4_bench
#
# The source comes from PyPI's llama-cpp-python and is compiled for this machine's instruction set.
# Needs pip and a network; nothing else in the project does.
set -eu

version=0.3.36
dir=${1:?usage: build_ggml.sh DIR}
mkdir -p "$dir/download"
dir=$(cd "$dir" && pwd)

pip download --quiet --no-deps --no-binary :all: \
    --dest "$dir/download" "llama-cpp-python==$version"
tar -xzf "$dir/download/llama_cpp_python-$version.tar.gz" -C "$dir/download"
source=$dir/download/llama_cpp_python-$version/vendor/llama.cpp/ggml
touch "$source/ggml.pc.in"  # which the archive leaves out
cmake -S "$source" -B "$dir/build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$dir" -DCMAKE_INSTALL_LIBDIR=lib \
    -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DGGML_OPENMP=OFF \
    -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF
cmake --build "$dir/build" --target install
