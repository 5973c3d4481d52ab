#!/usr/bin/env bash
# Parity and speed of every kernel on a CUDA machine, in one run of under six minutes; skips without a CUDA device.
# Usage: scripts/gpu_check.sh [folder for the results, gpu_check]
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-gpu_check}
python=${PYTHON:-python}

if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "skipped: PyTorch sees no CUDA device"
    exit 0
fi
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
unset TRITON_INTERPRET

"$python" - <<'EOF' | tee "$out/machine.txt"
from importlib.metadata import PackageNotFoundError, version

import torch

print(torch.cuda.get_device_name(), "with CUDA", torch.version.cuda)
for package in ("torch", "triton", "cuequivariance-torch", "trifast", "deepspeed"):
    try:
        print(package, version(package))
    except PackageNotFoundError:
        print(package, "is not installed")
EOF

echo "== parity"
timeout 200 "$python" -m pytest -q -rs --durations=10 -p no:cacheprovider tests/gpu 2>&1 | tee "$out/parity.txt"
parity=${PIPESTATUS[0]}

echo "== speed and memory"
timeout 140 "$python" scripts/benchmark.py --quick --device cuda --out "$out" 2>&1 | tee "$out/benchmark.txt"
speed=${PIPESTATUS[0]}

said() { case $1 in 0) echo "passed" ;; 124) echo "ran out of time" ;; *) echo "FAILED ($1)" ;; esac; }
echo "== summary"
head -1 "$out/machine.txt"
echo "parity:    $(said "$parity"), $(tail -1 "$out/parity.txt")"
echo "benchmark: $(said "$speed")"
echo "results:   $out"
[[ $parity -eq 0 && $speed -eq 0 ]]
