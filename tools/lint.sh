#!/usr/bin/env bash
# Runs the checks that need no build: formatting, layers, paths in Markdown. With --fix it formats.
# The compilers' warnings are the build's business.
#
# The formatter is clang-format 14, Debian 12's: other versions break lines elsewhere, so they are
# not used.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_formatter() {
  local name
  for name in clang-format-14 clang-format; do
    if command -v "$name" >/dev/null && [[ $("$name" --version) == *"version 14."* ]]; then
      echo "$name"
      return
    fi
  done
}

# Every C++ and CUDA source, separated by NUL.
sources() {
  local folders=() folder
  for folder in include src apps tests bench python; do
    [[ -d $folder ]] && folders+=("$folder")
  done
  find "${folders[@]}" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0
}

formatter=$(find_formatter)
readonly missing="clang-format 14 is needed (tools/install_deps.sh --dev; package clang-format-14)"
failed=0
case "${1:-}" in
  --fix)
    if [[ -z $formatter ]]; then
      echo "lint: $missing" >&2
      exit 1
    fi
    sources | xargs -0 -r "$formatter" -i
    exit 0
    ;;
  "") ;;
  *)
    echo "usage: tools/lint.sh [--fix]" >&2
    exit 2
    ;;
esac

if [[ -z $formatter ]]; then
  echo "lint: formatting not checked: $missing" >&2
  failed=1
else
  sources | xargs -0 -r -n 32 "$formatter" --dry-run -Werror || failed=1
fi
python3 tools/check_layers.py || failed=1
python3 tools/check_markdown_paths.py || failed=1
if ((failed)); then
  echo "lint: failed (formatting is mended by make format)" >&2
fi
exit "$failed"
