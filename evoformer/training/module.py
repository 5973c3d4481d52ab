"""The contact model as a LightningModule: losses, optimizer, and what is measured on the way."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule
from torch import Tensor

from evoformer.config import ModelConfig, model_config
from evoformer.contacts.precision import contact_precision
from evoformer.errors import InputError
from evoformer.evaluation import score_family, summarize
from evoformer.execution import Execution, set_execution
from evoformer.features.families import Family
from evoformer.features.identity import pairwise_identity
from evoformer.losses import distogram_loss, masked_msa_loss, separation_weights
from evoformer.model import ContactModel
from evoformer.predict import predict
from evoformer.training.report import Report
from evoformer.training.schedule import adamw, warmup_cosine


class ContactModule(LightningModule):
    """Trains a `ContactModel` on the distogram and on the hidden letters of the MSA.

    Args:
        model: the model's sizes and options.
        learning_rate: the highest one, after the warm-up.
        warmup_steps: steps over which the learning rate rises.
        weight_decay: on matrices.
        masked_msa_weight: what the masked-MSA loss counts beside the distogram loss.
        execution: with which kernels the model runs, and what its backward pass recomputes.

    Raises:
        ValueError: a number is negative, or the learning rate 0.
    """

    def __init__(
        self,
        model: ModelConfig,
        learning_rate: float = 3e-3,
        warmup_steps: int = 40,
        weight_decay: float = 0.01,
        masked_msa_weight: float = 0.1,
        execution: Execution = Execution(),  # noqa: B008  frozen
    ) -> None:
        super().__init__()
        # Lightning's `load_from_checkpoint` passes the plain dict that the checkpoint holds.
        self.config = model_config(model) if isinstance(model, Mapping) else model
        # Plain numbers, which a checkpoint can hold; NumPy's could not be loaded safely.
        self.learning_rate = float(learning_rate)
        self.warmup_steps = int(warmup_steps)
        self.weight_decay = float(weight_decay)
        self.masked_msa_weight = float(masked_msa_weight)
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {learning_rate}, expected more than 0")
        for name in ("warmup_steps", "weight_decay", "masked_msa_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 0 or more")
        self.model = ContactModel(self.config)
        set_execution(self.model, execution)
        self.test_scores: list[dict[str, dict[int, float]]] = []
        self.test_families: list[Family] = []
        self.report: Report | None = None

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        output = self.model(batch)
        pair_mask = batch["seq_mask"][..., :, None] * batch["seq_mask"][..., None, :]
        weights = separation_weights(batch["residue_index"]) * pair_mask
        distogram = distogram_loss(output.distogram_logits, batch["distances"], self.model.distance_edges, weights)
        masked_msa = masked_msa_loss(output.masked_msa_logits, batch["true_msa"], batch["bert_mask"])
        loss = distogram + self.masked_msa_weight * masked_msa
        self.log("loss", loss, prog_bar=True)
        self.log_dict({"distogram_loss": distogram, "masked_msa_loss": masked_msa})
        return loss

    def validation_step(self, family: Family, batch_idx: int) -> None:
        """Precision of the top L contacts of a whole family."""
        contacts = predict(self.model, family.alignment).contacts
        precision = contact_precision(contacts, family.distances, divisors=(1,))
        self.log("val_precision", precision.top[1], prog_bar=True, batch_size=1, sync_dist=True)

    def test_step(self, family: Family, batch_idx: int) -> None:
        """Score a whole family beside its controls."""
        self.test_scores.append(score_family(self.model, family))
        self.test_families.append(family)

    def on_test_epoch_end(self) -> None:
        """Write the table and the picture to the output folder."""
        identity = [pairwise_identity(family.alignment.msa) for family in self.test_families]
        self.report = Report(summarize(self.test_scores), mean_identity=sum(identity) / len(identity))
        self.report.write(Path(self.trainer.default_root_dir), self.model, self.test_families[:3])
        self.test_scores.clear()
        self.test_families.clear()

    def teardown(self, stage: str) -> None:
        """Print the table, now that the progress bar is gone from the terminal."""
        if stage == "test" and self.report is not None:
            folder = Path(self.trainer.default_root_dir)
            self.report.print()
            print(f"wrote {folder / 'precision.tsv'} and {folder / 'contacts.png'}")

    def configure_optimizers(self) -> Any:
        """AdamW, with a learning rate that changes every step.

        Raises:
            InputError: the training has no last step.
        """
        optimizer = adamw(self, self.learning_rate, self.weight_decay)
        total_steps = self.trainer.estimated_stepping_batches
        if math.isinf(total_steps):
            raise InputError("the learning rate falls until the last step: set the trainer's max_epochs or max_steps")
        scheduler = warmup_cosine(optimizer, self.warmup_steps, int(total_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the hyper-parameters as plain dicts, so that `torch.load(weights_only=True)` reads them."""
        checkpoint["hyper_parameters"] = {
            "model": asdict(self.config),
            "learning_rate": self.learning_rate,
            "warmup_steps": self.warmup_steps,
            "weight_decay": self.weight_decay,
            "masked_msa_weight": self.masked_msa_weight,
        }
