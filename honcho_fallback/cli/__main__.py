"""Run the command line as ``python -m honcho_fallback.cli``."""

from honcho_fallback.cli import main

if __name__ == "__main__":
    main()
