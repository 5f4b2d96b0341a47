"""The growing cache has the content of transformers' own cache, and copies only when it is full."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache

from vlm_agent.models.decoding import growing_cache


def states(seed: int, rows: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(rows, 2, tokens, 3, generator=generator) for _ in range(2))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["add", "select", "crop"]), st.integers(1, 300)), max_size=8))
def test_it_holds_what_a_plain_cache_holds(steps):
    plain, growing, rows = DynamicCache(), growing_cache(), 4
    for cache in (plain, growing):
        cache.update(*states(0, rows, 5), 0)
    for seed, (what, number) in enumerate(steps, 1):
        if what == "select":
            chosen = torch.arange(0, rows, 1 + number % 2)
            rows = len(chosen)
        for cache in (plain, growing):
            if what == "add":
                seen = cache.update(*states(seed, rows, number), 0)
                assert torch.equal(seen[0], cache.layers[0].keys)
            elif what == "select":
                cache.batch_select_indices(chosen)
            else:
                cache.crop(-min(number, cache.get_seq_length() - 1))
        assert growing.get_seq_length() == plain.get_seq_length()
        for name in ("keys", "values"):
            assert torch.equal(getattr(growing.layers[0], name), getattr(plain.layers[0], name))


def test_a_decoded_token_copies_no_history():
    cache = growing_cache()
    first, _ = cache.update(*states(0, 2, 50), 0)
    then, _ = cache.update(*states(1, 2, 1), 0)
    assert then.data_ptr() == first.data_ptr()
