#!/bin/bash
# [WHOLE=SECONDS] bash tuning/bare/errand.sh 1|2 RESULTS [rehearsed]: one call to a machine with a GPU, in an
# unpacked bundle (make gpu-home gpu-prebuild gpu-bundle, some 20 minutes at home before):
#
#   tar xzf var/gpu/opatlas-gpu.tar.gz -C /tmp && cd /tmp/opatlas-gpu && bash tuning/bare/errand.sh 1 "$OUT"
#
# Phase 1 (165 s): what is there, and whether each part works. Phase 2 (550 s): the table. WHOLE says less, where
# less is left of the machine. Every step has a limit of its own, within that. How it ended goes into
# RESULTS/steps.jsonl, then what it said into RESULTS/errand.log; until then, and where the whole call is killed,
# that lies in RESULTS/running-*. Each line that is measured goes into RESULTS/measured-N.jsonl at once. Nothing
# that fails ends the script, and nothing is fetched.
# "rehearsed": the simulated device in place of one.
set -u
PHASE=$1 OUT=$2 REHEARSED=${3:-}
case $PHASE in 1) WHOLE=${WHOLE:-165} ;; 2) WHOLE=${WHOLE:-550} ;; *) echo "bash errand.sh 1|2 RESULTS [rehearsed]" >&2; exit 64 ;; esac
BEGAN=$SECONDS
mkdir -p "$OUT" var/gpu || exit
LOG=$OUT/errand.log STEPS=$OUT/steps.jsonl
free=$(df --output=avail -k "${TMPDIR:-/tmp}" | tail -n 1)
if [ "${free:-0}" -lt $((8 << 20)) ]; then # builds and artifacts of the problems lie there
  export TMPDIR=$PWD/var/gpu/tmp
  mkdir -p "$TMPDIR"
fi
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
  said=$(mktemp "$OUT/running-XXXXXX")
  timeout -k 2 "$limit" "$@" >"$said" 2>&1
  code=$?
  { flock 9
    echo "{\"phase\": $PHASE, \"step\": \"$name\", \"code\": $code, \"took_s\": $((SECONDS - began)), \"limit_s\": $limit}" >>"$STEPS"
    echo "== $PHASE $name: code $code, $((SECONDS - began)) of $limit s"; tail -c 200000 "$said"
  } 9>>"$LOG" >>"$LOG"
  rm -f "$said"
}

# tests NAME LIMIT WHICH: those of a device whose names this selects.
tests() {
  step "$1" "$2" "$PY" -m tests.gpu tests/gpu/test_device.py -v -k "$3"
}

# bench NAME LIMIT PASS …: of the table, in as much of the limit as leaves time to end.
bench() {
  local name=$1 limit=$2 passing=$3; shift 3
  [ "$(left)" -lt "$limit" ] && limit=$(left)
  step "$name" "$limit" "$PY" -m tuning.bare bench --pass "$passing" --seconds $((limit - 10)) "$@" \
    --state "$OUT" ${REHEARSED:+--rehearsed tests.gpu.rehearsal}
}

machine() {
  nproc; free -m; uname -a; df -h . /tmp /dev/shm; ls -l /dev/nvidia* /dev/nvidia-caps
  nvidia-smi -q | head -250
  ldconfig -p | grep -E 'libcuda|libnvidia-ml|libcudnn|libcublas|libnvrtc'
  command -v nvcc g++ bwrap; python3 --version
  python3 -c 'import importlib.metadata as m; print(sorted((d.name, d.version) for d in m.distributions()))'
}
export -f machine

# A small virtual machine may get its memory as it is used, and counts as all that there is what it has got.
memory() {
  step memory 25 "$PY" -c "
import re
def total(): return re.search(r'MemTotal: *(\d+ kB)', open('/proc/meminfo').read())[1]
open('/proc/self/oom_score_adj', 'w').write('1000') # where there is no more, this ends and nothing else
print(total(), 'before', flush=True); held = [b'x' * (1 << 30) for _ in range(32)]; print(total(), 'with 32 GiB more')"
}

[ "$PHASE" = 1 ] && step machine 10 bash -c machine
[ -d site ] && step environment 30 python3 -m tuning.bare.unpacked
[ -e /dev/nvidiactl ] && memory &

if [ "$PHASE" = 1 ]; then
  step ceilings 40 "$PY" -c "
import sys; from pathlib import Path; from tuning.bare.ceilings import known_or_asked
print(found := known_or_asked(Path('$OUT/ceilings.json'), '${REHEARSED:+cpu}' or 'cuda')); sys.exit(found is None)"
  step sandbox 10 "$PY" -c 'from tuning.measure.sandbox import tiers; print(tiers.best_tier())'
  # Its build keeps all other builds of a machine waiting: it has a lock of its own, beside what is not timed.
  OPATLAS_LOCK=$PWD/var/gpu/inductor.lock tests "proof of inductor" 65 "builds_and_computes and inductor" &
  INDUCTOR=$!
  tests "driver" 45 "has_one_key or driver_does or pycuda" & CHECKS=$!
  tests "in place" 45 "tensors_that_lie_there" & CHECKS="$CHECKS $!"
  tests "plans" 45 "cudnn_has_plans" & CHECKS="$CHECKS $!"
  wait $CHECKS
  tests "proofs" 60 "builds_and_computes and not inductor"
  wait $INDUCTOR
  bench "some of the table" 50 quick --most 3
  tests "graphs, cold caches, the fault" 45 "(devices_own and not inductor) or illegal"
else
  bench "table" $((WHOLE - 105)) quick
  bench "thorough" "$WHOLE" thorough --each 60
fi
echo "phase $PHASE took $((SECONDS - BEGAN)) s" | tee -a "$LOG"
