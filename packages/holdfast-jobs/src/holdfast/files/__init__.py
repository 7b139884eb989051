"""Files that jobs make: stored under keys, checked against their checksums, downloaded by signed links."""

from holdfast.files.backend import ListedFile as ListedFile
from holdfast.files.backend import StoredFile as StoredFile
from holdfast.files.content import Data as Data
from holdfast.files.files import AsyncFiles as AsyncFiles
from holdfast.files.files import Files as Files
from holdfast.files.keys import check_key as check_key
from holdfast.files.keys import content_key as content_key
from holdfast.files.open_files import open_files as open_files
