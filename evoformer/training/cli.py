"""The command line of training: Lightning's, with an output folder and with errors of one line."""

import logging
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback, LearningRateMonitor, ModelCheckpoint, RichProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

from evoformer.checkpoint import CheckpointError, checkpoint_config, read_checkpoint
from evoformer.errors import InputError
from evoformer.files import writable_folder
from evoformer.training.data import AlignmentDataModule
from evoformer.training.module import ContactModule

LAST, BEST = "last", "best"


class ConfigError(InputError):
    """A configuration or a command line cannot be used."""


class Parser(LightningArgumentParser):
    """Lightning's parser, with errors of one line."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise instead of printing the usage."""
        raise ConfigError(" ".join(message.split())) from ex


class ProgressBar(RichProgressBar):
    """Lightning's, without the number of the log's version."""

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """What stands behind the bar: loss and precision."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        return metrics


class ContactCLI(LightningCLI):
    """`fit` trains and then shows the table of held-out families; `test` shows it for a checkpoint.

    Everything goes to the folder `out`: `last.ckpt` and `best.ckpt`, the logs, the table and the picture.
    """

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the output folder, and let one seed decide the data too."""
        parser.add_argument("--out", type=str, default="runs/toy", help="Folder for checkpoints, logs and results.")
        parser.add_argument("--threads", type=int | None, help="CPU threads; PyTorch's choice if not given.")
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The two verbs, with the arguments of the trainer's methods that the command line sets itself."""
        verbs = LightningCLI.subcommands()
        return {verb: verbs[verb] for verb in ("fit", "test")}

    def _parse_ckpt_path(self) -> None:
        """Lightning would take the model's configuration from the checkpoint, in silence; we compare the two."""

    def before_instantiate_classes(self) -> None:
        """Set the threads; find the checkpoint, and see that it fits the configuration."""
        config = self.config.get(str(self.subcommand), self.config)
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        out = writable_folder(config.out)
        path = config.get("ckpt_path") or (LAST if self.subcommand == "test" else None)
        if path is None:
            return
        if path in (LAST, BEST):
            path = out / f"{path}.ckpt"
            if not path.is_file():
                raise CheckpointError(f"no checkpoint {path} to go on from; without --ckpt_path, fit starts afresh")
        saved = asdict(checkpoint_config(read_checkpoint(path), path))
        _check_same(saved, config.model.model.as_dict(), path)
        config.ckpt_path = str(path)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Add the logs and the checkpoints in the output folder to the trainer of the configuration."""
        out = Path(self._get(self.config_init, "out"))
        settings = self._get(self.config_init, "trainer")
        callbacks: list[Callback] = [
            *(settings.callbacks or []),
            LearningRateMonitor("step"),
            ModelCheckpoint(out, filename=LAST, save_on_train_epoch_end=True, enable_version_counter=False),
            ModelCheckpoint(out, filename=BEST, monitor="val_precision", mode="max", enable_version_counter=False),
        ]
        if settings.enable_progress_bar is not False:
            callbacks.append(ProgressBar())
        loggers = [CSVLogger(out, name="csv"), TensorBoardLogger(out, name="tensorboard")]
        return super().instantiate_trainer(default_root_dir=out, logger=loggers, callbacks=callbacks, **kwargs)

    def after_fit(self) -> None:
        """Show how good the trained model is on held-out families."""
        self.trainer.test(self.model, datamodule=self.datamodule, verbose=False)


def _check_same(saved: dict[str, Any], wanted: dict[str, Any], path: str | Path) -> None:
    """Raise where the model in a checkpoint differs from the one that is asked for."""
    flat_saved, flat_wanted = ({**values, **values["trunk"]} for values in (saved, wanted))
    for name, value in flat_wanted.items():
        if name != "trunk" and flat_saved[name] != value:
            raise CheckpointError(
                f"checkpoint {path} holds a model of another architecture: {name} is {flat_saved[name]} there,"
                f" {value} in this configuration"
            )


def main(args: list[str] | None = None, run: bool = True) -> ContactCLI:
    """Read the command line and do what it says.

    Args:
        args: instead of the process's arguments.
        run: whether there is a verb to run; without, trainer, model and data are only built.

    Raises:
        InputError: what the user gave cannot be used.
    """
    # Lightning's hints at its other products, its own deprecated calls, and our folder being there already are no news.
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", r"`isinstance\(treespec")
    warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
    return ContactCLI(
        ContactModule,
        AlignmentDataModule,
        seed_everything_default=0,
        auto_configure_optimizers=False,
        parser_class=Parser,
        save_config_kwargs={"overwrite": True},
        args=args,
        run=run,
    )
