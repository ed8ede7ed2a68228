"""The Llama architecture in PyTorch, with the parameter names of its checkpoints."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    vocabulary: int = 4096
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 704
    context: int = 1024
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-5

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.size = shape.head_size
        inner, shared = shape.heads * self.size, shape.kv_heads * self.size
        self.q_proj = nn.Linear(shape.hidden, inner, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shared, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shared, bias=False)
        self.o_proj = nn.Linear(inner, shape.hidden, bias=False)

    def forward(self, states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        query, key, value = (
            project(states).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(
            rotated(query, cosine, sine),
            *self._for_every_query(query, rotated(key, cosine, sine), value),
            is_causal=True,
        )
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    @staticmethod
    def _for_every_query(query: Tensor, *shared: Tensor) -> list[Tensor]:
        return [part.repeat_interleave(query.shape[1] // part.shape[1], 1) for part in shared]


def rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-second, first), dim=-1) * sine


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_epsilon)
        self.mlp = FeedForward(shape)

    def forward(self, states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        states = states + self.self_attn(self.input_layernorm(states), cosine, sine)
        return states + self.mlp(self.post_attention_layernorm(states))


class Decoder(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.norm_epsilon)


class Llama(nn.Module):
    """Input and output embedding are one matrix, as `tie_word_embeddings` says."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.model = Decoder(shape)
        steps = torch.arange(0, shape.head_size, 2) / shape.head_size
        angles = torch.outer(torch.arange(shape.context).float(), shape.rope_theta**-steps)
        self.register_buffer("cosine", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sine", angles.sin().repeat(1, 2), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                into_stream = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(
                    weight, std=0.02 / math.sqrt(2 * shape.layers if into_stream else 1)
                )

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        cosine, sine = self.get_buffer("cosine")[:length], self.get_buffer("sine")[:length]
        states = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            states = layer(states, cosine, sine)
        return functional.linear(self.model.norm(states), self.model.embed_tokens.weight)
