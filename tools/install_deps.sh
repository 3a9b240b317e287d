#!/usr/bin/env bash
# Installs the packages dsv4 needs on Debian 12 and Ubuntu 24.04, and only those that are missing.
# What they are used for is CMake's business; where CUDA comes from is the user's.
#
# Programs count as present however they were installed (a cmake from pip is as good as Debian's);
# libraries are looked up in dpkg, all in one call.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/install_deps.sh [--test] [--dev] [--fuzz] [--dry-run]
  (no flag)   what building and running dsv4 needs
  --test      also what its tests need
  --dev       also what linting and the second compiler need
  --fuzz      also what the fuzz targets need
  --dry-run   say what would be installed, install nothing
TEXT
}

with_test=0 with_dev=0 with_fuzz=0 dry_run=0
for arg in "$@"; do
  case "$arg" in
    --test) with_test=1 ;;
    --dev) with_test=1 with_dev=1 ;;
    --fuzz) with_fuzz=1 ;;
    --dry-run) dry_run=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install_deps: unknown argument '$arg'" >&2; usage >&2; exit 2 ;;
  esac
done

libraries=(libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libpcre2-dev libhwy-dev
           libedit-dev libxxhash-dev libgtest-dev libgmock-dev)
if ((with_fuzz)); then
  libraries+=(libclang-rt-14-dev)  # libFuzzer and the sanitizers' runtimes
fi

# at_least MAJOR.MINOR VERSION: whether VERSION starts with two numbers that are not below.
at_least() {
  local want_major=${1%%.*} want_minor=${1#*.}
  [[ $2 =~ ^([0-9]+)(\.([0-9]+))? ]] || return 1
  local major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[3]:-0}
  ((major > want_major || (major == want_major && minor >= want_minor)))
}

have() { command -v "$1" >/dev/null 2>&1; }

have_compiler() {
  local compiler=${CXX:-c++} version
  have "$compiler" || return 1
  version=$("$compiler" -dumpversion 2>/dev/null) || return 1
  if "$compiler" --version 2>/dev/null | grep -qi clang; then
    at_least 14.0 "$version"
  else
    at_least 12.0 "$version"
  fi
}

have_cmake() {
  have cmake && have ctest || return 1
  local words
  read -r -a words < <(cmake --version 2>/dev/null) || return 1
  at_least 3.25 "${words[2]:-0}"
}

have_pip() {
  have python3 && python3 -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("pip"))'
}

# tools/lint.sh takes no other version; Ubuntu's clang-format is 18.
have_clang_format() {
  have clang-format-14 || { have clang-format && [[ $(clang-format --version) == *"version 14."* ]]; }
}

# Fills `missing` with package names.
find_missing() {
  missing=()
  have make || missing+=(make)
  have_compiler || missing+=(g++)
  have_cmake || missing+=(cmake)
  have ninja || missing+=(ninja-build)
  have ccache || missing+=(ccache)
  have pkg-config || missing+=(pkg-config)
  have python3 || missing+=(python3)
  if ((with_test)); then
    have_pip || missing+=(python3-pip)
  fi
  if ((with_dev)); then
    have clang++ || missing+=(clang)
    have_clang_format || missing+=(clang-format-14)
  fi
  if ((with_fuzz)); then
    have clang++-14 || missing+=(clang-14)  # the preset's compiler
  fi

  if ! have dpkg-query; then
    return
  fi
  # dpkg-query exits 1 when it does not know a name; what it does know it still prints. A library
  # may be listed once an architecture.
  local installed name
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${libraries[@]}" 2>/dev/null || true)
  for name in "${libraries[@]}"; do
    [[ $'\n'$installed$'\n' == *$'\n'"$name installed"$'\n'* ]] || missing+=("$name")
  done
}

find_missing
if ((${#missing[@]} == 0)); then
  have dpkg-query || echo "install_deps: no dpkg here, so libraries are left to CMake to find: ${libraries[*]}"
  exit 0
fi

install="install -y --no-install-recommends ${missing[*]}"
if ! have apt-get; then
  echo "install_deps: missing: ${missing[*]} (Debian's names), and there is no apt-get here." >&2
  echo "install_deps: install them with this system's package manager and run this again." >&2
  exit 1
fi
echo "install_deps: missing: ${missing[*]}"
if ((dry_run)); then
  echo "install_deps: would run: apt-get update && apt-get $install"
  exit 0
fi

if [[ $(id -u) == 0 ]]; then
  as_root=()
elif have sudo && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  echo "install_deps: not root, and sudo would ask for a password. Run this once, then try again:" >&2
  echo "  sudo apt-get update && sudo apt-get $install" >&2
  exit 1
fi

# env, since sudo drops the variables of its caller. Waits for another apt that holds the lock.
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" \
    </dev/null
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for attempt in 1 2; do
  echo "install_deps: apt-get update && apt-get $install"
  # shellcheck disable=SC2086 # a list of words by construction
  if { apt update && apt $install; } >"$log" 2>&1; then
    break
  fi
  tail -n 20 "$log" >&2
  if ((attempt == 2)); then
    echo "install_deps: apt-get failed twice; its last lines are above." >&2
    exit 1
  fi
  echo "install_deps: apt-get failed, trying once more" >&2
  sleep "${DSV4_APT_RETRY_SECONDS:-5}"
done

# A package can be installed and still not be what PATH finds, or be too old on an older system.
find_missing
if ((${#missing[@]})); then
  echo "install_deps: installed, but still missing or too old on PATH: ${missing[*]}" >&2
  echo "install_deps: needed are cmake 3.25, g++ 12 or clang 14, and pip for the python3 on PATH." >&2
  exit 1
fi
echo "install_deps: done"
