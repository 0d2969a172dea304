#!/bin/bash
# bash tuning/bare/errand.sh 1|2 RESULTS [rehearsed]: one call to a machine with a GPU, where the bundle was unpacked.
#
# Phase 1 (170 s): what is there, and whether each part works. Phase 2 (560 s): the table. Every step has a limit of
# its own, within what is left; what it says goes into RESULTS/errand.log as it is said, how it ended into
# RESULTS/steps.jsonl, each measured line into RESULTS/measured-N.jsonl. Nothing that fails ends the script.
# "rehearsed": the simulated device in place of one.
set -u
PHASE=$1 OUT=$2 REHEARSED=${3:-}
case $PHASE in 1) WHOLE=165 ;; 2) WHOLE=550 ;; *) echo "bash errand.sh 1|2 RESULTS [rehearsed]" >&2; exit 64 ;; esac
BEGAN=$SECONDS
mkdir -p "$OUT"
LOG=$OUT/errand.log STEPS=$OUT/steps.jsonl
. ./tuning/bare/environment.sh
export PYTHONUNBUFFERED=1
PY=var/gpu/venv/bin/python
[ -d site ] || PY=${PYTHON:-python3} # in the tree itself

left() { echo $((WHOLE - SECONDS + BEGAN)); }

# step NAME LIMIT COMMAND…: at most so long, and no longer than is left; its output in one piece.
step() {
  local name=$1 limit=$2 began=$SECONDS said code; shift 2
  [ "$(left)" -lt "$limit" ] && limit=$(left)
  if [ "$limit" -lt 2 ]; then
    echo "{\"phase\": $PHASE, \"step\": \"$name\", \"code\": null, \"why\": \"no time was left\"}" >>"$STEPS"
    return
  fi
  said=$(mktemp)
  timeout -k 2 "$limit" "$@" >"$said" 2>&1
  code=$?
  { flock 9
    echo "== $PHASE $name: code $code, $((SECONDS - began)) of $limit s"; tail -c 200000 "$said"
    echo "{\"phase\": $PHASE, \"step\": \"$name\", \"code\": $code, \"took_s\": $((SECONDS - began)), \"limit_s\": $limit}" >>"$STEPS"
  } 9>>"$LOG" >>"$LOG"
  rm -f "$said"
}

# tests NAME LIMIT WHICH: those of a device whose names this selects.
tests() {
  step "$1" "$2" "$PY" -m pytest -q --noconftest -p tests.gpu.conftest -p no:cacheprovider -p no:django \
    -c tests/gpu/pytest.ini --rootdir . tests/gpu/test_device.py -k "$3"
}

bench() {
  step "$@" --state "$OUT" ${REHEARSED:+--rehearsed tests.gpu.rehearsal}
}

machine() {
  nproc; free -m; uname -a; ls -l /dev/nvidia* /dev/nvidia-caps
  nvidia-smi -q | head -250
  ldconfig -p | grep -E 'libcuda|libnvidia-ml|libcudnn|libcublas|libnvrtc'
  command -v nvcc g++ bwrap; python3 --version
  python3 -c 'import importlib.metadata as m; print(sorted((d.name, d.version) for d in m.distributions()))'
}
export -f machine

if [ "$PHASE" = 1 ]; then step machine 10 bash -c machine; fi
[ -d site ] && step environment 30 python3 -m tuning.bare.unpacked

if [ "$PHASE" = 1 ]; then
  step ceilings 25 "$PY" -c "
from pathlib import Path; from tuning.bare.ceilings import known_or_asked
print(known_or_asked(Path('$OUT/ceilings.json'), '${REHEARSED:+cpu}' or 'cuda'))"
  step sandbox 10 "$PY" -c 'from tuning.measure.sandbox import tiers; print(tiers.best_tier())'
  tests "driver" 30 "has_one_key or driver_does" &
  tests "in place" 30 "tensors_that_lie_there" &
  wait
  for route in eager cublas cublaslt cudnn triton cuda; do
    tests "proof of $route" 35 "builds_and_computes and [$route]" &
    [ "$route" = cublaslt ] && wait
  done
  wait
  tests "graphs, cold caches, the fault" 40 "(devices_own and not inductor) or illegal"
  [ -n "$REHEARSED" ] && bench "some of the table" 30 "$PY" -m tuning.bare bench --pass quick --seconds 25 --most 3
  tests "inductor" 60 "builds_and_computes and inductor"
else
  bench "table" 445 "$PY" -m tuning.bare bench --pass quick --seconds 435
  bench "thorough" "$(left)" "$PY" -m tuning.bare bench --pass thorough --seconds "$(($(left) - 6))" --each 60
fi
echo "phase $PHASE took $((SECONDS - BEGAN)) s" | tee -a "$LOG"
