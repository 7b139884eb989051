"""The first of our code that runs: it imports nothing itself, so that Ctrl-C is quiet from here on."""


def main() -> None:
    """Run the command line of this process; whoever interrupts it before it listens sees no traceback."""
    try:
        from holdfast.cli.main import main as run

        run()
    except KeyboardInterrupt:
        # As `Exit.INTERRUPTED`, which may not have been imported yet.
        raise SystemExit(130) from None
