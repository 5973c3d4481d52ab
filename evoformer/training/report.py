"""What a training run shows at its end: a table of precisions and a picture of three families."""

from collections.abc import Sequence
from pathlib import Path

from evoformer.contacts.dca import mean_field_dca
from evoformer.contacts.plot import Panel, plot_contacts
from evoformer.evaluation import DIVISORS, Score
from evoformer.features.families import Family
from evoformer.files import written_whole
from evoformer.model import ContactModel
from evoformer.predict import predict

COLUMNS = {k: "P@L" if k == 1 else f"P@L/{k}" for k in DIVISORS}


class Report:
    """The precision on held-out families, of the trunk and of what it is held against.

    Args:
        scores: what `summarize` returns.
        mean_identity: between the rows of an alignment, mean over the families.
    """

    def __init__(self, scores: dict[str, Score], *, mean_identity: float) -> None:
        self.scores = scores
        self.mean_identity = mean_identity

    def print(self) -> None:
        """Print the table, at most 80 columns wide."""
        from rich import box
        from rich.console import Console
        from rich.table import Table

        N_family = next(iter(self.scores.values())).N_family
        table = Table(title=f"Contacts of {N_family} held-out families", box=box.SIMPLE, show_edge=False)
        table.add_column("")
        for column in COLUMNS.values():
            table.add_column(column, justify="right")
        for name, score in self.scores.items():
            table.add_row(name, *(f"{score.mean[k]:.3f} ± {score.spread[k]:.2f}" for k in COLUMNS))
        table.caption = (
            "top L, L/2 and L/5 pairs, |i-j| >= 6, C-beta < 8 A\n"
            f"mean ± spread over families; mean identity between rows {self.mean_identity:.1%}"
        )
        Console(width=max(80, Console().width)).print(table)

    def write(self, folder: Path, model: ContactModel, families: Sequence[Family]) -> None:
        """Write `precision.tsv` and `contacts.png`: the model's contacts of some families, DCA's beside them."""
        with written_whole(folder / "precision.tsv") as path:
            path.write_text(self._tsv())
        panels = []
        for family in families:
            contacts = predict(model, family.alignment).contacts
            panels.append(Panel(f"family {family.name}: trunk", contacts, family.distances))
            panels.append(Panel("mean-field DCA", mean_field_dca(family.alignment.msa), family.distances))
        plot_contacts(panels, folder / "contacts.png")

    def _tsv(self) -> str:
        header = "\t".join(["method", *(f"{column}\t{column}_sd" for column in COLUMNS.values()), "N_family"])
        lines = [header]
        for name, score in self.scores.items():
            numbers = [f"{score.mean[k]:.4f}\t{score.spread[k]:.4f}" for k in COLUMNS]
            lines.append("\t".join([name, *numbers, str(score.N_family)]))
        lines.append(f"# mean identity between rows\t{self.mean_identity:.4f}")
        return "\n".join(lines) + "\n"
