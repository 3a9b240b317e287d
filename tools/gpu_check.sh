#!/usr/bin/env bash
# Runs the GPU tests, the same under compute-sanitizer, and the benchmarks, those of PyTorch's kernels
# too where it is installed, out of the folder that `make gpu-bundle` fills, and ends in one table.
# Everything it prints stands in OUT as well.
#
# A test that skips itself because no device is there counts as failed here; one whose op the
# backend does not have counts as skipped.
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: gpu_check.sh [--only tests|sanitizer|bench]... [--out DIR] [--sanitizer-filter PATTERN]
                    [--limit SECONDS] [--bench-filter TEXT]
  --only               some of the parts tests, sanitizer and bench; all by default
  --out                where logs and CSV files go; gpu-check-out by default
  --sanitizer-filter   cases of ops_test under the sanitizers, such as 'Quantize/cuda.*'; by default all on
                       cuda but the expert GEMMs' longer ones (ExpertGemmSmall has all their kernels)
  --limit              how long each program of the tests and under a sanitizer may take; 600 and 1800 by default
  --bench-filter       only benchmark rows whose name has this
Exit codes: 0 all is well, 1 something failed, 2 bad usage.
TEXT
}

readonly default_sanitizer_ops='*/cuda.*-ExpertGemm/*:ExpertGemmBits/*'
parts=() out=gpu-check-out bench_filter='' sanitizer_ops=$default_sanitizer_ops limit=''
while (($#)); do
  case "$1" in
    --only) parts+=("${2-}"); shift 2 || { usage >&2; exit 2; } ;;
    --out) out=${2-}; shift 2 || { usage >&2; exit 2; } ;;
    --sanitizer-filter) sanitizer_ops=${2-}; shift 2 || { usage >&2; exit 2; } ;;
    --limit)
      limit=${2-}
      [[ $limit =~ ^[1-9][0-9]*$ ]] || { echo "gpu_check: --limit takes seconds, a whole number above 0" >&2; exit 2; }
      shift 2
      ;;
    --bench-filter) bench_filter=${2-}; shift 2 || { usage >&2; exit 2; } ;;
    -h | --help) usage; exit 0 ;;
    *) echo "gpu_check: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
done
((${#parts[@]})) || parts=(tests sanitizer bench)
for part in "${parts[@]}"; do
  case "$part" in
    tests | sanitizer | bench) ;;
    *) echo "gpu_check: --only $part: there are tests, sanitizer and bench" >&2; exit 2 ;;
  esac
done

if [[ ! -x $(dirname "${BASH_SOURCE[0]}")/cuda_test ]]; then
  echo "gpu_check: no cuda_test beside this script; run the one in the folder that make gpu-bundle fills (docs/gpu.md)" >&2
  exit 2
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
toolkit=$(dirname "$(dirname "$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")")")
export LD_LIBRARY_PATH=$PWD:$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# The ops' cases on the GPU, and the backend's own. Tests that fault on purpose, or ask CUDA for what it
# must refuse, are errors to a sanitizer; those of gigabytes would take it hours.
readonly ops_filter='*/cuda.*'
readonly sanitizer_filter='-*DeathTest.*:*Refused*:*TooMuch*:*NotThere*:CudaHeaders.*:ExpertGemmSizeTest.*'
# racecheck does not see that one lane's arrival at an mbarrier stands for its warp's reads
# (docs/kernels/moe.md).
readonly without_expert_gemms=':ExpertGemm*'

rows=() failed=0
# add_row PART NAME PASSED FAILED SKIPPED NOTE
add_row() {
  rows+=("$(printf '%-10s %-34s %7s %7s %8s  %s' "$@")")
  [[ $4 == 0 || $4 == - ]] || failed=1
}

# count FILE WORD: N of GoogleTest's line "[  WORD  ] N tests", 0 without one.
count() {
  local number
  number=$(sed -nE "s/^\[ +$2 +\] ([0-9]+) tests?.*/\1/p" "$1" | head -n 1)
  echo "${number:-0}"
}

# run_tests PART NAME LIMIT COMMAND...: one row from what a GoogleTest program says; $remark stands in the
# note of one that passes.
remark=
run_tests() {
  local part=$1 name=$2 limit=$3 log="$out/$1-${2// /-}.log" code passed bad skipped missing note=
  shift 3
  timeout "$limit" "$@" >"$log" 2>&1
  code=$?
  passed=$(count "$log" PASSED) bad=$(count "$log" FAILED) skipped=$(count "$log" SKIPPED)
  missing=$(grep -c 'cannot be used:' "$log")
  if ((missing > 0)); then
    note=$(grep -m 1 'cannot be used:' "$log")
    bad=$((bad + skipped)) skipped=0
  elif ((code == 124)); then
    note="stopped after $limit s"
  elif ((code != 0 && bad == 0)); then
    note="exit code $code: $(tail -n 1 "$log")"
  elif ((passed == 0 && bad == 0)); then
    note="no test ran"
  elif ((bad > 0)); then
    note=$(grep -m 1 -E '^\[  FAILED  \] [A-Za-z]' "$log")
  fi
  [[ -n $note ]] && ((bad == 0)) && bad=1
  if [[ -z $note ]]; then
    ((skipped > 0)) && note=$(skip_reasons "$log")
    [[ -n $remark ]] && note+="${note:+; }$remark"
  fi
  add_row "$part" "$name" "$passed" "$bad" "$skipped" "$note"
}

# The ops that made tests skip themselves.
skip_reasons() {
  sed -nE 's/^the op ([a-z_0-9]+) cannot run.*/\1/p' "$1" | sort -u | paste -sd, - | sed 's/^/no /; s/,/, /g'
}

# run_sanitized TOOL PROGRAM FILTER: one row.
run_sanitized() {
  remark=
  [[ $3 == *"$without_expert_gemms" ]] && remark='without the expert GEMMs, see docs/kernels/moe.md'
  run_tests sanitizer "$1 $2" "${limit:-1800}" compute-sanitizer --tool "$1" --error-exitcode 9 \
    "./$2" --gtest_filter="$3"
  remark=
}

run_sanitizer() {
  local tool own ops
  if ! command -v compute-sanitizer >/dev/null && [[ ! -x $toolkit/bin/compute-sanitizer ]]; then
    add_row sanitizer compute-sanitizer 0 1 0 "not found; it is part of CUDA's toolkit"
    return
  fi
  export PATH=$PATH:$toolkit/bin
  for tool in memcheck racecheck synccheck; do
    own=$sanitizer_filter ops=$sanitizer_ops
    if [[ $tool == racecheck ]]; then
      own+=$without_expert_gemms
      [[ $ops == "$default_sanitizer_ops" ]] && ops+=$without_expert_gemms
    fi
    run_sanitized "$tool" cuda_test "$own"
    run_sanitized "$tool" ops_test "$ops"
  done
}

# csv_rows: data rows of the CSV so far.
csv_rows() { echo $(($(wc -l 2>/dev/null <"$csv" || echo 1) - 1)); }

# run_rows NAME COMMAND...: one row, with the number of rows that the command added to the CSV.
run_rows() {
  local name=$1 log="$out/bench-$1.log" code before
  shift
  before=$(csv_rows)
  "$@" >"$log" 2>&1
  code=$?
  cat "$log"
  if ((code == 0)); then
    add_row bench "$name" "$(($(csv_rows) - before))" 0 0 "rows in $csv"
  else
    add_row bench "$name" 0 1 0 "exit code $code: $(tail -n 1 "$log")"
  fi
  return "$code"
}

run_bench() {
  csv="$out/bench.csv"
  rm -f "$csv"
  run_rows dsv4_bench ./dsv4_bench --device cuda --commit "$(cat commit 2>/dev/null)" --csv "$csv" \
    ${bench_filter:+--filter "$bench_filter"} || return
  if python3 -c 'import torch' 2>/dev/null; then
    run_rows gpu_peers.py python3 gpu_peers.py --csv "$csv"
  else
    add_row bench gpu_peers.py 0 0 1 "PyTorch is not installed"
  fi
}

nvidia-smi -L 2>/dev/null || echo "nvidia-smi shows no GPU"
for part in "${parts[@]}"; do
  case "$part" in
    tests)
      run_tests test cuda_test "${limit:-600}" ./cuda_test
      run_tests test ops_test "${limit:-600}" ./ops_test --gtest_filter="$ops_filter"
      ;;
    sanitizer) run_sanitizer ;;
    bench) run_bench ;;
  esac
done

printf '\n%-10s %-34s %7s %7s %8s\n' part what passed failed skipped
printf '%s\n' "${rows[@]}"
if ((failed)); then
  echo "gpu_check: failed; the logs are in $out"
  exit 1
fi
echo "gpu_check: all is well"
