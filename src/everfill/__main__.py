"""`python -m everfill` is the same as `everfill`."""

from everfill.cli.main import main

if __name__ == "__main__":
    main()
