"""Padding to fixed sizes: masks that say what is real, and a model that sees nothing else."""

import numpy as np
import pytest
import torch

from evoformer import EvoformerBlock
from evoformer.constants import GAP
from evoformer.features.alignment import Alignment
from evoformer.features.featurizer import MSAFeaturizer
from evoformer.features.padding import pad
from evoformer.features.schema import FEATURES, FeatureError, axis_sizes

N_seq, N_res = 7, 9


@pytest.fixture
def alignment():
    return Alignment(np.random.default_rng(0).integers(0, 22, (N_seq, N_res)))


def test_samples_of_any_alignment_have_the_sizes_asked_for(alignment):
    labels = {"distances": torch.rand(N_res, N_res)}
    small = MSAFeaturizer(max_clusters=5, max_extra=6, crop_size=12)(alignment, 3, labels)
    fixed = MSAFeaturizer(max_clusters=5, max_extra=6, crop_size=12, pad=True)(alignment, 3, labels)
    assert axis_sizes(small) == {"N_res": 9, "N_clust": 5, "N_extra": 2}
    assert axis_sizes(fixed) == {"N_res": 12, "N_clust": 5, "N_extra": 6}
    for name, value in small.items():
        assert fixed[name].dtype == FEATURES[name].dtype
        inside = tuple(slice(size) for size in value.shape)
        assert torch.equal(fixed[name][inside], value), name
        rest = torch.ones(fixed[name].shape, dtype=torch.bool)
        rest[inside] = False
        padding = fixed[name][rest]
        if name == "distances":
            assert padding.isnan().all()
        else:
            assert (padding == (GAP if name in ("msa", "true_msa", "extra_msa") else 0)).all(), name


def test_masks_are_one_on_what_is_real(alignment):
    features = MSAFeaturizer(max_clusters=10, max_extra=2, crop_size=11, pad=True)(alignment, 0)
    assert features["seq_mask"].tolist() == [1.0] * 9 + [0.0] * 2
    expected = torch.zeros(10, 11)
    expected[:7, :9] = 1
    assert torch.equal(features["msa_mask"], expected)
    assert not features["extra_msa_mask"].any()
    assert features["extra_msa"].shape == (2, 11)


def test_without_a_crop_size_residues_stay_as_many_as_they_are(alignment):
    assert MSAFeaturizer(max_clusters=10, max_extra=4, pad=True)(alignment, 0)["msa"].shape == (10, 9)


def test_a_block_computes_the_same_of_padded_samples():
    torch.manual_seed(0)
    alignment = Alignment(np.random.default_rng(1).integers(0, 22, (N_seq, N_res)))
    block = EvoformerBlock(c_m=5, c_z=6, c_msa_att=3, N_head_msa=2, c_opm=4, c_tri_mul=7, c_tri_att=3, N_head_tri=2)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    block.eval()
    outputs = []
    for padded in (False, True):
        features = MSAFeaturizer(max_clusters=12, max_extra=0, crop_size=13, pad=padded)(alignment, 4)
        m = features["msa_feat"][..., :5] + features["msa_feat"][..., 25:30]
        z = features["target_feat"][:, None, :6] + features["target_feat"][None, :, 6:12]
        pair_mask = torch.outer(features["seq_mask"], features["seq_mask"])
        with torch.no_grad():
            m, z = block(m, z, features["msa_mask"], pair_mask)
        outputs.append((m[:N_seq, :N_res], z[:N_res, :N_res]))
    for plain, padded in zip(*outputs, strict=True):
        torch.testing.assert_close(plain, padded, rtol=1e-5, atol=1e-5)


def test_what_is_longer_than_asked_for_is_refused_with_both_sizes():
    with pytest.raises(FeatureError, match="N_res is 3, too long to be padded to 2"):
        pad({"aatype": np.zeros(3, np.int64)}, {"N_res": 2})
