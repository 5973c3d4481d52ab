"""NumPy's .npz archives, mapped into memory where they are not compressed.

AlphaFold's files keep 48 blocks in each array. Mapped, a block is a view of the file, and none of it is copied before
it reaches its parameter.
"""

import struct
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib import format as npy

from evoformer.weights.names import WeightsError

_LOCAL_HEADER = 30  # bytes of a zip member's header before its two fields of variable length


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive; those that are not compressed are read-only maps of the file.

    Raises:
        WeightsError: an array is damaged or holds Python objects.
        zipfile.BadZipFile: the archive is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise WeightsError(f"damaged: the checksum of {damaged} does not fit")
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        return {info.filename.removesuffix(".npy"): _read(path, archive, info) for info in members}


def _read(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One array of the archive."""
    with archive.open(info) as member:
        header = npy.read_array_header_1_0 if npy.read_magic(member) == (1, 0) else npy.read_array_header_2_0
        shape, fortran_order, dtype = header(member)
        header_size = member.tell()
    if dtype.hasobject:
        raise WeightsError(f"refused: {info.filename} holds Python objects; only numbers are read")
    if info.compress_type != zipfile.ZIP_STORED or 0 in shape:
        with archive.open(info) as member:
            return npy.read_array(member, allow_pickle=False)
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_size, extra_size = struct.unpack("<26xHH", file.read(_LOCAL_HEADER))
    offset = info.header_offset + _LOCAL_HEADER + name_size + extra_size + header_size
    order: Literal["C", "F"] = "F" if fortran_order else "C"
    return np.asarray(np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order=order))
