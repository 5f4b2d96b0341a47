"""The HTTP layer of the chat client: the `openai` client, restricted to one server. Imported at the first call."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2  # the HTTP library of the openai client
from openai import DefaultHttpxClient, Omit, OpenAI

from vlm_agent.models.proxies import proxy_of, usable_proxy

MAX_BYTES = 1 << 24
"""The largest response in bytes; the rest is not read. Compressed responses, which may become any size, are refused."""


def openai_client(base_url: str, key: str | None, timeout: float) -> OpenAI:
    """A client without retries and redirects that sends `key` only to the host of `base_url`.

    Proxies from the environment are not used for localhost. `timeout`: seconds. Raises ProxyError.
    """
    is_local = urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
    with usable_proxy(base_url):
        http_client = DefaultHttpxClient(
            timeout=timeout,
            follow_redirects=False,  # a redirect would take the key to another host
            # httpx2 refuses to start where any variable names a proxy that it cannot use, also one for other hosts.
            trust_env=False,
            proxy=None if is_local else proxy_of(base_url),
            verify=httpx2.create_ssl_context(),  # certificates that the environment names
            headers={"Accept-Encoding": _PLAIN},
            event_hooks={"response": [_bound]},
        )
    return OpenAI(api_key=key or "unused", base_url=base_url, max_retries=0, timeout=timeout, http_client=http_client)


def headers(key: str | None) -> dict[str, str | Omit]:
    """The headers of a request. They override those that the client reads from the environment for OpenAI's servers."""
    authorization = f"Bearer {key}" if key else Omit()
    return {"Authorization": authorization, "OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}


def interruption(error: Exception) -> str | None:
    """What interrupted a request, so that another attempt may succeed; None if no connection was established."""
    cause = error.__cause__
    if isinstance(cause, (httpx2.ConnectError, httpx2.ConnectTimeout)):
        return None
    if isinstance(cause, httpx2.TimeoutException):
        return "no response in time"
    is_broken = isinstance(cause, (httpx2.NetworkError, httpx2.RemoteProtocolError))
    return f"the connection broke ({type(cause).__name__})" if is_broken else None


def was_sent(error: Exception) -> bool:
    """Whether the whole request was sent before its reply failed to arrive, so that a server may answer and bill it."""
    return isinstance(error.__cause__, (httpx2.ReadTimeout, httpx2.ReadError, httpx2.RemoteProtocolError))


_PLAIN = "identity"


def _bound(response: httpx2.Response) -> None:
    response.encoding = "utf-8"  # openai decodes error messages; another charset may raise
    encoding = response.headers.get("Content-Encoding", _PLAIN)
    if encoding.strip().lower() != _PLAIN:
        raise httpx2.DecodingError(f"its response is compressed ({encoding[:40]!r}), which was not requested")
    if isinstance(response.stream, httpx2.SyncByteStream):  # always so with a synchronous client
        response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.SyncByteStream):
    """At most `MAX_BYTES` of `stream`."""

    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        left = MAX_BYTES
        for part in self._stream:
            yield part[:left]
            left -= len(part)
            if left <= 0:
                return

    def close(self) -> None:
        self._stream.close()
