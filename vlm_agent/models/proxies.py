"""The proxy that the environment names for a host, and what is wrong with one that the HTTP client cannot use."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2  # the HTTP library of huggingface_hub and openai

from vlm_agent.errors import UserError

_SOCKS = ("socks5", "socks5h")
_CREDENTIALS = re.compile(r"^((?:[^:/@]*:/*)?).*@")
_MOST_SHOWN = 100


class ProxyError(UserError):
    """The proxy in the environment cannot be used; the message names the variable and what to do."""


def proxy_of(url: str) -> str | None:
    """The proxy for requests to `url`, None without one or if NO_PROXY names the host."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def proxy_in_words(url: str) -> str | None:
    """`HTTPS_PROXY=http://…@proxy:3128`: the variable of the proxy for `url`, without credentials; None without one."""
    proxy = proxy_of(url)
    if proxy is None:
        return None
    kinds = (f"{urlsplit(url).scheme}_proxy", "all_proxy")
    found = [(name, value) for kind in kinds for name, value in os.environ.items() if name.lower() == kind]
    name, value = next(
        ((name, value) for name, value in found if proxy in (value, f"http://{value}")),
        ("the proxy of the system", proxy),
    )
    shown = "".join(letter for letter in _CREDENTIALS.sub(r"\1…@", value)[:_MOST_SHOWN] if letter.isprintable())
    return f"{name}={shown}"


@contextmanager
def usable_proxy(url: str) -> Iterator[None]:
    """Around the construction of an HTTP client for `url`. Raises ProxyError in place of the client's own errors."""
    try:
        yield
    except (ImportError, ValueError, httpx2.InvalidURL):
        words, host = proxy_in_words(url), urlsplit(url).hostname
        if words is None:
            raise
        raise ProxyError(f"{words}: {_problem(str(proxy_of(url)))}; or set NO_PROXY={host}") from None


def _problem(proxy: str) -> str:
    scheme = proxy.partition("://")[0].lower()
    if scheme in _SOCKS and _is_valid(proxy):
        return "a SOCKS proxy needs the package socksio (pip install socksio)"
    if scheme.startswith("socks"):
        return f"write {_SOCKS[0]}://HOST:PORT; a SOCKS proxy needs the package socksio (pip install socksio)"
    if scheme not in ("http", "https"):
        return f"proxies of scheme {scheme[:20]!r} are not supported; write http://HOST:PORT or {_SOCKS[0]}://HOST:PORT"
    return "this is not the URL of a proxy, such as http://127.0.0.1:7890"


def _is_valid(proxy: str) -> bool:
    try:
        return bool(httpx2.Proxy(proxy).url.host)
    except (ValueError, httpx2.InvalidURL):
        return False
