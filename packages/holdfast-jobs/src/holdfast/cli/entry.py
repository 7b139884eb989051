"""The console script: it imports nothing at module level, so that Ctrl-C during startup shows no traceback."""


def main() -> None:
    """Run the command line of this process."""
    try:
        from holdfast.cli.main import main as run

        run()
    except KeyboardInterrupt:
        # As `Exit.INTERRUPTED`, which may not have been imported yet.
        raise SystemExit(130) from None
