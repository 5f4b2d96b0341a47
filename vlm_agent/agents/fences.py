"""Answers in a markdown code fence, as many served models write them.

```text
press back
```
"""

import re

_OPENING = re.compile(r"(`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*\r?")


def in_fence(text: str) -> str | None:
    """The content of the code fence that is the whole answer; None for any other answer."""
    first, newline, rest = text.strip().partition("\n")
    opening = _OPENING.fullmatch(first)
    if opening is None or not newline or not rest.endswith(opening[1]):
        return None
    content = rest.removesuffix(opening[1]).rstrip(" \t").removesuffix("\n").removesuffix("\r")
    return None if opening[1] in content else content
