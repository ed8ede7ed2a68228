"""Loads on a variant: which, of one model or of several at the same time, and their figures."""
