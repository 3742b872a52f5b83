"""Records the cassettes of tests/contract; no part of the package."""
