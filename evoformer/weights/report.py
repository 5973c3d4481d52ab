"""What `load_weights` has done."""

from dataclasses import dataclass

from evoformer.weights.names import Layout, listed


@dataclass(frozen=True)
class LoadReport:
    """Which tensors went from a source into a module. `print(report)` sums it up.

    Attributes:
        module: the module's class.
        layout: whose names the source has.
        place: where in the source the tensors were, such as "evoformer.blocks.7, one of 48".
        loaded: names of the module's tensors that were loaded.
        missing: names of the module's tensors that the source lacks.
        mismatched: the tensors that have another shape in the source, in words with both shapes.
        unused: names in the source of which nothing was loaded.
        all_zero: names of the module's tensors that were loaded and hold nothing but zeros.
        notes: what else to know.
    """

    module: str
    layout: Layout
    place: str
    loaded: list[str]
    missing: list[str]
    mismatched: list[str]
    unused: list[str]
    all_zero: list[str]
    notes: list[str]

    def __str__(self) -> str:
        """One line a list, long lists cut."""
        lines = [f"{self.module} from {self.place} (layout {self.layout})", f"  {len(self.loaded)} loaded"]
        for names, words in (
            (self.missing, "missing"),
            (self.mismatched, "of another shape"),
            (self.unused, "unused in the source"),
            (self.all_zero, "all zero"),
        ):
            lines.append(f"  {len(names)} {words}" + (f": {listed(names)}" if names else ""))
        return "\n".join(lines + [f"  {note}" for note in self.notes])
