"""What handlers say while they run, appended to their chain and followed live; see docs/do/output.md."""

from typing import TYPE_CHECKING

from holdfast.extensions import lazy_names

if TYPE_CHECKING:
    from holdfast_output.output import AsyncChainOutput as AsyncChainOutput
    from holdfast_output.output import ChainOutput as ChainOutput
    from holdfast_output.output import OutputItem as OutputItem
    from holdfast_output.output import add_output as add_output

__getattr__ = lazy_names(
    __name__, {"output": ("AsyncChainOutput", "ChainOutput", "OutputItem", "add_output")}
)
