#!/usr/bin/env bash
# See the project on one GPU, in at most eight minutes, what is worth most first.
#
#     [OUT=FOLDER] bash benchmarks/gpu.sh [--dry]
#
# It needs PyTorch, numpy, scipy, pandas, networkx and PyYAML in PYTHON (python3), and nothing of a
# network. Each part has its own time and its own log in FOLDER; a part that fails is noted and the
# next one starts. `--dry` runs all of it on a processor, with tiny networks.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1
python=${PYTHON:-python3} out=${OUT:-benchmarks/data/gpu} dry=${1:-}
mkdir -p "$out"
: >"$out/parts.txt"

# part NAME SECONDS COMMAND…: run a command no longer than that, and note how it ended
part() {
  local name=$1 seconds=$2 begin=$SECONDS code=0
  shift 2
  timeout "$seconds" "$@" >"$out/$name.log" 2>&1 || code=$?
  printf '%-12s exit %3d  %4d s\n' "$name" $code $((SECONDS - begin)) | tee -a "$out/parts.txt"
}

run=("$python" -m oracle run --plan serial --steps 10 --local 1)
if [ "$dry" = --dry ]; then
  part selftest 300 "$python" -m oracle selftest --local 2 --seconds 5
  part trainings 300 "$python" -m benchmarks.gpu --measure --dry --out "$out"
  part machine 300 "$python" -m oracle measure machine --seconds 5 -o "$out/machine"
  part executor 300 "${run[@]}" lenet5 --batch 8 -o "$out/run-lenet5.json"
  part engine 300 "${run[@]}" lenet5 --batch 8 --engine ddp -o "$out/run-ddp.json"
else
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv >"$out/gpu.csv"
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv \
    -l 1 >"$out/clocks.csv" 2>/dev/null &
  watching=$!
  trap 'kill $watching 2>/dev/null' EXIT
  part selftest 60 "$python" -m oracle selftest --gpu --seconds 30
  part trainings 200 "$python" -m benchmarks.gpu --measure --seconds 180 --out "$out"
  part machine 100 "$python" -m oracle measure machine --seconds 60 -o "$out/machine"
  part resnet50 40 "${run[@]}" resnet50 --batch 64 --precision bf16 -o "$out/run-resnet50.json"
  part gpt2 40 "${run[@]}" gpt2 --batch 8 --precision bf16 --optimizer adam -o "$out/run-gpt2.json"
  part ddp 30 "${run[@]}" gpt2 --batch 8 --precision bf16 --optimizer adam --engine ddp \
    -o "$out/run-ddp.json"
fi
cat "$out/parts.txt"
! grep -qv 'exit   0' "$out/parts.txt"
