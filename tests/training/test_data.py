"""Training batches: what they hold, and that one seed decides them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evoformer.constants import GAP
from evoformer.features.families import FamilyError, FamilyWarning, read_families
from evoformer.training.data import AlignmentDataModule, Draw, EpochSampler, TrainingBatches, random_rows


def batches(families, seed=1):
    return TrainingBatches(families, batch_size=2, crop_size=11, depths=[3, 5], masked_msa_fraction=0.3, seed=seed)


@pytest.fixture
def families(data_folder):
    return read_families(data_folder / "train")


def same(a, b):
    return a.keys() == b.keys() and all(
        a[name].shape == b[name].shape and torch.equal(a[name].nan_to_num(), b[name].nan_to_num()) for name in a
    )


def test_a_batch_holds_cropped_families_with_their_distances(families):
    batch = batches(families)[Draw(0, 0)]
    N_seq = batch["msa"].shape[1]
    assert N_seq in (3, 5)
    assert batch["msa"].shape == (2, N_seq, 11)
    assert batch["distances"].shape == (2, 11, 11)
    assert (batch["msa"][:, 0] != GAP).all()


def test_distances_are_cropped_where_the_letters_are(families):
    batch = batches(families)[Draw(0, 0)]
    by_row = {tuple(row): (family, row) for family in families for row in family.alignment.msa.tolist()}
    for letters, distances, index in zip(batch["true_msa"], batch["distances"], batch["residue_index"], strict=True):
        start = int(index[0])
        found = [family for row, (family, _) in by_row.items() if row[start : start + 11] == tuple(letters[0].tolist())]
        assert len(found) == 1
        expected = found[0].distances[start : start + 11, start : start + 11]
        np.testing.assert_array_equal(distances.numpy(), expected)


def test_seed_epoch_and_step_decide_a_batch_whatever_the_global_state(families):
    first = batches(families)[Draw(1, 0)]
    torch.manual_seed(99)
    np.random.seed(99)
    assert same(first, batches(families)[Draw(1, 0)])
    for other in (batches(families)[Draw(1, 1)], batches(families)[Draw(2, 0)], batches(families, 2)[Draw(1, 0)]):
        assert not same(first, other)


def test_worker_processes_make_the_same_batches(data_folder):
    epochs = []
    for num_workers in (0, 2):
        data = AlignmentDataModule(str(data_folder), 2, 11, [3, 5], 0.3, num_workers, seed=4)
        data.setup("fit")
        loader = data.train_dataloader()
        epoch = []
        for number in range(2):
            loader.sampler.set_epoch(number)
            epoch.extend(loader)
        epochs.append(epoch)
    assert len(epochs[0]) == 4
    assert all(same(a, b) for a, b in zip(*epochs, strict=True))
    assert not same(epochs[0][0], epochs[0][2])


def epoch_of_rank(data_folder, rank, N_rank, epoch, num_workers=0):
    """The draws of one of several processes, and its batches."""
    data = AlignmentDataModule(str(data_folder), 1, 11, [3, 5], 0.3, num_workers, seed=2**64 + 3)
    data.trainer = SimpleNamespace(global_rank=rank, world_size=N_rank)
    data.setup("fit")
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return list(loader.sampler), list(loader)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_processes_that_train_together_share_the_families_out(data_folder, num_workers):
    """Five families in four batches of two processes: each gets two, and the fifth has its turn in another epoch."""
    draws, epochs = zip(*(epoch_of_rank(data_folder, rank, 2, 1, num_workers) for rank in (0, 1)), strict=True)
    assert sorted(draws[0] + draws[1]) == [Draw(1, step) for step in range(4)]
    queries = [
        tuple(batch["residue_index"].shape) + tuple(batch["aatype"][0].tolist()) for batch in (*epochs[0], *epochs[1])
    ]
    assert len(set(queries)) == 4
    _, alone = epoch_of_rank(data_folder, 0, 1, 1)
    together = [batch for pair in zip(*epochs, strict=True) for batch in pair]
    assert len(alone) == 5
    assert all(same(a, b) for a, b in zip(alone[:4], together, strict=True))
    _, later = epoch_of_rank(data_folder, 0, 2, 2)
    assert not same(later[0], epochs[0][0])


def test_every_family_has_its_turn_whatever_the_number_of_processes(families):
    seen = set()
    for epoch in range(12):
        for rank in range(2):
            for draw in EpochSampler(len(batches(families)), rank, 2):
                seen.update(np.random.default_rng((1, epoch)).permutation(5)[[2 * draw.step, 2 * draw.step + 1]])
    assert seen == set(range(5))


def test_more_processes_than_batches_begin_anew(families):
    draws = [list(EpochSampler(2, rank, 3)) for rank in range(3)]
    assert draws == [[Draw(0, 0)], [Draw(0, 1)], [Draw(0, 2)]]
    assert batches(families)[Draw(0, 2)]["msa"].shape[0] == 2


def test_seeds_of_64_bits_differ_and_negative_ones_are_refused(families):
    seeds = [3, 2**32 + 3, 2**63 + 3, 2**64 + 3]
    drawn = [batches(families, seed)[Draw(0, 0)] for seed in seeds]
    assert not any(same(drawn[i], drawn[j]) for i in range(4) for j in range(i))
    with pytest.raises(ValueError, match="seed is -1, expected at least 0"):
        AlignmentDataModule(seed=-1)


def test_an_epoch_takes_no_family_twice(families):
    order = [Draw(0, step) for step in range(len(batches(families)))]
    assert list(EpochSampler(2)) == order
    starts = [tuple(letters) for draw in order for letters in batches(families)[draw]["aatype"].tolist()]
    assert len(set(starts)) == 4


def test_random_rows_puts_a_complete_row_first_and_repeats_none(families):
    alignment = families[0].alignment
    queries = set()
    for seed in range(60):
        rows = random_rows(alignment, 4, np.random.default_rng(seed))
        assert rows.N_seq == 4
        assert len(set(rows.ids)) == 4
        assert (rows.msa[0] != GAP).all()
        queries.add(rows.ids[0])
    assert len(queries) == (alignment.msa != GAP).all(1).sum()


def test_a_folder_without_alignments_is_named(tmp_path):
    with pytest.raises(FamilyError, match=f"0 alignments under {tmp_path}"):
        read_families(tmp_path)


def test_a_family_without_labels_is_named(data_folder):
    (data_folder / "train" / "train2.npz").unlink()
    with pytest.raises(FamilyError, match=r"train2\.a3m has no labels: expected .*train2\.npz"):
        read_families(data_folder / "train")


def test_labels_of_another_size_are_named_with_both_sizes(data_folder):
    np.savez(data_folder / "train" / "train1.npz", distances=np.zeros((4, 4)))
    with pytest.raises(FamilyError, match=r"train1\.a3m has 19 residues, its labels .* have \(4, 4\)"):
        read_families(data_folder / "train")


def test_labels_that_are_no_archive_are_named(data_folder):
    (data_folder / "train" / "train1.npz").write_text("distances")
    with pytest.raises(FamilyError, match=r"train1\.npz cannot be read"):
        read_families(data_folder / "train")


def test_two_alignments_of_one_name_are_refused(data_folder):
    (data_folder / "train" / "train1.fasta").write_text(">q\nMKT\n")
    with pytest.raises(FamilyError, match=r"train1\.a3m and .*train1\.fasta would share their labels"):
        read_families(data_folder / "train")


def loaded(data):
    data.setup("fit")
    return [data.train_dataloader().dataset[Draw(0, step)] for step in range(2)]


def test_spatial_crops_a_cache_and_a_manifest_are_asked_for_by_name(data_folder, tmp_path):
    arguments = {"batch_size": 2, "crop_size": 11, "depths": [3, 5], "seed": 4}
    plain = loaded(AlignmentDataModule(str(data_folder), **arguments))
    for _ in range(2):
        cached = loaded(AlignmentDataModule(str(data_folder), **arguments, cache=str(tmp_path / "cache")))
        assert all(same(a, b) for a, b in zip(plain, cached, strict=True))
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["train", "validation"]

    rows = ["alignment\tlabels\tsplit"]
    for split in ("train", "validation"):
        names = sorted(path.stem for path in (data_folder / split).glob("*.a3m"))
        rows += [f"data/{split}/{name}.a3m\tdata/{split}/{name}.npz\t{split}" for name in names]
    (tmp_path / "families.tsv").write_text("\n".join(rows))
    listed = loaded(AlignmentDataModule(str(tmp_path / "families.tsv"), **arguments))
    assert all(same(a, b) for a, b in zip(plain, listed, strict=True))

    spatial = loaded(AlignmentDataModule(str(data_folder), **arguments, cropping="spatial"))
    assert not same(plain[0], spatial[0])
    steps = torch.cat([(batch["residue_index"].diff(dim=1)).flatten() for batch in spatial])
    assert (steps > 1).any()
    assert (steps > 0).all()


def test_only_training_families_may_lack_labels(data_folder):
    (data_folder / "train" / "train2.npz").unlink()
    data = AlignmentDataModule(str(data_folder), 2, 11, [3], require_labels=False)
    data.setup("fit")
    assert np.isnan(data.families["train"][2].distances).all()
    (data_folder / "test" / "test1.npz").unlink()
    with pytest.raises(FamilyError, match=r"test1\.a3m has no labels"):
        data.setup("test")


@pytest.mark.filterwarnings("ignore:skipped:evoformer.features.families.FamilyWarning")
def test_families_that_cannot_be_read_are_left_out_where_that_is_asked_for(data_folder):
    (data_folder / "train" / "train2.a3m").write_text(">q\nMK1\n")
    data = AlignmentDataModule(str(data_folder), 2, 11, [3], unreadable="skip")
    with pytest.warns(FamilyWarning, match="skipped 1 of 5 families"):
        data.setup("fit")
    assert [family.name for family in data.families["train"]] == ["train0", "train1", "train3", "train4"]
