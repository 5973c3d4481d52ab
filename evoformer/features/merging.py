"""Alignments of one query from several searches as one, and what AlphaFold's data pipeline says of it."""

import re
from collections.abc import Sequence

import numpy as np

from evoformer.constants import GAP, RESIDUES, UNKNOWN
from evoformer.features.alignment import Alignment, AlignmentError
from evoformer.features.steps import Features

# UniProt's names of a sequence: tr|A0A146SKV9|A0A146SKV9_FUNHE, with an isoform or a version behind either part.
_UNIPROT_NAME = re.compile(r"(?:tr|sp)\|[A-Za-z0-9]{6,10}(?:_\d)?\|[A-Za-z0-9]+_([A-Za-z0-9]{1,5})(?:_\d+)?")


def merge_alignments(alignments: Sequence[Alignment], letters: Sequence[Sequence[str]] | None = None) -> Alignment:
    """The rows of all alignments in the order given, without those equal to an earlier one of any of them.

    The first of equal rows keeps its own name and deletions; rows of gaps stay. As AlphaFold's `make_msa_features`.

    Args:
        alignments: of the same query, in AlphaFold UniRef90's, BFD's, then MGnify's.
        letters: each row of each alignment as the file has it, insertions left out. AlphaFold compares these, so that
            rows which differ only where one has B and the other D both stay; None compares the numbers of `msa`.

    Raises:
        AlignmentError: no alignment, or two with different numbers of columns.
    """
    if not alignments:
        raise AlignmentError("0 alignments to merge, expected at least 1")
    for number, alignment in enumerate(alignments, start=1):
        if alignment.N_res != alignments[0].N_res:
            raise AlignmentError(
                f"alignment 1 has {alignments[0].N_res} columns, alignment {number} of {len(alignments)} has "
                f"{alignment.N_res}: they are not of the same query"
            )
    if letters is None:
        keys: list[str | bytes] = [row.tobytes() for alignment in alignments for row in alignment.msa]
    else:
        keys = [row for rows in letters for row in rows]
    first: dict[str | bytes, int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    stacked = Alignment(
        np.concatenate([alignment.msa for alignment in alignments]),
        [name for alignment in alignments for name in alignment.ids],
        [text for alignment in alignments for text in alignment.descriptions],
        np.concatenate([alignment.deletions for alignment in alignments]),
    )
    return stacked[np.array(list(first.values()))]


def pipeline_features(alignment: Alignment, query: str | None = None) -> Features:
    """What AlphaFold's data pipeline makes of a merged alignment, by AlphaFold's names.

    Args:
        alignment: as `merge_alignments` returns it.
        query: the query's letters as its file has them; AlphaFold's `aatype` has X for B, Z, U, J and O, while row 0 of
            the MSA has D, E, C, X and X. None takes row 0.

    Returns:
        aatype: [N_res]
        msa: [N_seq, N_res], in AlphaFold's order, not HHblits'
        deletion_matrix_int: [N_seq, N_res]
        num_alignments: [N_res], N_seq at each residue
        msa_species_identifiers: [N_seq], UniProt's mnemonic of the species, such as HUMAN, or nothing
    """
    row = alignment.msa[0]
    if query is None:
        aatype = np.where(row == GAP, UNKNOWN, row).astype(np.int64)
    else:
        aatype = np.array([RESIDUES.find(letter) for letter in query], np.int64)
        aatype[aatype < 0] = UNKNOWN
    return {
        "aatype": aatype,
        "msa": alignment.msa,
        "deletion_matrix_int": alignment.deletions,
        "num_alignments": np.full(alignment.N_res, alignment.N_seq, np.int32),
        "msa_species_identifiers": np.array([species_identifier(name) for name in alignment.ids]),
    }


def species_identifier(name: str) -> str:
    """The species in a sequence's name as UniProt writes it, LOXLA of sp|P0C2L1|A3X1_LOXLA/10-20; empty in others."""
    match = _UNIPROT_NAME.fullmatch(name.partition("/")[0].strip())
    return match.group(1) if match else ""
