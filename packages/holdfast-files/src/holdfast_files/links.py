"""Download links to a local directory: signed with HMAC-SHA-256, for one key, one name and a limited time."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from holdfast.core.errors import ConfigError
from holdfast_files.errors import LinkInvalid, SigningSecretMissing

MIN_SECRET = 32


class LinkSigner:
    """Makes and checks links below a base URL; without a secret it does neither."""

    def __init__(self, secret: str | None, base_url: str) -> None:
        """Raises: ConfigError."""
        if secret and len(secret) < MIN_SECRET:
            raise ConfigError(
                f"the secret for download links has fewer than {MIN_SECRET} characters",
                help="create one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        self._secret = secret
        self._base = base_url.rstrip("/")

    def url(self, key: str, expires_at: int, filename: str) -> str:
        """Return the link to a key. Raises: SigningSecretMissing."""
        signature = self._signature(key, str(expires_at), filename)
        query = {"expires": str(expires_at), "filename": filename, "signature": signature}
        return f"{self._base}/{quote(key)}?{urlencode(query, quote_via=quote)}"

    def check(self, key: str, query: Mapping[str, str], now: float) -> str:
        """Return the file name of a valid link's query. Raises: LinkInvalid, SigningSecretMissing."""
        expires, filename = query.get("expires", ""), query.get("filename", "")
        expected = self._signature(key, expires, filename)
        if not hmac.compare_digest(expected.encode(), query.get("signature", "").encode()):
            raise LinkInvalid("the link's signature is wrong")
        # Signed, so it is the number that `url` wrote.
        if now >= int(expires):
            raise LinkInvalid("the link has expired")
        return filename

    def _signature(self, key: str, expires: str, filename: str) -> str:
        if not self._secret:
            raise SigningSecretMissing("no secret for download links is set")
        # Lengths before the parts: no two different links have the same text.
        text = "".join(f"{len(each)}:{each}" for each in ("GET", key, expires, filename))
        digest = hmac.digest(self._secret.encode(), text.encode(), hashlib.sha256)
        return urlsafe_b64encode(digest).decode().rstrip("=")


def attachment(filename: str) -> str:
    """Return the header that makes a browser save a download under this name (RFC 6266)."""
    # Control characters, quotes and slashes have no place in a file name, whatever a caller passes on.
    clean = "".join("_" if each in '"\\/' or not each.isprintable() else each for each in filename)
    plain = clean.encode("ascii", "replace").decode().replace("?", "_")
    if plain == clean:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(clean, safe='')}"
