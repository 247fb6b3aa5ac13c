"""The entry point, light so that Ctrl-C ends it quietly even while the rest is imported."""

import signal


def main() -> None:
    """Import the command line and run it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from everfill.cli.main import main as run  # noqa: PLC0415 - half a second of imports

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
