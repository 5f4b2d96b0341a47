"""A CPU kernel, forward and backward, for torch's variable-length attention, which torch has for CUDA only.

Written out as softmax(QKᵀ)V for each segment, so that it shares no code with what it is compared to. Everything around
the kernel is torch's own: the public function, the operator's schema, its registration with autograd.
"""

from itertools import pairwise

import pytest
import torch
from torch.nn.attention import varlen as torch_varlen

from vlm_agent.models import attention


class Calls(list):
    """(segments, tokens, heads, key heads, causal) of every forward call."""


def use(patch: pytest.MonkeyPatch) -> Calls:
    """Registers the kernel, and lets `attention.can_run_kernel` accept tensors of the CPU."""
    calls = Calls()

    def forward(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, scale=None, *_, **__):
        lengths = cu_seq_q.diff()
        assert cu_seq_q.dtype == torch.int32 and torch.equal(cu_seq_q, cu_seq_k)
        assert max_q == max_k == lengths.max()
        assert cu_seq_q[-1] == len(query) == len(key)
        calls.append((len(lengths), len(query), query.shape[1], key.shape[1], is_causal))
        output = torch.empty_like(query)
        for begin, end in pairwise(cu_seq_q.tolist()):
            weights, values, _ = _segment(query, key, value, slice(begin, end), is_causal, scale)
            output[begin:end] = (weights @ values).transpose(0, 1).to(query.dtype)
        return (
            output,
            query.new_empty(query.shape[1], len(query), dtype=torch.float),
            torch.zeros(2, dtype=torch.uint64),
        )

    def backward(grad, query, key, value, out, lse, cu_seq_q, cu_seq_k, max_q, max_k, is_causal, rng, scale=None, *_):
        grads = [torch.empty_like(tensor) for tensor in (query, key, value)]
        for begin, end in pairwise(cu_seq_q.tolist()):
            part = slice(begin, end)
            for whole, found in zip(grads, _gradients(grad, query, key, value, part, is_causal, scale), strict=True):
                whole[part] = found.transpose(0, 1).to(whole.dtype)
        return tuple(grads)

    torch_varlen._varlen_attn.register_kernel("cpu")(forward)
    torch_varlen._varlen_attn_backward.register_kernel("cpu")(backward)
    patch.setattr(attention, "can_run_kernel", lambda query, dropout=0.0: not dropout)
    return calls


def _segment(query, key, value, part, causal, scale):
    """Weights (heads, length, length), and values and keys (heads, length, width), in float32."""
    groups = query.shape[1] // key.shape[1]
    queries = query[part].float().transpose(0, 1)
    keys, values = (one[part].float().transpose(0, 1).repeat_interleave(groups, 0) for one in (key, value))
    scores = queries @ keys.mT * _factor(query, scale)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1), values, keys


def _gradients(grad, query, key, value, part, causal, scale):
    """Gradients of queries, keys and values of a segment, each (heads, length, width)."""
    weights, values, keys = _segment(query, key, value, part, causal, scale)
    of_output, queries = (one[part].float().transpose(0, 1) for one in (grad, query))
    of_weights = of_output @ values.mT
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * _factor(query, scale)
    shared = (key.shape[1], query.shape[1] // key.shape[1])
    return (
        of_scores @ keys,
        (of_scores.mT @ queries).unflatten(0, shared).sum(1),
        (weights.mT @ of_output).unflatten(0, shared).sum(1),
    )


def _factor(query, scale) -> float:
    return query.shape[-1] ** -0.5 if scale is None else scale
