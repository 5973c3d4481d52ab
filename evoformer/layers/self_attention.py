"""The textbook's self-attention, and a classifier of sequences of tokens on top of it."""

from torch import Tensor, nn

from evoformer import ops
from evoformer.layers.attention import MultiHeadAttention
from evoformer.layers.linear import Linear
from evoformer.shapes import check_mask


class MultiHeadSelfAttention(nn.Module):
    """Multi-head self-attention over tokens, as in Vaswani et al. 2017; each head has its own projections, with a bias.

    Args:
        input_dim: channels of a token.
        num_heads: number of heads; each has input_dim / num_heads channels.

    Raises:
        ValueError: the heads do not divide the channels.
    """

    def __init__(self, input_dim: int, num_heads: int) -> None:
        super().__init__()
        if input_dim % num_heads != 0:
            raise ValueError(f"input_dim {input_dim} is not a multiple of num_heads {num_heads}")
        c = input_dim // num_heads
        self.mha = MultiHeadAttention(input_dim, c, num_heads, attn_dim=-2, use_bias_for_embeddings=True)
        # There is no residual here: with a last layer at zero nothing would come out, and nothing could learn.
        self.mha.linear_o = Linear(input_dim, input_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend over the tokens.

        Shapes:
            x: [*, N_token, input_dim]
            mask: [*, N_token], 1 where there is a token
            returns: [*, N_token, input_dim]
        """
        check_mask(mask, x, "mask", "x")
        return self.mha(x, attention_mask=mask)


class SelfAttentionClassifier(nn.Module):
    """Self-attention, the mean over the tokens, and two linear layers with a ReLU between.

    Args:
        input_dim: channels of a token.
        num_heads: number of heads.
        hidden_dim: channels between the two linear layers.
        num_classes: number of logits.
    """

    def __init__(self, input_dim: int, num_heads: int, hidden_dim: int, num_classes: int) -> None:
        super().__init__()
        self.attention = MultiHeadSelfAttention(input_dim, num_heads)
        self.linear_1 = Linear(input_dim, hidden_dim, init="relu")
        self.relu = nn.ReLU()
        self.linear_2 = Linear(hidden_dim, num_classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Classify.

        Shapes:
            x: [*, N_token, input_dim]
            mask: [*, N_token], 1 where there is a token
            returns: [*, num_classes], logits
        """
        o = self.attention(x, mask)
        mean = o.mean(-2) if mask is None else ops.masked_mean(o, mask[..., None], axis=-2).squeeze(-2)
        return self.linear_2(self.relu(self.linear_1(mean)))
