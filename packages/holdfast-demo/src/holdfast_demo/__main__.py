"""`python -m holdfast_demo` is `holdfast demo`."""

import sys

from holdfast.cli.main import cli

cli(["demo", *sys.argv[1:]], prog_name="holdfast")
