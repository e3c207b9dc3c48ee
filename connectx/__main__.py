"""`python -m connectx`: the command `connectx`."""

from connectx.cli import main

if __name__ == "__main__":
    main()
