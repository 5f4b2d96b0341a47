"""Time of each part of a training step, measured by hooks on the model, for all methods including the peer."""

import time
from collections import Counter

PARTS = ("batch", "vision", "decoder", "head and loss", "update", "other")
"""`batch`: from episodes to tensors; `decoder`: the language model without its head; forward and backward together."""


class Stopwatch:
    """`lap(part)` adds the time since the previous lap to a part. Not for GPUs, whose kernels run asynchronously."""

    def __init__(self):
        self.restart()

    def restart(self) -> None:
        self.seconds: Counter = Counter()
        self.last = time.perf_counter()

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part] += now - self.last
        self.last = now

    def skip(self) -> None:
        """The time since the lap before belongs to no part."""
        self.last = time.perf_counter()

    def watch(self, model, vision, decoder) -> None:
        """Laps before `model`, and around `vision` and `decoder`; after `backward` the caller laps to the decoder."""
        model.register_forward_pre_hook(lambda *_: self.lap("batch"))
        vision.register_forward_pre_hook(lambda *_: self.lap("other"))
        vision.register_forward_hook(lambda *_: self.lap("vision"))
        decoder.register_forward_pre_hook(lambda *_: self.lap("other"))
        decoder.register_forward_hook(self._decoded)

    def _decoded(self, module, inputs, output) -> None:
        self.lap("decoder")
        # Called when backward has left the head and comes to the decoder.
        output.last_hidden_state.register_hook(lambda _: self.lap("head and loss"))
