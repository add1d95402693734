"""A listwise-input ranker: scores a document together with the others of its list.

It has a linear layer, a Transformer encoder over the list, and a network that scores each document's vector. Without
encoding of the shown order the list is a set: permuting the documents permutes the scores. The encoder normalizes
before attention and before its feed-forward part (pre-norm): with post-norm, as first published, it does not tolerate
the learning rates of the other rankers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.networks.documents import Ranker, mlp

SHORT = 64  # documents; the shares of longer lists, documents times documents, would take too much memory
FEED_FORWARD = 4  # hidden units of the encoder's feed-forward part, as a multiple of the width


class ListwiseRanker(Ranker):
    """A score for each document from the features of its whole list.

    Args:
        inputs: module that turns features into `n_features` numbers; default: the identity.
        width: size of a document's vector in the encoder.
        hidden: layers of the network that scores a vector.
        n_places: encode this many places of the list, in the given order of documents; 0: the list is a set.
    """

    def __init__(
        self,
        n_features: int,
        *,
        inputs: nn.Module | None = None,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        hidden: Sequence[int] = (32, 16, 8),
        activation: str = "elu",
        dropout: float = 0.0,
        norm: bool = True,
        n_places: int = 0,
    ):
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}: choose a width that they divide")
        if layers < 1:
            raise ValueError(f"an encoder needs at least one layer, got {layers}: use network 'tabular' for none")
        self.inputs = nn.Identity() if inputs is None else inputs
        self.expand = nn.Linear(n_features, width)
        layer = EncoderLayer(width, heads, FEED_FORWARD * width, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.score = mlp(width, hidden, activation=activation, dropout=dropout, norm=norm)
        self.places = nn.Embedding(n_places, width) if n_places else None

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.score(self.encode(features, mask)).squeeze(-1)

    def encode(self, features: Tensor, mask: Tensor) -> Tensor:
        """Vectors of documents in their list, `[batch, docs, width]`."""
        vectors = self.expand(self.inputs(features.masked_fill(~mask.unsqueeze(-1), 0.0)))
        if self.places is not None:
            place = torch.arange(mask.shape[1], device=mask.device).clamp(max=self.places.num_embeddings - 1)
            vectors = vectors + self.places(place)
        return self.encoder(vectors, src_key_padding_mask=hidden_keys(mask))


class EncoderLayer(nn.TransformerEncoderLayer):
    """Torch's layer of an encoder, with attention for training on short lists.

    Torch's fused attention and its softmax take 1.5 times as long on lists of 10 documents, forward and backward.
    """

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        attention = self.self_attn
        if not self.training or attention.dropout or x.shape[1] > SHORT:
            return super()._sa_block(x, attn_mask, key_padding_mask, is_causal)
        n_lists, n_docs, width = x.shape
        parts = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
        queries, keys, values = parts.view(n_lists, n_docs, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4).unbind()
        logits = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        if key_padding_mask is not None:
            logits = logits + key_padding_mask.view(n_lists, 1, 1, n_docs)
        weights = (logits - logits.detach().amax(-1, keepdim=True)).exp()
        seen = weights @ values / weights.sum(-1, keepdim=True)
        return attention.out_proj(seen.transpose(1, 2).reshape(n_lists, n_docs, width))


def hidden_keys(mask: Tensor) -> Tensor:
    """Documents that none may attend to; a list of only padding hides nothing, because a softmax needs something."""
    return ~mask & mask.any(-1, keepdim=True)
