"""read_structure: which atom stands for a residue, unresolved residues, chains, and aligning to a query.

The files are made up here: chain A is M G A K(unresolved) W S, in which M is selenomethionine and W has lost its
C-beta atom; chain B is two residues; there is also a water and a DNA strand.
"""

import gzip
import warnings

import numpy as np
import pytest

from evoformer.features.structure import StructureError, read_structure

# chain, residue, author's number, place in the sequence, atoms with their positions
RESIDUES = [
    ("A", "MSE", 11, 1, {"N": (0, 0, 9), "CA": (0, 0, 0), "CB": (1, 0, 0)}),
    ("A", "GLY", 12, 2, {"CA": (5, 0, 0)}),
    ("A", "ALA", 13, 3, {"CA": (9, 9, 9), "CB": (1, 4, 0)}),
    ("A", "TRP", 15, 5, {"CA": (1, 0, 12)}),
    ("A", "SER", 16, 6, {"CA": (8, 8, 8), "CB": (7, 0, 0)}),
    ("B", "LEU", 1, 1, {"CA": (2, 2, 2), "CB": (0, 3, 0)}),
    ("B", "VAL", 2, 2, {"CA": (2, 2, 2), "CB": (4, 0, 0)}),
    ("D", "DA", 1, 1, {"P": (0, 0, 0)}),
    ("A", "HOH", 201, None, {"O": (3, 3, 3)}),
]
SEQUENCES = {"A": ["MSE", "GLY", "ALA", "LYS", "TRP", "SER"], "B": ["LEU", "VAL"], "D": ["DA"]}
STANDS = {1: (1, 0, 0), 2: (5, 0, 0), 3: (1, 4, 0), 5: (1, 0, 12), 6: (7, 0, 0)}  # place to position in chain A


def pdb_text(seqres=True, residues=RESIDUES):
    lines = [f"SEQRES   1 {c} {len(names):>4}  {' '.join(names)}" for c, names in SEQUENCES.items() if seqres]
    serial = 0
    for chain, residue, number, _, atoms in residues:
        group = "HETATM" if residue in ("MSE", "HOH") else "ATOM"
        for atom, (x, y, z) in atoms.items():
            serial += 1
            lines.append(
                f"{group:<6}{serial:>5}  {atom:<3} {residue:>3} {chain}{number:>4}    "
                f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00 10.00          {atom[0]:>2}"
            )
    return "\n".join([*lines, "END", ""])


def mmcif_text(table="scheme"):
    """mmCIF names the chains P, Q, R and W, while the authors' names are A, B and D; entities are 1, 2, 3 and 4."""
    asym = {"A": "P", "B": "Q", "D": "R"}
    lines = ["data_made_up", "#"]
    if table == "scheme":
        lines += ["loop_", *(f"_pdbx_poly_seq_scheme.{key}" for key in ("asym_id", "seq_id", "mon_id"))]
        lines += [f"{asym[c]} {i} {name}" for c, names in SEQUENCES.items() for i, name in enumerate(names, start=1)]
        lines.append("#")
    if table == "entity":
        lines += ["loop_", *(f"_entity_poly_seq.{key}" for key in ("entity_id", "num", "mon_id"))]
        for entity, names in enumerate(SEQUENCES.values(), start=1):
            lines += [f"{entity} {i} {name}" for i, name in enumerate(names, start=1)]
        lines.append("#")
    keys = (
        "group_PDB id type_symbol label_atom_id label_alt_id label_comp_id label_asym_id label_entity_id label_seq_id"
    )
    keys += " pdbx_PDB_ins_code Cartn_x Cartn_y Cartn_z occupancy B_iso_or_equiv auth_seq_id auth_asym_id"
    lines += ["loop_", *(f"_atom_site.{key}" for key in [*keys.split(), "pdbx_PDB_model_num"])]
    serial = 0
    for model in (1, 2):  # the second one is elsewhere
        for chain, residue, number, place, atoms in RESIDUES:
            group = "HETATM" if residue in ("MSE", "HOH") else "ATOM"
            entity = 4 if place is None else list(SEQUENCES).index(chain) + 1
            name = "W" if place is None else asym[chain]
            for atom, position in atoms.items():
                serial += 1
                x, y, z = (value * model for value in position)
                lines.append(
                    f"{group} {serial} {atom[0]} {atom} . {residue} {name} {entity} {place or '.'} ? "
                    f"{x} {y} {z} 1.0 10.0 {number} {chain} {model}"
                )
    return "\n".join([*lines, "#", ""])


FILES = {
    "seqres.pdb": pdb_text(),
    "scheme.cif": mmcif_text("scheme"),
    "entity.cif": mmcif_text("entity"),
}


@pytest.fixture(params=FILES)
def path(request, tmp_path):
    path = tmp_path / request.param
    path.write_text(FILES[request.param])
    return path


def written(tmp_path, text, name="made_up.pdb"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_sequence_has_unresolved_residues_and_parents_of_modified_ones(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        structure = read_structure(path)
    assert structure.chain == "A"
    assert structure.sequence == "MGAKWS"
    assert structure.mask.tolist() == [True, True, True, False, True, True]


def test_a_residue_stands_at_its_beta_atom_or_else_at_its_alpha_atom(path):
    coordinates = read_structure(path).coordinates
    assert coordinates.dtype == np.float32
    assert np.isnan(coordinates[3]).all()
    for place, position in STANDS.items():
        np.testing.assert_array_equal(coordinates[place - 1], position)


def test_distances_are_nan_where_a_residue_is_unresolved(path):
    distances = read_structure(path).distances
    assert distances.dtype == np.float32
    assert distances.shape == (6, 6)
    assert np.isnan(distances[3]).all()
    assert np.isnan(distances[:, 3]).all()
    assert distances[0, 2] == distances[2, 0] == 4  # two C-beta atoms
    assert distances[0, 1] == 4  # C-beta and glycine's C-alpha
    assert distances[0, 4] == 12  # C-beta and the C-alpha of tryptophan, whose C-beta is missing


def test_another_chain_can_be_named(path):
    structure = read_structure(path, chain="B")
    assert (structure.chain, structure.sequence) == ("B", "LV")
    assert structure.distances[0, 1] == 5


@pytest.mark.parametrize("chain", ["D", "P", "Z"])  # DNA, mmCIF's own name for A, and none at all
def test_a_chain_that_is_no_protein_is_refused_with_those_that_are(path, chain):
    with pytest.raises(StructureError, match=f"{path.name}: no protein chain '{chain}'; the protein chains are A, B"):
        read_structure(path, chain)


def test_gzip_is_read(path):
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_structure(str(packed)).sequence == "MGAKWS"


def test_without_a_full_sequence_only_resolved_residues_are_there(tmp_path):
    structure = read_structure(written(tmp_path, pdb_text(seqres=False)))
    assert structure.sequence == "MGAWS"
    assert structure.mask.all()
    without_table = read_structure(written(tmp_path, mmcif_text(table="none"), "none.cif"))
    assert without_table.sequence == "MGAWS"
    np.testing.assert_array_equal(without_table.coordinates, structure.coordinates)


def test_author_numbers_decide_where_letters_leave_open_what_is_unresolved(tmp_path):
    # Of A A A A only the second and the fourth are resolved.
    residues = [("A", "ALA", number, None, {"CA": (number, 0, 0)}) for number in (102, 104)]
    trailing = [("A", "GLY", 105, None, {"CA": (105, 0, 0)})]
    text = "SEQRES   1 A    5  ALA ALA ALA ALA GLY\n" + pdb_text(seqres=False, residues=residues + trailing)
    structure = read_structure(written(tmp_path, text))
    assert structure.sequence == "AAAAG"
    assert structure.mask.tolist() == [False, True, False, True, True]


def test_residues_numbered_anyhow_are_aligned_to_the_full_sequence(tmp_path):
    residues = [
        (chain, name, 7 * place, place, atoms) for chain, name, _, place, atoms in RESIDUES if chain == "A" and place
    ]
    seqres = "SEQRES   1 A    6  MSE GLY ALA LYS TRP SER\n"
    structure = read_structure(written(tmp_path, seqres + pdb_text(seqres=False, residues=residues)))
    assert structure.sequence == "MGAKWS"
    assert structure.mask.tolist() == [True, True, True, False, True, True]


def test_a_free_amino_acid_is_no_residue(tmp_path):
    ligand = "HETATM   90  CA  SER A 301      70.000   0.000   0.000  1.00 10.00           C\n"
    residues = [residue for residue in RESIDUES if residue[0] == "A" and residue[1] not in ("SER", "HOH")]
    text = pdb_text(residues=residues)
    structure = read_structure(written(tmp_path, text.replace("END\n", ligand + "END\n")))
    assert structure.sequence == "MGAKWS"
    assert structure.mask.tolist() == [True, True, True, False, True, False]  # the ligand does not stand for S
    without = read_structure(written(tmp_path, ligand + pdb_text(seqres=False, residues=residues)))
    assert without.sequence == "MGAW"


@pytest.mark.parametrize(("occupancy", "letter"), [("0.70", "A"), ("0.30", "S")])
def test_of_two_residues_at_one_place_the_fuller_one_counts(tmp_path, occupancy, letter):
    line = "ATOM  {:>5}  CA {}{} A   1    {:8.3f}   0.000   0.000  {} 10.00           C\n"
    text = line.format(1, "A", "ALA", 1.0, occupancy) + line.format(2, "B", "SER", 2.0, "0.50")
    assert read_structure(written(tmp_path, text)).sequence == letter


def test_aligning_gives_distances_in_the_residues_of_the_query(path):
    structure = read_structure(path)
    distances, mask = structure.align("GAKWSYY")  # M is not in the query, Y and Y are not in the structure
    assert distances.dtype == np.float32
    assert distances.shape == (7, 7)
    assert mask.tolist() == [True, True, False, True, True, False, False]
    assert np.isnan(distances[~mask]).all()
    assert np.isnan(distances[:, ~mask]).all()
    np.testing.assert_array_equal(distances[:5, :5], structure.distances[1:, 1:])


def test_a_mutated_residue_keeps_its_place(path):
    distances, mask = read_structure(path).align("MGACWS")
    np.testing.assert_array_equal(distances, read_structure(path).distances)
    assert mask.tolist() == [True, True, True, False, True, True]


def test_the_structures_own_sequence_aligns_to_itself(path):
    structure = read_structure(path)
    distances, mask = structure.align(structure.sequence)
    np.testing.assert_array_equal(distances, structure.distances)
    np.testing.assert_array_equal(mask, structure.mask)


def test_an_unknown_residue_is_x_and_agrees_with_any_letter(tmp_path):
    residues = [("A", name, i, i, {"CA": (i, 0, 0)}) for i, name in enumerate(["ALA", "ZZZ", "GLY"], start=1)]
    structure = read_structure(written(tmp_path, pdb_text(seqres=False, residues=residues)))
    assert structure.sequence == "AXG"
    assert structure.align("ACG")[1].all()


def test_residues_with_insertion_codes_take_places_of_their_own(tmp_path):
    numbers = {"ALA": ["  1 "], "GLY": ["  2 "], "TRP": ["  3 ", "  3A", "  4 "]}
    lines = ["SEQRES   1 A    6  ALA GLY TRP TRP TRP VAL"]
    for name, places in numbers.items():
        for place in places:
            position = f"{len(lines):8.3f}   0.000   0.000  1.00 10.00           C"
            lines.append(f"ATOM  {len(lines):>5}  CA  {name} A {place}   {position}")
    structure = read_structure(written(tmp_path, "\n".join(lines) + "\n"))
    assert structure.sequence == "AGWWWV"
    np.testing.assert_array_equal(structure.coordinates[:, 0], [1, 2, 3, 4, 5, np.nan])


def test_a_full_sequence_that_the_residues_do_not_fit_is_left_out(tmp_path):
    text = mmcif_text("scheme").replace("P 6 SER\n", "")
    assert read_structure(written(tmp_path, text, "short.cif")).sequence == "MGAWS"


def test_residues_that_the_query_lacks_are_skipped(tmp_path):
    names = ["MET", "ALA", "TRP", "SER", "LYS", "HIS", "CYS", "PHE"]
    residues = [("A", name, i, i, {"CA": (i * i, 0, 0)}) for i, name in enumerate(names)]
    structure = read_structure(written(tmp_path, pdb_text(seqres=False, residues=residues)))
    distances, mask = structure.align("MAWSCF")  # without K and H
    assert mask.all()
    assert distances[3, 4] == 6 * 6 - 3 * 3


@pytest.mark.parametrize("query", ["CDEFCDEFCDEF", "SYYYYYYYYYYY"])  # nothing in common; one residue in common
def test_a_query_of_another_protein_is_refused_with_both_lengths(path, query):
    with pytest.raises(StructureError, match=r"query has 12 residues, chain 'A' .* has 6, .* \d+% of them identical"):
        read_structure(path).align(query)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing like a structure\n", "no protein chain"),
        ("", "not a PDB or mmCIF file that Biopython can read"),
        ("data_x\nloop_\n_atom_site.id\n1\n", "not a PDB or mmCIF file that Biopython can read"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, text, message):
    with pytest.raises(StructureError, match=f"made_up.pdb: {message}"):
        read_structure(written(tmp_path, text))


@pytest.mark.parametrize("query", ["", "---"])
def test_a_query_without_a_residue_is_refused(path, query):
    with pytest.raises(StructureError, match=f"query has {len(query)} residues"):
        read_structure(path).align(query)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StructureError, match=r"nowhere\.cif: no such file"):
        read_structure(tmp_path / "nowhere.cif")
