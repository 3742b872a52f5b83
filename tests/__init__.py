"""The tests, a package so that they find what they share: ``from tests.helpers import ...``."""
