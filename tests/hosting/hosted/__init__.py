"""A package that only model processes of the tests import."""
