#!/usr/bin/env bash
# Runs the fuzz targets that were built (make fuzz), one after another, from the committed inputs on.
# Stops at the first finding. What the targets check and what to do with a finding: docs/fuzzing.md.
#
# New inputs go to build/fuzz/corpus/TARGET, findings to build/fuzz/findings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: tools/fuzz.sh [--merge] [TARGET...]
  TARGET      one or more of tests/fuzz/TARGET.cc; without any, all
  --merge     do not fuzz: add to tests/fuzz/corpus/TARGET those inputs of build/fuzz/corpus/TARGET
              that reach code which the committed ones do not
  FUZZ_SECONDS=600 in the environment is the time for each target.
TEXT
}

seconds=${FUZZ_SECONDS:-600}
merge=0
targets=()
for arg in "$@"; do
  case "$arg" in
    --merge) merge=1 ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "fuzz: unknown argument '$arg'" >&2; usage >&2; exit 2 ;;
    *) targets+=("$arg") ;;
  esac
done

programs=build/fuzz/tests/fuzz
if ((${#targets[@]} == 0)); then
  for folder in tests/fuzz/corpus/*/; do
    targets+=("$(basename "$folder")")
  done
fi

# The longest input and the words that it is made of, by target.
arguments_of() {
  local words=dsml max_len=4096
  case "$1" in
    completion) ;;
    completion_stream) max_len=1024 ;;
    safetensors_header | shard_index) words=safetensors ;;
    model_config | quantization_claims) words=config ;;
    tokenizer_json) words=tokenizer max_len=8192 ;;
    tokenizer_text) words=tokenizer max_len=1024 ;;
    stop_strings | token_ids) max_len=256 ;;
    chat_json | tool_arguments | question_file) words=chat ;;
  esac
  echo "-max_len=$max_len -dict=tests/fuzz/dictionaries/$words.dict"
}

for target in "${targets[@]}"; do
  program=$programs/$target
  if [[ ! -x $program ]]; then
    echo "fuzz: no program $program; is it built (make fuzz) and is there a tests/fuzz/$target.cc?" >&2
    exit 1
  fi
  work=build/fuzz/corpus/$target seeds=tests/fuzz/corpus/$target
  mkdir -p "$work" build/fuzz/findings
  limits=(-rss_limit_mb=2048 -malloc_limit_mb=1024 -timeout=10)
  if ((merge)); then
    "$program" -merge=1 -use_counters=0 "${limits[@]}" "$seeds" "$work"
    continue
  fi
  echo "fuzz: $target for $seconds seconds"
  # shellcheck disable=SC2046 # a list of words by construction
  if ! "$program" $(arguments_of "$target") "${limits[@]}" -max_total_time="$seconds" -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$target-" "$work" "$seeds" >"build/fuzz/$target.log" 2>&1; then
    tail -n 60 "build/fuzz/$target.log" >&2
    echo "fuzz: $target: a finding, kept in build/fuzz/findings (docs/fuzzing.md)" >&2
    exit 1
  fi
  grep -E 'DONE|stat::(number_of_executed_units|average_exec_per_sec)' "build/fuzz/$target.log"
done
