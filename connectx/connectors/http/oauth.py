"""Access tokens by OAuth 2.0's client credentials grant (RFC 6749, section 4.4): fetched, kept, and renewed in time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

from connectx.connectors.http.errors import HttpLoginError, HttpUnavailableError
from connectx.responses import PLAIN, BodyError, Limit
from connectx.values import Value
from connectx.views import HIDDEN

if TYPE_CHECKING:
    import httpx

_NO_EXPIRY_S: Final = 300.0
_EARLY_S: Final = 30.0
_SHOWN_CHARACTERS: Final = 200
_BODY: Final = Limit(most_bytes=1024 * 1024, within_s=60.0)
_LATER: Final = frozenset({408, 425, 429, *range(500, 600)})


class OAuthSettings(Value):
    """How tokens are fetched.

    Attributes:
        url: of the token service.
        scope: what the token is for; empty: the service decides.
        token_property: field of the response that is the token.
        in_header: the client's id and secret go in a header (HTTP Basic), otherwise in the body.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    token_property: str = "access_token"
    in_header: bool = True

    @property
    def place(self) -> str:
        """The URL without its query."""
        return self.url.partition("?")[0]


class Tokens:
    """The current token of one client. Used by one thread.

    Args:
        client: sends requests to the token service; without headers and logins of another service.
        clock_s: a clock that only goes forward.
    """

    def __init__(
        self, settings: OAuthSettings, client: httpx.Client, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock_s = clock_s
        self._token = ""
        self._ends_s = 0.0

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may show."""
        return tuple(text for text in (self._settings.client_secret, self._token) if text)

    def current(self) -> str:
        """A token that is valid now; fetched when there is none, or when it ends within 30 s or a tenth of its life.

        Raises:
            HttpUnavailableError: the token service cannot be reached, or cannot answer now.
            HttpLoginError: it refuses the client, or its response holds no token.
        """
        if not self._token or self._clock_s() >= self._ends_s:
            self._fetch()
        return self._token

    def forget(self) -> None:
        """The token was refused: fetch another one."""
        self._token = ""

    def close(self) -> None:
        self._client.close()

    def _fetch(self) -> None:
        import httpx  # slow, and settings do without

        settings = self._settings
        form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
        login = None
        if settings.in_header:
            login = httpx.BasicAuth(quote_plus(settings.client_id), quote_plus(settings.client_secret))
        else:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        asked_s = self._clock_s()
        try:
            request = self._client.build_request(
                "POST", settings.url, data=form, headers={**PLAIN, "Accept": "application/json"}
            )
            response = self._client.send(request, stream=True, auth=login or httpx.USE_CLIENT_DEFAULT)
            body = _BODY.read(response)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise HttpUnavailableError(f"The token service {settings.place} cannot be reached: {reason}.") from error
        except BodyError as error:
            raise HttpLoginError(settings.place, f"answered with {error}") from error
        if response.status_code in _LATER:
            raise HttpUnavailableError(f"The token service {settings.place} answered {response.status_code}.")
        if not response.is_success:
            raise HttpLoginError(settings.place, f"answered {response.status_code}{self._reason(body)}")
        self._token, seconds = self._parsed(body)
        self._ends_s = asked_s + seconds - min(_EARLY_S, seconds / 10)

    def _parsed(self, body: bytes) -> tuple[str, float]:
        """The token, and for how many seconds it is valid."""
        settings = self._settings
        try:
            found: Any = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        token = found.get(settings.token_property) if isinstance(found, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise HttpLoginError(settings.place, f"answered without a token in {settings.token_property}")
        try:
            return token, max(0.0, float(found.get("expires_in", _NO_EXPIRY_S)))
        except (TypeError, ValueError):
            return token, _NO_EXPIRY_S

    def _reason(self, body: bytes) -> str:
        """The error that RFC 6749 defines, without secrets."""
        try:
            found: Any = json.loads(body)
        except (ValueError, RecursionError):
            return ""
        parts = [
            str(found[name]) for name in ("error", "error_description") if isinstance(found, dict) and name in found
        ]
        text = ": ".join(parts)[:_SHOWN_CHARACTERS].replace(self._settings.client_secret, HIDDEN)
        return f" ({text})" if text else ""
