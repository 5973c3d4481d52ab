"""One protein chain of a PDB or mmCIF file: its sequence and the distances between its residues.

A residue stands where its C-beta atom is; where there is none (glycine, or an atom that is missing), where its C-alpha
atom is. Distances and coordinates are in angstroms.
"""

import gzip
import io
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from evoformer.constants import AMBIGUOUS
from evoformer.errors import InputError

MIN_IDENTITY = 0.8  # of the aligned residues, for a structure and a query to be the same protein
MIN_COVERAGE = 0.5  # of the shorter sequence, that must be aligned


class StructureError(InputError):
    """A structure that cannot be read, or that is not the query's."""


class _Residue(NamedTuple):
    letter: str
    number: int  # place in the chain's full sequence, from 1, if `numbered`; otherwise the author's
    insertion_code: str
    coordinate: Float[np.ndarray, "3"]  # NaN without any atom to stand for it


@dataclass(frozen=True, eq=False)
class Structure:
    """A protein chain, its unresolved residues included where the file lists them.

    Attributes:
        name: the file's name
        chain: the chain's name, the authors' one in mmCIF
        sequence: N_res letters; modified residues are their parents, unknown ones X
        coordinates: [N_res, 3] in angstroms, NaN where not resolved
    """

    name: str
    chain: str
    sequence: str
    coordinates: Float[np.ndarray, "N_res 3"]

    @property
    def mask(self) -> Bool[np.ndarray, "N_res"]:
        """True where the residue is resolved."""
        return ~np.isnan(self.coordinates).any(axis=1)

    @property
    def distances(self) -> Float[np.ndarray, "N_res N_res"]:
        """Distance of each two residues in angstroms, float32, NaN where one is not resolved."""
        difference = self.coordinates[:, None] - self.coordinates[None, :]
        return np.sqrt((difference**2).sum(axis=-1)).astype(np.float32)

    def align(self, query: str) -> tuple[Float[np.ndarray, "N_res N_res"], Bool[np.ndarray, "N_res"]]:
        """Distances and mask in the residues of another sequence of this protein, such as `alignment.query`.

        The sequences are aligned globally, with free gaps at their ends. They must be the same protein's: 80 % of the
        aligned residues identical (X left out), and half of the shorter sequence aligned.

        Args:
            query: N_res letters without gaps

        Returns:
            Distances [N_res, N_res] in angstroms, float32, NaN where the structure has not both residues; and mask
            [N_res], True where it has the residue.

        Raises:
            StructureError: if they are not the same protein's.
        """
        of_query, of_chain = _aligned_places(query, self.sequence)
        pairs = [(query[i], self.sequence[j]) for i, j in zip(of_query, of_chain, strict=True)]
        identical = [a == b for a, b in pairs if "X" not in (a, b)]
        identity = sum(identical) / max(len(identical), 1)
        shorter = min(len(query), len(self.sequence))
        if identity < MIN_IDENTITY or len(pairs) < MIN_COVERAGE * shorter:
            raise StructureError(
                f"the query has {len(query)} residues, chain {self.chain!r} of {self.name} has {len(self.sequence)}, "
                f"and they do not match: {len(pairs)} residues can be aligned, {identity:.0%} of them identical; "
                f"at least {MIN_COVERAGE:.0%} of the shorter sequence and {MIN_IDENTITY:.0%} are needed"
            )
        coordinates = np.full((len(query), 3), np.nan, np.float32)
        coordinates[of_query] = self.coordinates[of_chain]
        in_query = Structure(self.name, self.chain, query, coordinates)
        return in_query.distances, in_query.mask


def read_structure(path: str | PathLike[str], chain: str | None = None) -> Structure:
    """Read one protein chain of the first model of a PDB or mmCIF file, plain or gzipped.

    Unresolved residues come from SEQRES records, or mmCIF's polymer sequence, where the file has them; otherwise only
    the residues with coordinates are read. Of alternative locations the one with the highest occupancy counts.

    Args:
        path: the file
        chain: the chain's name, in mmCIF the authors'; the first protein chain if not given

    Raises:
        StructureError: for a file that cannot be read, without a protein, or without the chain asked for.
    """
    path = Path(path)
    text = _text_of(path)
    is_mmcif = any(line.startswith("_atom_site.") for line in text.splitlines())
    try:
        model, sequences, numbered = _parsed_mmcif(text) if is_mmcif else _parsed_pdb(text)
    except Exception as error:  # Biopython raises whatever a damaged file makes it trip over
        raise StructureError(f"{path}: not a PDB or mmCIF file that Biopython can read: {error!r}") from error
    chains = {each.id: residues for each in model or () if (residues := _protein_residues(each, numbered))}
    if not chains:
        raise StructureError(f"{path}: no protein chain")
    if chain is None:
        chain = next(iter(chains))
    if chain not in chains:
        raise StructureError(f"{path}: no protein chain {chain!r}; the protein chains are {', '.join(chains)}")
    residues = chains[chain]
    sequence = sequences.get(chain)
    places = None if sequence is None else _places_in(sequence, residues, numbered)
    if sequence is None or places is None:
        sequence, places = "".join(residue.letter for residue in residues), np.arange(len(residues))
    coordinates = np.full((len(sequence), 3), np.nan, np.float32)
    inside = places >= 0
    coordinates[places[inside]] = np.stack([residue.coordinate for residue in residues])[inside]
    return Structure(path.name, chain, sequence, coordinates)


def _text_of(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
    except FileNotFoundError:
        raise StructureError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:  # ValueError: a NUL in the name
        raise StructureError(f"{path}: cannot be read: {error}") from error
    return data.decode("utf-8", "replace")


def _parsed_pdb(text: str) -> tuple[Any, dict[str, str], bool]:
    """The first model, each chain's SEQRES, and False: residues have their authors' numbers."""
    from Bio import SeqIO
    from Bio.PDB.PDBParser import PDBParser

    structure = PDBParser(QUIET=True).get_structure("", io.StringIO(text))
    records = SeqIO.parse(io.StringIO(text), "pdb-seqres") if "\nSEQRES" in "\n" + text else ()
    sequences = {record.annotations["chain"]: str(record.seq) for record in records}
    return next(iter(structure), None), sequences, False


def _parsed_mmcif(text: str) -> tuple[Any, dict[str, str], bool]:
    """The first model, each chain's polymer sequence, and whether residues are numbered by their places in it."""
    from Bio.PDB.MMCIF2Dict import MMCIF2Dict
    from Bio.PDB.MMCIFParser import MMCIFParser

    items = MMCIF2Dict(io.StringIO(text))
    labels = items.get("_atom_site.label_seq_id", ["?"])
    numbered = "?" not in labels
    parser = MMCIFParser(QUIET=True, auth_residues=not numbered)
    structure = parser.get_structure("", io.StringIO(text))

    # The two tables that may hold the sequence name the chain by mmCIF's own name, or by its entity.
    by_asym = _monomers(items, "_pdbx_poly_seq_scheme.asym_id", "_pdbx_poly_seq_scheme.seq_id")
    by_entity = _monomers(items, "_entity_poly_seq.entity_id", "_entity_poly_seq.num")
    names = items["_atom_site.auth_asym_id"]
    unknown = ["?"] * len(names)
    asyms = items.get("_atom_site.label_asym_id", unknown)
    entities = items.get("_atom_site.label_entity_id", unknown)
    sequences: dict[str, str] = {}
    for name, asym, entity, label in zip(names, asyms, entities, labels if numbered else unknown, strict=True):
        if name not in sequences and label != ".":
            sequence = by_asym.get(asym) or by_entity.get(entity)
            if sequence:
                sequences[name] = sequence
    return next(iter(structure), None), sequences, numbered


def _monomers(items: Any, owner_key: str, number_key: str) -> dict[str, str]:
    """Letters of each polymer in a table of mmCIF; of several residues at one place the first."""
    table = owner_key.split(".")[0]
    polymers: dict[str, dict[int, str]] = {}
    rows = zip(items.get(owner_key, ()), items.get(number_key, ()), items.get(f"{table}.mon_id", ()), strict=True)
    for owner, number, name in rows:
        polymers.setdefault(owner, {}).setdefault(int(number), _letter(name) or "X")
    return {owner: "".join(letters[i] for i in sorted(letters)) for owner, letters in polymers.items()}


def _letter(residue_name: str) -> str | None:
    from Bio.Data.PDBData import protein_letters_3to1_extended

    letter = protein_letters_3to1_extended.get(residue_name.strip().upper())
    return None if letter is None else AMBIGUOUS.get(letter, letter)


def _protein_residues(chain: Any, numbered: bool) -> list[_Residue]:
    """The residues of a Bio.PDB chain that are amino acids, without ligands that are.

    Only what belongs to the chain has a place in mmCIF's numbering. Without that, a HETATM record with the name of a
    standard residue is a ligand: in the chain it would be an ATOM.
    """
    from Bio.Data.PDBData import protein_letters_3to1

    residues = []
    for residue in chain:
        if residue.is_disordered() == 2:  # several residues at one place: Bio.PDB selects the last one
            residue = max(residue.disordered_get_list(), key=_occupancy)
        hetero, number, insertion_code = residue.id
        if hetero.strip() and not numbered and residue.get_resname() in protein_letters_3to1:
            continue
        letter = _letter(residue.get_resname())
        if letter is None and "CA" in residue and (numbered or not hetero.strip()):
            letter = "X"
        if letter is not None:
            atom = "CB" if "CB" in residue and letter != "G" else "CA"
            coordinate = residue[atom].coord if atom in residue else np.full(3, np.nan)
            residues.append(_Residue(letter, number, insertion_code, coordinate))
    return residues


def _occupancy(residue: Any) -> float:
    return max((atom.get_occupancy() or 0.0 for atom in residue), default=0.0)


def _places_in(sequence: str, residues: list[_Residue], numbered: bool) -> Int[np.ndarray, "n"] | None:
    """Where the residues stand in the chain's full sequence, -1 for one that does not; None if they do not fit it."""
    numbers = np.array([residue.number for residue in residues])
    if numbered:
        return numbers - 1 if numbers.min() >= 1 and numbers.max() <= len(sequence) else None
    letters = np.array([residue.letter for residue in residues])
    full = np.array(list(sequence))
    # Authors mostly number along the sequence, from anywhere. That tells places which letters alone may leave open.
    if not any(residue.insertion_code.strip() for residue in residues):
        for start in range(numbers.max() - len(full) + 1, numbers.min() + 1):
            if (full[numbers - start] == letters).all():
                return numbers - start
    of_residues, of_sequence = _aligned_places("".join(letters), sequence)
    same = letters[of_residues] == full[of_sequence]
    if not same.any() or same.mean() < MIN_IDENTITY:
        return None
    places = np.full(len(residues), -1)
    places[of_residues] = of_sequence
    return places


def _aligned_places(first: str, second: str) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Places of the residues that a global alignment with free end gaps puts together."""
    from Bio.Align import PairwiseAligner

    if not first or not second:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    aligner = PairwiseAligner(mode="global", match_score=2.0, mismatch_score=-1.0)
    aligner.open_gap_score = -4.0
    aligner.extend_gap_score = -0.2
    aligner.end_gap_score = 0.0
    alignment = aligner.align(first, second)[0]
    spans = zip(*alignment.aligned, strict=True)
    pairs = [(np.arange(*span), np.arange(*other)) for span, other in spans]
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])
