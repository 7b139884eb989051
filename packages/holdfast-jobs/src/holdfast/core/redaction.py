"""Takes secrets out of texts and payloads, and makes error texts storable: printable, bounded, grouped by likeness."""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

MASK = "•••"

_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_QUOTED = r"\"(?:[^\"\\]|\\.)*(?:\"|\Z)|'(?:[^'\\]|\\.)*(?:'|\Z)"
# What a secret's name is followed by: b'…', Password('…'), {'value': '…'}, or a word.
_BRACKETED = rf"[\w.]{{0,40}}[(\[{{](?:{_QUOTED}|[^)\]}}\"'\n]){{0,500}}[)\]}}]?"
_VALUE = rf"[a-z]{{0,2}}(?:{_QUOTED})|{_BRACKETED}|[^\s,;&\"'}}\])]+"
_SCHEME = r"\b([a-z][a-z0-9+.-]{1,20}://"
_NAMES = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "cookie"),
    *("apikey", "api-key", "api_key", "accesskey", "access-key", "access_key", "signature"),
    *("privatekey", "private-key", "private_key", "sessionid", "session-id", "session_id"),
)
_PREFIXES = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-"),
    *(
        "xoxp-",
        "xoxr-",
        "xoxs-",
        "sk_live_",
        "sk_test_",
        "sk-live-",
        "sk-test-",
        "sk-proj-",
        "sk-ant-",
    ),
)
_KEY_IDS = ("akia", "asia", "aroa", "aida", "agpa")


class _Rule(NamedTuple):
    """A pattern, and words without one of which there is no need to try it; it is compiled when it is first tried."""

    hints: tuple[str, ...]
    pattern: str
    replacement: str = MASK


# What may be read in vain is bounded in length, so that no text takes quadratic time.
_RULES = (
    _Rule(
        ("private key-----",),
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]{0,30}-----|\Z)",
    ),
    _Rule(("://",), _SCHEME + r"[^\s:/@\"']{0,200}):(?!\d{1,5}/)[^\s\"']{1,500}@", rf"\1:{MASK}@"),
    _Rule(("://",), _SCHEME + r")[^\s:/@\"']{16,500}@", rf"\1{MASK}@"),
    _Rule(
        ("authorization", "cookie"),
        r"\b(authorization|cookie)([\"']?\s{0,5}[:=]\s{0,5}[\"']?)[^\r\n\"']+",
        rf"\1\2{MASK}",
    ),
    _Rule(
        ("bearer", "basic", "digest"),
        r"\b(bearer|basic|digest)\s{1,5}(?=\S{0,500}[\d=])[a-z0-9._~+/=-]{8,}",
        rf"\1 {MASK}",
    ),
    _Rule(
        _NAMES,
        rf"({'|'.join(_NAMES)})([\w.-]{{0,40}}[\"']?\s{{0,5}}[:=]\s{{0,5}})"
        rf"(?:{_VALUE})",
        rf"\1\2{MASK}",
    ),
    _Rule(
        ("key", "token", "secret", "password", "signature", "credential"),
        r"(key|token|secret|password|signature|credential)"
        r"(s?(?:\s(?:is|was|of))?[\s:=\"'(]{1,5})"
        rf"(?!{_UUID})(?=\S{{0,500}}\d)[a-z0-9+/_=-]{{20,}}",
        rf"\1\2{MASK}",
    ),
    _Rule(("eyj",), r"\beyJ[\w-]{8,4000}\.[\w-]{8,4000}\.[\w-]*"),
    _Rule(_KEY_IDS, rf"\b(?:{'|'.join(_KEY_IDS)})[A-Z0-9]{{16}}\b"),
    _Rule(_PREFIXES, rf"\b(?:{'|'.join(_PREFIXES)})[a-z0-9_-]{{8,}}"),
)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS = frozenset(
    (
        *("password", "passwd", "passphrase", "pwd", "secret", "token", "auth", "authorization"),
        *(
            "credential",
            "cookie",
            "apikey",
            "signature",
            "card",
            "cvv",
            "cvc",
            "iban",
            "ssn",
            "pin",
        ),
    )
)
_SECRET_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("private", "key"), ("session", "id")}
)


def redact(text: str) -> str:
    """Return the text with everything that looks like a secret masked."""
    lowered = text.lower()
    for rule in _RULES:
        if any(hint in lowered for hint in rule.hints):
            text = re.sub(rule.pattern, rule.replacement, text, flags=re.IGNORECASE)
    return text


def redact_value(value: Any) -> Any:
    """Return a JSON value with secret fields masked and its strings redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_value(each) for each in value]
    if isinstance(value, dict):
        return {
            key: MASK if _names_a_secret(key) else redact_value(each) for key, each in value.items()
        }
    return value


def has_mask(value: Any) -> bool:
    """Whether a mask is anywhere in a JSON value."""
    if isinstance(value, dict):
        return any(map(has_mask, value.values()))
    if isinstance(value, list):
        return any(map(has_mask, value))
    return isinstance(value, str) and MASK in value


def _names_a_secret(key: str) -> bool:
    words = [word.lower().removesuffix("s") for word in _WORDS.findall(key)]
    return not _SECRET_WORDS.isdisjoint(words) or not _SECRET_PAIRS.isdisjoint(pairwise(words))


ERROR_LIMIT = 8_192

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# NUL and lone surrogates cannot be stored; escape codes would act on the terminals of readers.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Searched for secrets beyond the limit, so that the first cut cannot leave the end of one in sight.
_SEARCHED_BYTES = 65_536
_CUT = "\n… (cut) …\n".encode()
_FINGERPRINTED = 1_000
_VARIABLE_PARTS = (
    (r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "<id>"),
    (r"\"[^\"]*\"|(?<!\w)'[^']*'|`[^`]*`", "<text>"),
    (r"\b0x[0-9a-f]+\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b", "<hex>"),
    (r"\d+(?:\.\d+)?", "<number>"),
    (r"\s+", " "),
)


def clean_error(type_name: str, message: str, stack: str = "", limit: int = ERROR_LIMIT) -> str:
    """Return the text to store for an error: at most `limit` bytes, without secrets; never raises."""
    text = f"{type_name}: {message}" if message else type_name
    if stack:
        text = f"{text}\n{stack}"
    return clean_text(text, limit)


def clean_text(text: str, limit: int = ERROR_LIMIT) -> str:
    """Return a text as it may be stored and shown: printable, without secrets, at most `limit` bytes."""
    return shorten(redact(printable(shorten(text, limit + _SEARCHED_BYTES))), limit)


def printable(text: str) -> str:
    """Return the text with everything replaced that cannot be stored or shown."""
    return _UNPRINTABLE.sub(_REPLACEMENT, text.replace("\r\n", "\n"))


def shorten(text: str, limit: int) -> str:
    """Return the text in at most `limit` bytes of UTF-8, the middle left out when it is longer."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    room = limit - len(_CUT)
    if room < 2:
        return raw[: max(limit, 0)].decode("utf-8", "ignore")
    head, tail = raw[: room - room // 2], raw[len(raw) - room // 2 :]
    return b"".join((head, _CUT, tail)).decode("utf-8", "ignore")


def fingerprint(type_name: str, message: str) -> str:
    """Return a short key that errors share when they differ only in numbers, ids and quotations."""
    first_line = message.strip().partition("\n")[0][:_FINGERPRINTED]
    for pattern, name in _VARIABLE_PARTS:
        first_line = re.sub(pattern, name, first_line, flags=re.IGNORECASE)
    said = f"{type_name}\0{first_line.strip()}".encode("utf-8", "replace")
    return blake2b(said, digest_size=8).hexdigest()
