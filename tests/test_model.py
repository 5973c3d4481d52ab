"""Trunk, heads and configurations: features in, contacts out."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from evoformer.config import ModelConfig, TrunkConfig, build_trunk, model_config
from evoformer.features.alignment import Alignment
from evoformer.features.batch import collate
from evoformer.features.featurizer import MSAFeaturizer
from evoformer.heads import DistogramHead, MaskedMSAHead
from evoformer.model import ContactModel

ROOT = Path(__file__).parents[1]
SMALL = {
    "N_block": 1, "c_m": 6, "c_z": 10, "c_s": 4, "c_msa_att": 3, "N_head_msa": 2, "c_opm": 5, "c_tri_mul": 7,
    "c_tri_att": 3, "N_head_tri": 2, "n_msa_transition": 1, "n_pair_transition": 2,
}  # fmt: skip


def random_weights(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module.eval()


def alignment(N_seq, N_res, seed=0):
    return Alignment(np.random.default_rng(seed).integers(0, 20, (N_seq, N_res)).astype(np.uint8))


def features(N_seq, N_res, seed=0):
    return MSAFeaturizer(max_clusters=N_seq, max_extra=0)(alignment(N_seq, N_res, seed), seed)


@pytest.mark.parametrize("embedder", ["alphafold", "profile"])
def test_a_trunk_gives_m_z_and_s(embedder):
    trunk = random_weights(build_trunk(TrunkConfig(embedder=embedder, **SMALL)))
    m, z, s = trunk(features(5, 7))
    assert (m.shape, z.shape, s.shape) == ((5, 7, 6), (7, 7, 10), (7, 4))


@pytest.mark.parametrize("embedder", ["alphafold", "profile"])
def test_a_batch_of_two_depths_and_lengths_gives_what_each_gives_alone(embedder):
    model = random_weights(ContactModel(ModelConfig(trunk=TrunkConfig(embedder=embedder, **SMALL))))
    samples = [features(5, 7), features(3, 9, seed=1)]
    batched = model(collate(samples))
    for k, sample in enumerate(samples):
        alone = model(sample)
        N_seq, N_res = sample["msa"].shape
        assert_close(batched.z[k, :N_res, :N_res], alone.z, atol=1e-5, rtol=1e-5)
        assert_close(batched.m[k, :N_seq, :N_res], alone.m, atol=1e-5, rtol=1e-5)
        assert_close(batched.s[k, :N_res], alone.s, atol=1e-5, rtol=1e-5)


def test_a_missing_feature_is_named():
    sample = features(3, 5)
    del sample["hhblits_profile"]
    trunk = build_trunk(TrunkConfig(embedder="profile", **SMALL))
    with pytest.raises(ValueError, match="features lack hhblits_profile"):
        trunk(sample)


def test_an_unknown_embedder_is_named():
    with pytest.raises(ValueError, match="embedder is 'esm', expected one of alphafold, profile"):
        build_trunk(TrunkConfig(embedder="esm", **SMALL))


def test_the_distogram_is_symmetric_and_counts_its_bias_twice():
    head = random_weights(DistogramHead(6, 4))
    z = torch.randn(5, 5, 6)
    logits = head(z)
    assert_close(logits, logits.transpose(0, 1))
    assert_close(logits[1, 3], (z[1, 3] + z[3, 1]) @ head.linear.weight.T + 2 * head.linear.bias)


def test_heads_start_without_an_opinion():
    assert DistogramHead(6, 4)(torch.randn(5, 5, 6)).eq(0).all()
    assert MaskedMSAHead(6)(torch.randn(3, 5, 6)).shape == (3, 5, 23)
    assert MaskedMSAHead(6)(torch.randn(3, 5, 6)).eq(0).all()


def test_contacts_are_the_bins_below_eight_angstrom():
    model = ContactModel(ModelConfig(trunk=TrunkConfig(**SMALL), distance_edges=[4.0, 8.0, 12.0]))
    logits = torch.randn(5, 5, 4)
    probability = model.contact_probability(logits)
    assert_close(probability, logits.softmax(-1)[..., 0] + logits.softmax(-1)[..., 1])


@pytest.mark.parametrize("edges", [[9.0, 12.0], [8.0, 4.0]])
def test_edges_without_a_contact_bin_or_out_of_order_are_refused(edges):
    with pytest.raises(ValueError, match="must ascend from 8"):
        ContactModel(ModelConfig(trunk=TrunkConfig(**SMALL), distance_edges=edges))


def test_the_default_edges_are_alphafolds():
    np.testing.assert_allclose(ModelConfig().distance_edges, np.linspace(2.3125, 21.6875, 63))


def test_a_configuration_comes_back_from_its_dict():
    config = ModelConfig(trunk=TrunkConfig(c_z=77, opm_centered=True), distance_edges=[7.0, 9.0])
    assert model_config(dataclasses.asdict(config)) == config


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_builds_its_model_and_data(path, tmp_path, monkeypatch):
    training = pytest.importorskip("evoformer.training.cli")
    monkeypatch.setattr("sys.argv", ["train.py"])
    cli = training.main(["--config", str(path), "--out", str(tmp_path)], run=False)
    assert sum(parameter.numel() for parameter in cli.model.parameters()) > 0
    assert (ROOT / cli.datamodule.path / "train").is_dir()
