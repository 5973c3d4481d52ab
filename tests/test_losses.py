"""Losses: against plain loops, and what does not count."""

import math

import torch
from torch.testing import assert_close

from evoformer.losses import distogram_loss, masked_msa_loss, separation_weights

B, N_seq, N_res, N_token, N_bin = 2, 3, 7, 5, 4
EDGES = torch.tensor([4.0, 8.0, 12.0])


def log_softmax(row):
    total = math.log(sum(math.exp(x) for x in row))
    return [x - total for x in row]


def test_masked_msa_loss_is_the_mean_error_of_the_hidden_letters():
    logits = torch.randn(B, N_seq, N_res, N_token)
    letters = torch.randint(0, N_token, (B, N_seq, N_res))
    hidden = (torch.rand(B, N_seq, N_res) > 0.6).float()
    errors = [-log_softmax(logits[place].tolist())[letters[place]] for place in map(tuple, hidden.nonzero().tolist())]
    assert_close(masked_msa_loss(logits, letters, hidden), torch.tensor(sum(errors) / len(errors)))


def test_masked_msa_loss_is_zero_where_nothing_is_hidden():
    loss = masked_msa_loss(
        torch.randn(N_seq, N_res, N_token), torch.zeros(N_seq, N_res, dtype=torch.long), torch.zeros(N_seq, N_res)
    )
    assert loss == 0


def test_distogram_loss_is_the_weighted_mean_error_of_the_bins():
    logits = torch.randn(N_res, N_res, N_bin)
    distances = torch.rand(N_res, N_res) * 16
    distances[2] = distances[:, 2] = math.nan
    distances[0, 1], distances[0, 3] = 8.0, 7.99  # a bin holds its lower border
    weights = torch.rand(N_res, N_res)
    error = weight = 0.0
    for i in range(N_res):
        for j in range(N_res):
            if not math.isnan(distances[i, j]):
                k = sum(float(distances[i, j]) >= edge for edge in EDGES.tolist())
                error -= float(weights[i, j]) * log_softmax(logits[i, j].tolist())[k]
                weight += float(weights[i, j])
    assert_close(distogram_loss(logits, distances, EDGES, weights), torch.tensor(error / weight))


def test_distogram_loss_has_finite_gradients_where_nothing_is_resolved():
    logits = torch.randn(N_res, N_res, N_bin, requires_grad=True)
    loss = distogram_loss(logits, torch.full((N_res, N_res), math.nan), EDGES, torch.ones(N_res, N_res))
    loss.backward()
    assert loss == 0
    assert logits.grad.isfinite().all()


def test_separation_weights_go_by_residue_numbers():
    weights = separation_weights(torch.tensor([3, 4, 5, 8, 9, 100]))
    assert_close(weights[0], torch.tensor([0.0, 0.0, 0.3, 0.3, 1.0, 1.0]))
    assert_close(weights, weights.T)
