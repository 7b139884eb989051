"""Files that jobs make: stored under keys, checked against their checksums, downloaded by signed links."""

from typing import TYPE_CHECKING

from holdfast.extensions import lazy_names

if TYPE_CHECKING:
    from holdfast_files.backend import ListedFile as ListedFile
    from holdfast_files.backend import StoredFile as StoredFile
    from holdfast_files.content import Data as Data
    from holdfast_files.file_stores import open_files as open_files
    from holdfast_files.files import AsyncFiles as AsyncFiles
    from holdfast_files.files import Files as Files
    from holdfast_files.keys import check_key as check_key
    from holdfast_files.keys import content_key as content_key
    from holdfast_files.large_values import LargeValues as LargeValues
    from holdfast_files.large_values import add_large_values as add_large_values

__getattr__ = lazy_names(
    __name__,
    {
        "backend": ("ListedFile", "StoredFile"),
        "content": ("Data",),
        "files": ("AsyncFiles", "Files"),
        "keys": ("check_key", "content_key"),
        "large_values": ("LargeValues", "add_large_values"),
        "file_stores": ("open_files",),
    },
)
