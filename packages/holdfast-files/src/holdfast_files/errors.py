"""The errors of files, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError, SealError


class FilesError(HoldfastError):
    """A file could not be stored, read or linked to."""


class ObjectNotFound(FilesError, code="HF100", retryable=True, http_status=404, exit_code=3):
    """There is no object under this key.

    It was never stored, was deleted, or is stored under another prefix or in another bucket.
    """

    fix = "check the key; `files.list(prefix)` shows which keys exist"


class ObjectExists(FilesError, code="HF101", http_status=409, exit_code=4):
    """The key already holds other content.

    `put_once` stores a key once: storing the same content again changes nothing, and different
    content is rejected, so nothing that others already refer to changes.
    """

    fix = "use another key, such as one from `content_key`, or `put` to replace the content"


class ObjectCorrupted(FilesError, code="HF102", retryable=True):
    """The content does not match its checksum.

    A SHA-256 is kept with every object and compared whenever the whole object is read. The content
    was damaged, or replaced by something other than Holdfast.
    """

    fix = "restore the object from a backup, or delete it and store it again"


class InvalidObjectKey(FilesError, code="HF103", http_status=400, exit_code=2):
    """The key is invalid.

    A key is a relative path with forward slashes, at most 1024 bytes long, without empty parts,
    `.`, `..`, backslashes or control characters, so that it means the same in every store and never
    leaves its directory.
    """

    fix = "use a key like invoices/2026/0042.pdf"


class BucketNotFound(FilesError, code="HF104", retryable=True, exit_code=3):
    """The bucket does not exist.

    Holdfast creates no buckets: you decide who can read them and how long they keep objects.
    """

    fix = "create the bucket, or correct its name, endpoint or region in the URL"


class CredentialsMissing(FilesError, code="HF105", exit_code=2):
    """There are no credentials for the object store.

    They are read from the environment, never from the URL, which ends up in logs and shell
    histories.
    """

    fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add credentials=instance to the URL"


class AccessDenied(FilesError, code="HF106", retryable=True, exit_code=4):
    """The object store denied access.

    The access key is unknown, its secret is wrong, or it lacks permission for this operation.
    """

    fix = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the permissions of that key"


class FilesUnreachable(FilesError, code="HF107", retryable=True, http_status=503):
    """The object store cannot be reached.

    Requests are retried for a few seconds; after that the attempt fails and the job's own retries
    take over.
    """

    fix = "check the endpoint and the network; for a local directory, the disk and its permissions"


class SigningSecretMissing(FilesError, code="HF108", exit_code=2):
    """Download links cannot be signed without a secret.

    Links to a local directory carry a signature that only the secret's owner can create. Without a
    secret, links are neither created nor accepted.
    """

    fix = "pass open_files(…, secret=…), a random text of at least 32 characters"


class LinkInvalid(FilesError, code="HF109", http_status=403, exit_code=4):
    """The download link is invalid or has expired.

    A link is valid for one key, one file name and a limited time; all three are signed.
    """

    fix = "ask for a new link"


class LargeValueMissing(SealError, code="HF211", http_status=404, exit_code=3):
    """The file of a large value is missing.

    A row names a file that is not where this process looks for it: the file was deleted by something
    other than Holdfast, or this process has other files or another prefix than the one that wrote it.
    A job with such an input waits, without using up an attempt, and is tried again later.
    """

    fix = "compare files= and prefix= of add_large_values with the writer's; else restore the file from a backup"


class LargeValueChanged(SealError, code="HF212"):
    """The file of a large value does not have the content that was stored.

    Its SHA-256 is in the row and compared whenever the value is read. A job with such an input waits,
    without using up an attempt, and is tried again later.
    """

    fix = "restore the file from a backup; if there is none, cancel the job and start another"


class LargeValuesUnreachable(SealError, code="HF213", retryable=True, http_status=503):
    """The files with large values cannot be read.

    The disk or the object store does not answer, or denies access. A job with such an input waits,
    without using up an attempt, and is tried again later.
    """

    fix = "check the disk, or the endpoint, the network and the credentials of the object store"


class LargeValuesShared(FilesError, code="HF214", exit_code=4):
    """The files of large values belong to another database.

    Files that no row of a database names are removed, so two databases cannot have their large values
    in one place: each would remove the other's. The first database that looked there is the owner.
    """

    fix = "give each database a prefix= of its own; a copied database needs files of its own, and copies of them"
