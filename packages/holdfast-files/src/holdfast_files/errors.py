"""The errors of files, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class FilesError(HoldfastError):
    """A file could not be stored, read or linked to."""


class ObjectNotFound(FilesError):
    """There is no object under this key.

    It was never stored, was deleted, or is stored under another prefix or in another bucket.
    """

    code = "HF100"
    http_status = 404
    exit_code = 3
    fix = "check the key; `files.list(prefix)` shows which keys exist"
    retryable = True


class ObjectExists(FilesError):
    """The key already holds other content.

    `put_once` stores a key once: storing the same content again changes nothing, and different
    content is rejected, so nothing that others already refer to changes.
    """

    code = "HF101"
    http_status = 409
    exit_code = 4
    fix = "use another key, such as one from `content_key`, or `put` to replace the content"


class ObjectCorrupted(FilesError):
    """The content does not match its checksum.

    A SHA-256 is kept with every object and compared whenever the whole object is read. The content
    was damaged, or replaced by something other than Holdfast.
    """

    code = "HF102"
    fix = "restore the object from a backup, or delete it and store it again"
    retryable = True


class InvalidObjectKey(FilesError):
    """The key is invalid.

    A key is a relative path with forward slashes, at most 1024 bytes long, without empty parts,
    `.`, `..`, backslashes or control characters, so that it means the same in every store and never
    leaves its directory.
    """

    code = "HF103"
    http_status = 400
    exit_code = 2
    fix = "use a key like invoices/2026/0042.pdf"


class BucketNotFound(FilesError):
    """The bucket does not exist.

    Holdfast creates no buckets: you decide who can read them and how long they keep objects.
    """

    code = "HF104"
    exit_code = 3
    fix = "create the bucket, or correct its name, endpoint or region in the URL"
    retryable = True


class CredentialsMissing(FilesError):
    """There are no credentials for the object store.

    They are read from the environment, never from the URL, which ends up in logs and shell
    histories.
    """

    code = "HF105"
    exit_code = 2
    fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add credentials=instance to the URL"


class AccessDenied(FilesError):
    """The object store denied access.

    The access key is unknown, its secret is wrong, or it lacks permission for this operation.
    """

    code = "HF106"
    exit_code = 4
    fix = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the permissions of that key"
    retryable = True


class FilesUnreachable(FilesError):
    """The object store cannot be reached.

    Requests are retried for a few seconds; after that the attempt fails and the job's own retries
    take over.
    """

    code = "HF107"
    http_status = 503
    fix = "check the endpoint and the network; for a local directory, the disk and its permissions"
    retryable = True


class SigningSecretMissing(FilesError):
    """Download links cannot be signed without a secret.

    Links to a local directory carry a signature that only the secret's owner can create. Without a
    secret, links are neither created nor accepted.
    """

    code = "HF108"
    exit_code = 2
    fix = "pass open_files(…, secret=…), a random text of at least 32 characters"


class LinkInvalid(FilesError):
    """The download link is invalid or has expired.

    A link is valid for one key, one file name and a limited time; all three are signed.
    """

    code = "HF109"
    http_status = 403
    exit_code = 4
    fix = "ask for a new link"
