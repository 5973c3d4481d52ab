"""Families to batches: which rows, which residues, which order, all decided by one seed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from evoformer.constants import GAP
from evoformer.features.alignment import Alignment
from evoformer.features.batch import collate
from evoformer.features.families import Families, Family
from evoformer.features.family_cache import user_cache
from evoformer.features.featurizer import MSAFeaturizer

Features = dict[str, Tensor]
Cropping = Literal["contiguous", "spatial"]


class Draw(NamedTuple):
    """Which batch of which epoch."""

    epoch: int
    step: int


class TrainingBatches(Dataset[Features]):
    """Batches of families; a batch is a function of the seed and of its `Draw`.

    A batch has one number of rows, drawn from `depths`. Each of its families gives that many random rows, any row
    without gaps as the query, and `crop_size` of its residues.
    """

    def __init__(
        self,
        families: Sequence[Family],
        *,
        batch_size: int,
        crop_size: int,
        depths: Sequence[int],
        masked_msa_fraction: float,
        seed: int,
        cropping: Cropping = "contiguous",
    ) -> None:
        self.families = families
        self.batch_size = batch_size
        self.depths = depths
        self.featurizer = MSAFeaturizer(
            max(depths), max_extra=0, masked_msa_fraction=masked_msa_fraction, crop_size=crop_size, cropping=cropping
        )
        self.seed = seed

    def __len__(self) -> int:
        """Batches in an epoch; families that do not fill the last one wait for another epoch's order."""
        return max(1, len(self.families) // self.batch_size)

    def __getitem__(self, draw: Draw) -> Features:
        """The batch of a draw."""
        order = np.random.default_rng((self.seed, draw.epoch)).permutation(len(self.families))
        generator = np.random.default_rng((self.seed, *draw))
        depth = int(generator.choice(self.depths))
        size = min(self.batch_size, len(order))
        chosen = order[np.arange(draw.step * size, (draw.step + 1) * size) % len(order)]
        samples = []
        for k in chosen:
            family = self.families[k]
            alignment = random_rows(family.alignment, depth, generator)
            labels = {"distances": torch.from_numpy(family.distances)}
            samples.append(self.featurizer(alignment, (self.seed, *draw, int(k)), labels))
        return collate(samples)


def random_rows(alignment: Alignment, depth: int, generator: np.random.Generator) -> Alignment:
    """Up to `depth` random rows, a row without gaps first: as the query, it stands for the same residues."""
    complete = np.flatnonzero((alignment.msa != GAP).all(axis=1))
    query = generator.choice(complete) if len(complete) else 0
    others = generator.permutation(np.delete(np.arange(alignment.N_seq), query))
    return alignment[np.concatenate([[query], others[: depth - 1]])]


class EpochSampler(DistributedSampler[Draw]):
    """The draws of an epoch, in order, dealt out to the processes that train together: as many to each, none to two.

    Lightning says which epoch it is. It puts no sampler of its own in the place of a `DistributedSampler`.

    Args:
        N_step: batches of an epoch for all processes together; those left over after dealing out are left out.
        rank: which process this is.
        N_rank: how many there are. With fewer batches than processes, the batches begin anew.
    """

    def __init__(self, N_step: int, rank: int = 0, N_rank: int = 1) -> None:
        super().__init__(cast(Dataset[Draw], range(N_step)), num_replicas=N_rank, rank=rank, shuffle=False)
        self.steps = range(rank, max(1, N_step // N_rank) * N_rank, N_rank)

    def __iter__(self) -> Iterator[Draw]:
        return (Draw(self.epoch, step) for step in self.steps)

    def __len__(self) -> int:
        return len(self.steps)


class AlignmentDataModule(LightningDataModule):
    """Families from the folders `train`, `validation` and `test` of a data folder, or from a manifest's rows.

    Each family is an alignment, `NAME.a3m` or another format that `read_alignment` reads, and its labels: `NAME.npz`
    with an array `distances` [N_res, N_res] in Angstrom, or a structure such as `NAME.cif`. A manifest is a table, with
    tabs, of their paths in the columns `alignment`, `labels` and `split`; `find_families` says more.

    Args:
        path: the data folder or the manifest.
        batch_size: families in a batch.
        crop_size: N_res of a training example at most.
        depths: the numbers of rows of a batch to draw from.
        masked_msa_fraction: how likely a cell of the MSA is to be corrupted in training.
        num_workers: processes that make batches beside the training; 0 makes them in between.
        seed: decides everything, a non-negative int of any size; set from `seed_everything` on the command line.
        cropping: which residues of a training example: a random stretch, or those nearest to a random one.
        cache: a folder for what has been read of the families, which spares reading unchanged ones again. "user" is the
            user's own, `$XDG_CACHE_HOME/evoformer` or `~/.cache/evoformer`; None is none. A family that does not fit
            into memory beside the others is taken from there whenever it is needed. One that cannot be written is
            warned of, and left alone.
        unreadable: whether a family that cannot be read ends the training, or is skipped with a warning.
        require_labels: whether a training family must have labels; without, only its masked letters are learned.

    Raises:
        ValueError: a number is out of its range.
        FamilyError: there is no alignment, or a family without labels that fit.
    """

    def __init__(
        self,
        path: str = "data/toy",
        batch_size: int = 4,
        crop_size: int = 40,
        depths: list[int] = [32, 64, 128],  # noqa: B006 - read only; a list is what the command line can show
        masked_msa_fraction: float = 0.12,
        num_workers: int = 0,
        seed: int = 0,
        *,
        cropping: Cropping = "contiguous",
        cache: str | None = "user",
        unreadable: Literal["raise", "skip"] = "raise",
        require_labels: bool = True,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("crop_size", crop_size, 1),
            ("depths", min(depths, default=0), 1),
            ("num_workers", num_workers, 0),
            ("seed", seed, 0),
        ):
            if value < least:
                raise ValueError(f"{name} is {depths if name == 'depths' else value}, expected at least {least}")
        if not 0 <= masked_msa_fraction <= 1:
            raise ValueError(f"masked_msa_fraction is {masked_msa_fraction}, expected 0 to 1")
        self.path = Path(path)
        self.batch_size = batch_size
        self.crop_size = crop_size
        self.depths = depths
        self.masked_msa_fraction = masked_msa_fraction
        self.num_workers = num_workers
        self.seed = seed
        self.cropping: Cropping = cropping
        self.cache = None if cache is None else user_cache(self.path) if cache == "user" else Path(cache)
        self.unreadable: Literal["raise", "skip"] = unreadable
        self.require_labels = require_labels
        self.families: dict[str, Families] = {}

    def setup(self, stage: str) -> None:
        """Read the families that a stage needs, once."""
        wanted = ("train", "validation") if stage == "fit" else (stage.replace("validate", "validation"),)
        for split in wanted:
            if split not in self.families:
                self.families[split] = Families(
                    self.path,
                    split,
                    cache=None if self.cache is None else self.cache / split,
                    unreadable=self.unreadable,
                    require_labels=self.require_labels or split != "train",  # the others are there to be scored
                )

    def train_dataloader(self) -> DataLoader[Features]:
        """Batches of features with `distances`; every process that trains gets others."""
        rank, N_rank = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        batches = TrainingBatches(
            self.families["train"],
            batch_size=self.batch_size,
            crop_size=self.crop_size,
            depths=self.depths,
            masked_msa_fraction=self.masked_msa_fraction,
            seed=self.seed,
            cropping=self.cropping,
        )
        return DataLoader(
            batches,
            sampler=EpochSampler(len(batches), rank, N_rank),
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )

    def val_dataloader(self) -> DataLoader[Family]:
        """Whole families, one by one."""
        return _one_by_one(self.families["validation"])

    def test_dataloader(self) -> DataLoader[Family]:
        """Whole families, one by one."""
        return _one_by_one(self.families["test"])


def _one_by_one(families: Sequence[Family]) -> DataLoader[Family]:
    """The families as they are, neither batched nor made tensors."""
    return DataLoader(cast(Dataset[Family], families), batch_size=None, collate_fn=lambda family: family)
