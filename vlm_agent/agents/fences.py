"""Answers in a markdown code fence, as many served models write them.

```text
press back
```
"""

import re

_FENCE = re.compile(r"\s*(`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*\1\s*", re.DOTALL)


def in_fence(text: str) -> str | None:
    """The content of the code fence that is the whole answer; None for any other answer."""
    match = _FENCE.fullmatch(text)
    return None if match is None or match[1] in match[2] else match[2]
