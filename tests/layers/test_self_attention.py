"""The textbook's self-attention and the classifier: PyTorch's numbers, what padding may do, and that it learns."""

import pytest
import torch
from oracles import attention, linear, redrawn
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from evoformer import MultiHeadSelfAttention, SelfAttentionClassifier

N_batch, N_token, input_dim, num_heads, hidden_dim, num_classes = 4, 5, 12, 3, 7, 2


@pytest.fixture
def classifier() -> SelfAttentionClassifier:
    return redrawn(SelfAttentionClassifier(input_dim, num_heads, hidden_dim, num_classes))


def tokens() -> torch.Tensor:
    return torch.randn(N_batch, N_token, input_dim, dtype=torch.float64)


def lengths() -> torch.Tensor:
    """A mask of the first 5, 3, 1 and 4 tokens."""
    return torch.arange(N_token) < torch.tensor([5, 3, 1, 4])[:, None]


def test_self_attention_is_pytorchs_multi_head_attention() -> None:
    ours, x, mask = redrawn(MultiHeadSelfAttention(input_dim, num_heads)), tokens(), lengths()
    theirs = nn.MultiheadAttention(input_dim, num_heads, batch_first=True, dtype=torch.float64)
    parts = (ours.mha.linear_q, ours.mha.linear_k, ours.mha.linear_v)
    theirs.in_proj_weight.data = torch.cat([part.weight for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias for part in parts])
    theirs.out_proj.load_state_dict(ours.mha.linear_o.state_dict())
    assert_close(ours(x), theirs(x, x, x)[0])
    assert_close(ours(x, mask), theirs(x, x, x, key_padding_mask=~mask)[0])


def test_the_classifier_is_attention_a_mean_and_two_layers(classifier: SelfAttentionClassifier) -> None:
    x, mask = tokens(), lengths()
    for b, logits in enumerate(classifier(x, mask)):
        o = attention(classifier.attention.mha, x[b], None, mask[b])
        mean = sum(o[t] for t in range(N_token) if mask[b, t]) / mask[b].sum()
        hidden = linear(classifier.linear_1, mean)
        assert_close(logits, linear(classifier.linear_2, torch.where(hidden > 0, hidden, 0.0)))


def test_masked_tokens_change_no_logit(classifier: SelfAttentionClassifier) -> None:
    x, mask = tokens(), lengths()
    other = torch.where(mask[..., None], x, 100 * tokens())
    assert_close(classifier(other, mask), classifier(x, mask))
    assert_close(classifier(x, mask)[1], classifier(x[1, :3]))
    assert not torch.allclose(classifier(other), classifier(x))


def test_the_order_of_tokens_changes_no_logit(classifier: SelfAttentionClassifier) -> None:
    x, mask, order = tokens(), lengths(), torch.tensor([4, 2, 0, 1, 3])
    assert_close(classifier(x[:, order], mask[:, order]), classifier(x, mask))


def test_any_batch_axes_and_a_sequence_without_tokens(classifier: SelfAttentionClassifier) -> None:
    x, mask = tokens(), lengths()
    assert_close(classifier(x[0], mask[0]), classifier(x, mask)[0])
    assert_close(classifier(x.view(2, 2, N_token, -1), mask.view(2, 2, -1)).view(4, -1), classifier(x, mask))
    assert classifier(x, 0 * mask).isfinite().all()


@pytest.mark.usefixtures("without_shape_checks")
def test_a_mask_that_does_not_fit_is_an_error_with_both_shapes(classifier: SelfAttentionClassifier) -> None:
    for shape in [(N_batch, 1), (N_batch, N_token + 1), (N_token, N_batch)]:
        with pytest.raises(ValueError, match="mask") as error:
            classifier(tokens(), torch.ones(shape))
        assert str(shape) in str(error.value)


def test_a_fresh_classifier_depends_on_its_input_and_every_weight_gets_a_gradient() -> None:
    """With a last layer of the attention at zero, the ReLU would see zeros only and nothing could ever learn."""
    classifier = SelfAttentionClassifier(input_dim, num_heads, hidden_dim, num_classes)
    logits = classifier(tokens().float())
    assert not torch.allclose(logits[0], logits[1])
    F.cross_entropy(logits, torch.tensor([0, 1, 1, 0])).backward()
    # The key's bias adds the same number to all logits of a query: the softmax does not see it.
    without = {name for name, p in classifier.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-12}
    assert without <= {"attention.mha.linear_k.bias"}


def test_a_classifier_learns_to_tell_two_kinds_of_sequences() -> None:
    classifier = SelfAttentionClassifier(input_dim, num_heads, hidden_dim, num_classes)
    x, kind = torch.randn(32, N_token, input_dim), torch.arange(32) % 2
    x[kind == 1, :, 0] += 2
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(classifier(x), kind).backward()
        optimizer.step()
    assert (classifier(x).argmax(-1) == kind).float().mean() > 0.9


def test_gradients_are_those_of_finite_differences_with_a_sequence_without_tokens() -> None:
    classifier = redrawn(SelfAttentionClassifier(4, 2, 3, num_classes))
    x = torch.randn(3, 3, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]])
    # gradcheck moves the parameters in place, so the classifier sees them.
    assert torch.autograd.gradcheck(lambda x, *_: classifier(x, mask), (x, *classifier.parameters()))


def test_heads_divide_the_channels() -> None:
    with pytest.raises(ValueError, match="input_dim 12 is not a multiple of num_heads 5"):
        MultiHeadSelfAttention(12, 5)
