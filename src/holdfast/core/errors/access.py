"""HF015 and HF09x: who may come in, and who may do what."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError
from holdfast.core.errors.configuration import ConfigError


class UnsafeBind(ConfigError):
    """The address can be reached by others, and nothing decides who may come in.

    Without tokens and without a hook of the host application everybody who reaches the API may do
    everything, so it is served on this machine's own address only.
    """

    code = "HF015"
    fix = "make a token with `holdfast token create`, or serve on 127.0.0.1"


class Refused(HoldfastError):
    """The caller may not do this.

    Viewers see metadata, operators may also pause, retry, cancel and redrive, developers may also
    see payloads, start and delete.
    """

    code = "HF090"
    fix = "use a token of a role that may, see `holdfast token create --role`"


class Unauthenticated(HoldfastError):
    """It is not known who asks.

    The request carries no token, or one that does not exist, has expired or was revoked; which of
    these it is stays untold.
    """

    code = "HF095"
    fix = "send `Authorization: Bearer <token>`; `holdfast token create` makes one"


class CrossSite(HoldfastError):
    """The request came from a page of another site.

    A browser sends cookies along wherever a form is, so changes that rely on them are accepted from
    the dashboard's own pages only.
    """

    code = "HF096"
    fix = "make the change on the dashboard itself, or send a token as `Authorization: Bearer`"


class TokenNotFound(HoldfastError):
    """There is no such token.

    Tokens are named by their id, never by their secret, which is nowhere to be found after it was
    shown once.
    """

    code = "HF097"
    fix = "copy the id from `holdfast token list`"
