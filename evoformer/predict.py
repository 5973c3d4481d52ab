"""An alignment and a checkpoint to contacts, distances and embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32

from evoformer.checkpoint import load_model
from evoformer.constants import MIN_SEPARATION
from evoformer.contacts.dca import mean_field_dca
from evoformer.contacts.plot import Panel, plot_contacts
from evoformer.contacts.precision import contact_precision
from evoformer.errors import InputError, require
from evoformer.features.alignment import Alignment
from evoformer.features.featurizer import MSAFeaturizer
from evoformer.features.reading import read_alignment
from evoformer.features.seeding import Seed
from evoformer.features.sources import file_stem
from evoformer.features.structure import Structure, read_structure
from evoformer.files import writable_folder, written_whole
from evoformer.model import ContactModel


@dataclass(frozen=True)
class Prediction:
    """What a model says about an alignment.

    Attributes:
        query: the letters of row 0.
        contacts: probability that two C-beta atoms are closer than 8 Angstrom, [N_res, N_res].
        distogram: probability of each distance bin, [N_res, N_res, N_bin].
        distance_edges: the borders between the bins, Angstrom, [N_bin - 1].
        m: the MSA representation of the rows that were used, [N_seq, N_res, c_m].
        z: the pair representation, [N_res, N_res, c_z].
        s: the single representation, [N_res, c_s].
    """

    query: str
    contacts: Float32[np.ndarray, "N_res N_res"]
    distogram: Float32[np.ndarray, "N_res N_res N_bin"]
    distance_edges: Float32[np.ndarray, " N_edge"]
    m: Float32[np.ndarray, "N_seq N_res c_m"]
    z: Float32[np.ndarray, "N_res N_res c_z"]
    s: Float32[np.ndarray, "N_res c_s"]


@torch.inference_mode()
def predict(model: ContactModel, alignment: Alignment, *, max_seqs: int = 128, seed: Seed = 0) -> Prediction:
    """Run a model on an alignment.

    Args:
        model: as `load_model` returns it; it is run in evaluation mode and left in its own.
        alignment: row 0 is the query.
        max_seqs: rows of the alignment to use: the query, and the others drawn at random.
        seed: decides which rows are drawn.
    """
    featurizer = MSAFeaturizer(max_clusters=max_seqs, max_extra=0, masked_msa_fraction=0.0)
    device = model.distance_edges.device
    features = {name: value.to(device) for name, value in featurizer(alignment, seed).items()}
    was_training = model.training
    output = model.eval()(features)
    model.train(was_training)
    contacts = model.contact_probability(output.distogram_logits)
    arrays = (
        contacts,
        output.distogram_logits.float().softmax(-1),
        model.distance_edges,
        output.m,
        output.z,
        output.s,
    )
    return Prediction(alignment.query, *(array.float().cpu().numpy() for array in arrays))


def predict_files(
    alignments: Sequence[Path],
    checkpoint: Path,
    out: Path,
    structure: Sequence[str] | None = None,
    max_seqs: int = 128,
    seed: int = 0,
    dca: bool = False,
) -> None:
    """Predict the contacts of alignment files, and write `NAME.tsv`, `NAME.npz` and `NAME.png` for each.

    The table lists the pairs of residues six or more apart along the chain, the likeliest first, residues counted from
    1. The archive holds the fields of `Prediction`. The picture shows the contacts, with the structure's below the
    diagonal where one is given; the precision is then printed too.

    Args:
        alignments: files of any format that `read_alignment` reads.
        checkpoint: what training has written.
        out: the folder to write to.
        structure: `FILE` or `FILE:CHAIN` for each alignment, in their order.
        max_seqs: rows of an alignment that the model reads.
        seed: decides which rows.
        dca: whether mean-field DCA of the whole alignment is shown beside the model; its time grows with N_res cubed.

    Raises:
        InputError: something cannot be read, written, or does not fit.
    """
    if structure is not None and len(structure) != len(alignments):
        raise InputError(f"{len(alignments)} alignments, but {len(structure)} structures: give one for each")
    names = [file_stem(path) for path in alignments]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{names.count(name)} alignments are called {name}: their results would overwrite each other"
            )
    if max_seqs < 1:
        raise InputError(f"max_seqs is {max_seqs}, the query alone is 1")
    if seed < 0:
        raise InputError(f"seed is {seed}, expected 0 or more")
    require("matplotlib")
    model = load_model(checkpoint)
    folder = writable_folder(out)
    for k, (name, path) in enumerate(zip(names, alignments, strict=True)):
        alignment = read_alignment(path)
        distances = None if structure is None else _structure(structure[k]).align(alignment.query)[0]
        prediction = predict(model, alignment, max_seqs=max_seqs, seed=seed)
        _write(prediction, folder / name)
        maps = {"trunk": prediction.contacts}
        if dca:
            maps["mean-field DCA"] = mean_field_dca(alignment.msa)
        panels = [Panel(f"{name}: {method}", scores, distances) for method, scores in maps.items()]
        plot_contacts(panels, folder / f"{name}.png")
        print(f"{name}: {alignment.N_seq} rows, {alignment.N_res} residues -> {folder / name}.tsv, .npz, .png")
        if distances is not None:
            for method, scores in maps.items():
                print(f"  precision of {method}: {_precision(scores, distances)}")


def _precision(scores: np.ndarray, distances: np.ndarray) -> str:
    """Precision of the top pairs, in words."""
    top, chance = contact_precision(scores, distances)
    shares = ", ".join(f"P@L{'' if divisor == 1 else f'/{divisor}'} {share:.3f}" for divisor, share in top.items())
    return f"{shares}; of random pairs {chance:.3f}"


def _structure(text: str) -> Structure:
    """Read `FILE` or `FILE:CHAIN`."""
    if Path(text).exists() or ":" not in text:
        return read_structure(text)
    path, chain = text.rsplit(":", 1)
    return read_structure(path, chain)


def _write(prediction: Prediction, stem: Path) -> None:
    """Write the table and the archive."""
    i, j = np.triu_indices(len(prediction.query), MIN_SEPARATION)
    order = np.argsort(-prediction.contacts[i, j], kind="stable")
    lines = ["i\tj\tresidue_i\tresidue_j\tprobability"]
    for a, b in zip(i[order], j[order], strict=True):
        residues = f"{prediction.query[a]}\t{prediction.query[b]}"
        lines.append(f"{a + 1}\t{b + 1}\t{residues}\t{prediction.contacts[a, b]:.4f}")
    with written_whole(stem.with_name(f"{stem.name}.tsv")) as path:
        path.write_text("\n".join(lines) + "\n")
    with written_whole(stem.with_name(f"{stem.name}.npz")) as path:
        np.savez_compressed(path, **vars(prediction))
