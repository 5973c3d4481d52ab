"""What a file of weights is shows in its content; incomplete ones say so, and code in them is never run."""

import io
import pickle
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch

from evoformer.errors import InputError
from evoformer.weights.names import WeightsError
from evoformer.weights.reading import read_weights

ARRAYS = {
    "evoformer_iteration/msa_transition/transition1//bias": np.arange(600, dtype=np.float32).reshape(2, 300),
    "evoformer/preprocess_1d//weights": np.arange(12, dtype=np.float64).reshape(3, 4),
}


def write(path, kind, arrays=ARRAYS):
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind == "f"}
    with path.open("wb") as file:
        if kind == "npz":
            np.savez(file, **arrays)
        elif kind == "compressed npz":
            np.savez_compressed(file, **arrays)
        elif kind == "torch":
            torch.save(tensors, file)
        elif kind == "old torch":
            torch.save(tensors, file, _use_new_zipfile_serialization=False)
        else:
            file.write(safetensors.torch.save(tensors))
    return path


KINDS = ["npz", "compressed npz", "torch", "old torch", "safetensors"]


@pytest.mark.parametrize("name", ["weights.npz", "weights.pt", "weights.safetensors", "weights"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_read_whatever_its_name(tmp_path, kind, name):
    arrays = read_weights(write(tmp_path / name, kind))
    assert arrays.keys() == ARRAYS.keys()
    for key, array in ARRAYS.items():
        np.testing.assert_array_equal(np.asarray(arrays[key]), array)
        assert str(arrays[key].dtype).removeprefix("torch.") == str(array.dtype)


@pytest.mark.parametrize("size", [0x80 + 256, 0x4B50])
def test_the_length_of_a_safetensors_header_may_look_like_another_kind(tmp_path, size):
    """A header of 384 bytes makes the file begin with a pickle's first byte, one of 19280 with PK, as archives do."""
    header = b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'.ljust(size)
    content = size.to_bytes(8, "little") + header + np.array([3.0, 4.0], np.float32).tobytes()
    (tmp_path / "weights").write_bytes(content)
    assert torch.equal(read_weights(tmp_path / "weights")["a"], torch.tensor([3.0, 4.0]))


def test_arrays_in_column_order_with_no_axes_or_no_elements_are_read(tmp_path):
    odd = {
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "number": np.array(3.5),
        "empty": np.zeros((0, 4)),
        "text": np.array("not a tensor"),
    }
    read = read_weights(write(tmp_path / "odd.npz", "npz", odd))
    assert list(read) == ["columns", "number", "empty"]
    for name, array in read.items():
        np.testing.assert_array_equal(array, odd[name])


def test_an_uncompressed_archive_is_mapped_and_a_compressed_one_is_not(tmp_path):
    name = next(iter(ARRAYS))
    assert isinstance(read_weights(write(tmp_path / "a", "npz"))[name].base, np.memmap)
    assert not isinstance(read_weights(write(tmp_path / "b", "compressed npz"))[name].base, np.memmap)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_says_that_it_is_incomplete(tmp_path, kind, share):
    path = write(tmp_path / "whole", kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(WeightsError, match=r"whole cannot be read as weights: incomplete"):
        read_weights(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x02"])
def test_a_file_of_a_few_bytes_is_incomplete(tmp_path, content):
    path = tmp_path / "short.pt"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"short\.pt cannot be read as weights: incomplete"):
        read_weights(path)


def test_a_damaged_archive_says_so(tmp_path):
    path = write(tmp_path / "damaged.npz", "npz")
    content = bytearray(path.read_bytes())
    content[600] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"damaged\.npz cannot be read as weights: .*damaged"):
        read_weights(path)


class Trap:
    def __init__(self, witness):
        self.witness = witness

    def __reduce__(self):
        return (open, (str(self.witness), "w"))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_code_in_a_pickle_is_refused_and_not_run(tmp_path):
    trap, witness = {"a": np.zeros(2), "trap": Trap(tmp_path / "witness")}, tmp_path / "witness"
    torch.save(trap, tmp_path / "new.pt")
    torch.save(trap, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(trap))
    for name in ("new.pt", "old.pt", "plain.pkl"):
        with pytest.raises(WeightsError, match=rf"{name} cannot be read as weights: refused: its pickle"):
            read_weights(tmp_path / name)
    assert not witness.exists()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_python_objects_in_an_archive_are_refused_and_not_made(tmp_path, save):
    witness = tmp_path / "witness"
    save(tmp_path / "trap.npz", **ARRAYS, trap=np.array([Trap(witness), None], dtype=object))
    with pytest.raises(WeightsError, match=r"refused: trap\.npy holds Python objects"):
        read_weights(tmp_path / "trap.npz")
    assert not witness.exists()


def test_other_files_are_named_for_what_they_begin_with(tmp_path):
    (tmp_path / "page.npz").write_text("<!DOCTYPE html><html></html>")
    with pytest.raises(
        WeightsError, match=r"page\.npz .*neither .npz nor PyTorch nor safetensors; it begins with b'<!DOC"
    ):
        read_weights(tmp_path / "page.npz")
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(WeightsError, match=r"texts\.zip cannot be read as weights"):
        read_weights(tmp_path / "texts.zip")
    with pytest.raises(InputError, match=r"no file of weights at .*none"):
        read_weights(tmp_path / "none")


def test_a_file_without_tensors_says_what_it_holds(tmp_path):
    torch.save({"epoch": 3, "lr": 0.1}, tmp_path / "no.pt")
    with pytest.raises(WeightsError, match=r"no\.pt holds no tensors; its entries are epoch, lr"):
        read_weights(tmp_path / "no.pt")
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    with pytest.raises(WeightsError, match=r"list\.pt holds no names: it is a list"):
        read_weights(tmp_path / "list.pt")


@pytest.mark.parametrize("place", [["state_dict"], ["ema", "params"], ["module"], ["model", "state_dict"]])
def test_weights_are_found_inside_a_checkpoint(place):
    weights = {"a.weight": torch.ones(2)}
    content = weights
    for level in reversed(place):
        content = {level: content, "epoch": 3, "optimizer": {"state": {0: torch.zeros(2)}}}
    assert read_weights(content) == weights


def test_averaged_weights_come_before_the_others():
    content = {"state_dict": {"model.a": torch.zeros(2)}, "ema": {"params": {"a": torch.ones(2)}, "decay": 0.999}}
    assert list(read_weights(content)) == ["a"]


def test_haikus_dict_of_dicts_is_read():
    nested = {"evoformer/preprocess_1d": {"weights": np.ones((3, 4)), "bias": np.ones(4)}}
    assert list(read_weights(nested)) == ["evoformer/preprocess_1d//weights", "evoformer/preprocess_1d//bias"]


def test_an_archive_in_memory_is_not_mistaken_for_a_path():
    buffer = io.BytesIO()
    np.savez(buffer, **ARRAYS)
    buffer.seek(0)
    assert read_weights(dict(np.load(buffer))).keys() == ARRAYS.keys()
