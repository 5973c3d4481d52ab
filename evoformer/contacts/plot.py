"""Pictures of contact maps. matplotlib is imported on first use."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from evoformer.constants import CONTACT_DISTANCE, MIN_SEPARATION
from evoformer.contacts.precision import contact_precision
from evoformer.files import written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = 3.0  # side of a map


@dataclass(frozen=True)
class Panel:
    """One contact map.

    Attributes:
        title: what stands above it.
        scores: the higher, the more likely a contact.
        distances: the truth in Angstrom, NaN where not resolved; None where it is not known.
    """

    title: str
    scores: Float[np.ndarray, "N_res N_res"]
    distances: Float[np.ndarray, "N_res N_res"] | None = None


def plot_contacts(panels: Sequence[Panel], path: Path) -> None:
    """Draw contact maps side by side into a picture file; its suffix says the format.

    Above the diagonal of each map are the scores in grey, and on them the L best pairs as dots: right ones blue, wrong
    ones red. Below it are the true contacts. Without a truth the L best pairs are violet, and nothing is below.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES * len(panels), INCHES + 0.3), layout="constrained")
    FigureCanvasAgg(figure)  # a canvas of its own: nobody's pyplot is touched
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, panel)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=120)


def _draw(axes: "Axes", panel: Panel) -> None:
    N_res = len(panel.scores)
    i, j = np.triu_indices(N_res, MIN_SEPARATION)
    scores = panel.scores[i, j]
    upper = np.full((N_res, N_res), np.nan)
    upper[i, j] = scores
    # Scores without a scale of their own, such as DCA's, are drawn from 0 to their best.
    axes.imshow(upper, cmap="Greys", vmin=0, vmax=max(scores.max(initial=0.0), 1e-6), interpolation="nearest")

    def dots(rows: np.ndarray, columns: np.ndarray, color: str) -> None:
        axes.scatter(columns, rows, color=color, s=500 / N_res, linewidths=0)

    title = panel.title
    if panel.distances is None:
        best = np.argsort(-scores, kind="stable")[:N_res]
        dots(i[best], j[best], "tab:purple")
    else:
        known = ~np.isnan(panel.distances[i, j])
        contact = known & (panel.distances[i, j] < CONTACT_DISTANCE)
        N_resolved = (~np.isnan(panel.distances)).any(axis=0).sum()
        best = np.argsort(-np.where(known, scores, -np.inf), kind="stable")[:N_resolved]
        dots(i[best[contact[best]]], j[best[contact[best]]], "tab:blue")
        dots(i[best[~contact[best]]], j[best[~contact[best]]], "tab:red")
        dots(j[contact], i[contact], "black")
        precision = contact_precision(panel.scores, panel.distances, divisors=(1,)).top[1]
        title = f"{title}, P@L {precision:.2f}"
    axes.axline((0, 0), slope=1, color="0.6", linewidth=0.6)
    axes.set(xlim=(-0.5, N_res - 0.5), ylim=(N_res - 0.5, -0.5))
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
