"""What AlphaFold's data pipeline says of the alignments of one query from several searches."""

import re
from collections.abc import Sequence

import numpy as np

from evoformer.features.alignment import Alignment
from evoformer.features.steps import Features

# UniProt's names of a sequence: tr|A0A146SKV9|A0A146SKV9_FUNHE, with an isoform or a version behind either part.
_UNIPROT_NAME = re.compile(r"(?:tr|sp)\|[A-Za-z0-9]{6,10}(?:_\d)?\|[A-Za-z0-9]+_([A-Za-z0-9]{1,5})(?:_\d+)?")


def pipeline_features(alignments: Sequence[Alignment]) -> Features:
    """What AlphaFold's data pipeline makes of the alignments of one query from several searches, by AlphaFold's names.

    Rows equal to an earlier one of any of them are dropped; the first keeps its own name and deletions, and rows of
    gaps stay.

    Args:
        alignments: in AlphaFold UniRef90's, BFD's, then MGnify's.

    Returns:
        aatype: [N_res]
        msa: [N_seq, N_res], in AlphaFold's order, not HHblits'
        deletion_matrix_int: [N_seq, N_res]
        num_alignments: [N_res], N_seq at each residue
        msa_species_identifiers: [N_seq], UniProt's mnemonic of the species, such as HUMAN, or nothing

    Raises:
        ValueError: no alignment, or alignments of different queries.
    """
    if not alignments:
        raise ValueError("0 alignments given, expected at least 1")
    alignment = alignments[0].concatenate(*alignments[1:]).deduplicate()
    return {
        "aatype": alignment.aatype.astype(np.int64),
        "msa": alignment.msa,
        "deletion_matrix_int": alignment.deletions,
        "num_alignments": np.full(alignment.N_res, alignment.N_seq, np.int32),
        "msa_species_identifiers": np.array([species_identifier(name) for name in alignment.ids]),
    }


def species_identifier(name: str) -> str:
    """The species in a sequence's name as UniProt writes it, LOXLA of sp|P0C2L1|A3X1_LOXLA/10-20; empty in others."""
    match = _UNIPROT_NAME.fullmatch(name.partition("/")[0].strip())
    return match.group(1) if match else ""
