"""Training in two processes: it ends, both hold the same weights, and each has seen batches of its own."""

import sys

import pytest
import torch
from pytorch_lightning import Callback, Trainer

from evoformer.training.data import AlignmentDataModule
from evoformer.training.module import ContactModule


class KeepWhatWasSeen(Callback):
    """Writes a file for each process with its queries and the last weights."""

    def __init__(self, folder):
        self.folder = folder
        self.seen = []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.seen.append(batch["aatype"].flatten().tolist())

    def on_train_end(self, trainer, module):
        torch.save({"seen": self.seen, "weights": module.state_dict()}, self.folder / f"{trainer.global_rank}.pt")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the processes are forked")
def test_two_processes_train_one_model_on_families_of_their_own(data_folder, model, tmp_path):
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp_fork_find_unused_parameters_true",  # the single representation is for structure modules
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
        callbacks=[KeepWhatWasSeen(tmp_path)],
    )
    trainer.fit(ContactModule(model, warmup_steps=1), AlignmentDataModule(str(data_folder), 1, 11, [3], seed=5))
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert len(first["seen"]) == len(second["seen"]) == 4
    assert not any(query in second["seen"] for query in first["seen"])
    assert all(torch.equal(value, second["weights"][name]) for name, value in first["weights"].items())
    assert first["seen"][:2] != first["seen"][2:]
