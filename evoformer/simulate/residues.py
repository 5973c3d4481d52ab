"""What an amino acid is like: the few properties by which the toy families prefer one to another."""

import numpy as np

from evoformer.constants import RESIDUES

# Share in proteins; hydropathy (Kyte and Doolittle 1982); charge; volume in cubic Angstrom (Zamyatnin 1972); preference
# for helix and for strand (Chou and Fasman 1978).
_TABLE: dict[str, tuple[float, float, float, float, float, float]] = {
    "A": (0.083, 1.8, 0.0, 88.6, 1.42, 0.83),
    "R": (0.055, -4.5, 1.0, 173.4, 0.98, 0.93),
    "N": (0.041, -3.5, 0.0, 114.1, 0.67, 0.89),
    "D": (0.054, -3.5, -1.0, 111.1, 1.01, 0.54),
    "C": (0.014, 2.5, 0.0, 108.5, 0.70, 1.19),
    "Q": (0.039, -3.5, 0.0, 143.8, 1.11, 1.10),
    "E": (0.067, -3.5, -1.0, 138.4, 1.51, 0.37),
    "G": (0.071, -0.4, 0.0, 60.1, 0.57, 0.75),
    "H": (0.023, -3.2, 0.3, 153.2, 1.00, 0.87),
    "I": (0.059, 4.5, 0.0, 166.7, 1.08, 1.60),
    "L": (0.097, 3.8, 0.0, 166.7, 1.21, 1.30),
    "K": (0.058, -3.9, 1.0, 168.6, 1.16, 0.74),
    "M": (0.024, 1.9, 0.0, 162.9, 1.45, 1.05),
    "F": (0.039, 2.8, 0.0, 189.9, 1.13, 1.38),
    "P": (0.047, -1.6, 0.0, 112.7, 0.57, 0.55),
    "S": (0.066, -0.8, 0.0, 89.0, 0.77, 0.75),
    "T": (0.054, -0.7, 0.0, 116.1, 0.83, 1.19),
    "W": (0.011, -0.9, 0.0, 227.8, 1.08, 1.37),
    "Y": (0.029, -1.3, 0.0, 193.6, 0.69, 1.47),
    "V": (0.069, 4.2, 0.0, 140.0, 1.06, 1.70),
}
_columns = np.array([_TABLE[letter] for letter in RESIDUES]).T

BACKGROUND = _columns[0] / _columns[0].sum()  # [20], in the order of RESIDUES
# [20] each, mean 0 and standard deviation 1
HYDROPATHY, CHARGE, VOLUME, HELIX, STRAND = ((column - column.mean()) / column.std() for column in _columns[1:])

_properties = np.stack([HYDROPATHY, CHARGE, VOLUME, HELIX, STRAND])
_similarity = np.exp(-((_properties[:, :, None] - _properties[:, None]) ** 2).sum(axis=0) / 8)
_values, _vectors = np.linalg.eigh(_similarity)
# [20, 20], the square root of the similarity: it makes of independent noise one that is alike for alike amino acids.
ALIKE = _vectors * np.sqrt(np.clip(_values, 0, None)) @ _vectors.T
