"""See that a short training run has printed its table and that its loss has fallen: RUN_FOLDER PRINTED_FILE."""

import csv
import sys
from pathlib import Path

run, printed = map(Path, sys.argv[1:])
table = printed.read_text()
rows = ("trunk, N = 1 ", "trunk, N = 32 ", "trunk, N = 128 ", "columns shuffled", "mean-field DCA", "chance")
missing = [row for row in rows if row not in table]
if missing:
    sys.exit(f"the table lacks {missing}")

with (run / "csv" / "version_0" / "metrics.csv").open() as file:
    losses = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]
first, last = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
if not last < 0.95 * first:
    sys.exit(f"the loss went from {first:.3f} to {last:.3f}: it has not fallen")

for name in ("last.ckpt", "contacts.png", "precision.tsv"):
    if not (run / name).is_file():
        sys.exit(f"the run left no {name}")
print(f"loss {first:.3f} -> {last:.3f} in {len(losses)} logged steps")
