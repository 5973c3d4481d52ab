"""The command line of training: Lightning's, with an output folder and with errors of one line."""

import logging
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml  # type: ignore[import-untyped]
from jsonargparse.typing import PositiveInt
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback, LearningRateMonitor, ModelCheckpoint, RichProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

from evoformer.checkpoint import CheckpointError, checkpoint_config, model_of, read_checkpoint
from evoformer.errors import InputError, require
from evoformer.files import writable_folder
from evoformer.training.data import AlignmentDataModule
from evoformer.training.module import ContactModule

LAST, BEST = "last", "best"
TRAINING_STATE = ("pytorch-lightning_version", "loops", "optimizer_states", "lr_schedulers")
MAX_SEED = 2**32 - 1  # NumPy's


class ConfigError(InputError):
    """A configuration or a command line cannot be used."""


class Parser(LightningArgumentParser):
    """Lightning's parser, with errors of one line, and without abbreviated options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, **kwargs)

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
        parser.add_argument("--threads", type=PositiveInt | None, help="CPU threads; PyTorch's choice if not given.")
        parser.link_arguments("seed_everything", "data.seed", compute_fn=_seed)

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The two verbs, with the arguments of the trainer's methods that the command line sets itself."""
        verbs = LightningCLI.subcommands()
        return {verb: verbs[verb] for verb in ("fit", "test")}

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Look at the configuration files first: the parser would not say which of them is damaged."""
        words = [str(word) for word in (sys.argv[1:] if args is None else args)]
        for option, value in zip(words, [*words[1:], ""], strict=False):
            if option in ("-c", "--config"):
                _check_yaml(Path(value))
            elif option.startswith("--config="):
                _check_yaml(Path(option.removeprefix("--config=")))
        super().parse_arguments(parser, args)

    def _parse_ckpt_path(self) -> None:
        """Lightning would take the model's configuration from the checkpoint, in silence; we compare the two."""

    def before_instantiate_classes(self) -> None:
        """Set the threads; find the checkpoint, and see that it fits the configuration."""
        config = self.config.get(str(self.subcommand), self.config)
        if not config.get("config"):
            raise ConfigError("no configuration given: add --config configs/toy.yaml, or one of your own")
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        out = writable_folder(config.out)
        path = config.get("ckpt_path") or (LAST if self.subcommand == "test" else None)
        if path is None:
            return
        if path in (LAST, BEST):
            path = out / f"{path}.ckpt"
            if not path.is_file() and self.subcommand == "fit":
                raise CheckpointError(f"no checkpoint {path} to go on from; without --ckpt_path, fit starts afresh")
        checkpoint = read_checkpoint(path)
        _check_same(asdict(checkpoint_config(checkpoint, path)), config.model.model.as_dict(), path)
        model_of(checkpoint, path)
        missing = [name for name in TRAINING_STATE if name not in checkpoint]
        if missing:
            raise CheckpointError(f"checkpoint {path} holds a model, but no training: it lacks {', '.join(missing)}")
        config.ckpt_path = str(path)

    def instantiate_classes(self) -> None:
        """Build model, data and trainer; what they refuse is a mistake in the configuration."""
        try:
            super().instantiate_classes()
        except (ValueError, MisconfigurationException) as error:
            raise ConfigError(f"the configuration cannot be used: {' '.join(str(error).split())}") from error

    def before_fit(self) -> None:
        """Read the held-out families too: what is wrong with them must not show only after the training."""
        self.datamodule.setup("fit")
        self.datamodule.setup("test")

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Add the logs and the checkpoints in the output folder to the trainer of the configuration."""
        out = Path(self._get(self.config_init, "out"))
        settings = self._get(self.config_init, "trainer")
        callbacks: list[Callback] = [
            *(settings.callbacks or []),
            LearningRateMonitor("step"),
            # The best one first, so that the last one knows of it.
            ModelCheckpoint(out, filename=BEST, monitor="val_precision", mode="max", enable_version_counter=False),
            ModelCheckpoint(out, filename=LAST, save_on_train_epoch_end=True, enable_version_counter=False),
        ]
        if settings.enable_progress_bar is not False:
            callbacks.append(ProgressBar())
        loggers = [CSVLogger(out, name="csv"), TensorBoardLogger(out, name="tensorboard")]
        return super().instantiate_trainer(default_root_dir=out, logger=loggers, callbacks=callbacks, **kwargs)

    def after_fit(self) -> None:
        """Show how good the trained model is on held-out families."""
        self.trainer.test(self.model, datamodule=self.datamodule, verbose=False)


def _seed(value: int) -> int:
    """The seed of the data: the one of everything, 0 where that is false."""
    if not 0 <= value <= MAX_SEED:
        raise ValueError(f"seed_everything is {value}, expected 0 to {MAX_SEED}")
    return int(value)


def _check_yaml(path: Path) -> None:
    """Raise where a file is there but is no YAML with settings."""
    if not path.is_file():
        return  # the parser says so
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"config {path} is no readable YAML file: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"config {path} holds no settings, expected lines such as 'seed_everything: 0'")


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
    require("rich", "matplotlib", "tensorboard")
    # Lightning's hints at its other products, the seed, its own deprecated calls, our folder being there already, and
    # loaders without workers are no news.
    for name in ("pytorch_lightning.utilities.rank_zero", "lightning_fabric.utilities.seed"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*does not have many workers")
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
