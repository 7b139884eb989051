"""`python -m holdfast.cli` is `holdfast`."""

from holdfast.cli.entry import main

main()
